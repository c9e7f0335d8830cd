"""Test the time limit of a recomputation, so that a hostile bundle cannot hang the verifier."""

from __future__ import annotations

import signal

import pytest

from evenshare_core.cli.bounded import in_child
from evenshare_core.verification.history import RECORD_ALONE, RoundHistory
from evenshare_core.verification.rounds import RoundCheck
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tests.unit.verified_rounds import StagedPool


def spin() -> int:
    """Never return, as a faulty policy might."""
    count = 0
    while True:
        count += 1


def refused() -> int:
    raise ValueError("no pool")


class TestChildProcess:
    def test_returns_none_if_cpu_limit_is_exceeded(self) -> None:
        assert in_child(spin, 1) is None

    def test_returns_result_of_work(self) -> None:
        assert in_child(lambda: {"rounds": (1, 2)}, 60) == {"rounds": (1, 2)}

    @pytest.mark.parametrize("limit_s", [0, 60])
    def test_raises_exception_of_work(self, limit_s: int) -> None:
        with pytest.raises(ValueError, match="no pool"):
            in_child(refused, limit_s)

    def test_raises_if_child_is_killed_by_signal(self) -> None:
        with pytest.raises(ChildProcessError):
            in_child(lambda: signal.raise_signal(signal.SIGTERM), 60)


class TestRoundVerification:
    def test_child_process_gives_same_findings(self) -> None:
        history = RoundHistory(StagedPool().files().get)
        plain = list(history.rounds(lambda _: ""))
        bounded = list(history.rounds(lambda _: "", bounded=lambda work: in_child(work, 600)))
        assert bounded == plain

    def test_timed_out_round_is_unproven_and_next_is_recomputed(self) -> None:
        history = RoundHistory(StagedPool().files().get)
        calls: list[int] = []

        def bounded(work):  # type: ignore[no-untyped-def]  # any work
            calls.append(1)
            return None if len(calls) == 3 else work()

        findings = list(history.rounds(lambda _: "", bounded=bounded))
        late = findings[2]
        assert [(row.gap, row.text) for row in late.unproven] == [(Gap.LIMIT, RECORD_ALONE)]
        assert late.recomputed == [RoundCheck.RECORD, RoundCheck.BYTES, RoundCheck.RECORD]
        assert late.verdict() is ProofVerdict.NOT_PROVEN
        assert RoundCheck.DECISION in findings[3].recomputed
