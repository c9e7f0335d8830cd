"""The limit of a recomputation: a hostile bundle does not hang the verifier."""

from __future__ import annotations

import signal

import pytest

from evenshare_core.cli.bounded import in_child
from evenshare_core.verification.history import RECORD_ALONE, RoundHistory
from evenshare_core.verification.rounds import RoundCheck
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tests.unit.verified_rounds import StagedPool


def spin() -> int:
    """A policy that never returns."""
    count = 0
    while True:
        count += 1


def refused() -> int:
    raise ValueError("no pool")


class TestAChild:
    def test_that_uses_its_cpu_time_is_ended(self) -> None:
        assert in_child(spin, 1) is None

    def test_gives_what_the_work_gives(self) -> None:
        assert in_child(lambda: {"rounds": (1, 2)}, 60) == {"rounds": (1, 2)}

    @pytest.mark.parametrize("limit_s", [0, 60])
    def test_raises_what_the_work_raises(self, limit_s: int) -> None:
        with pytest.raises(ValueError, match="no pool"):
            in_child(refused, limit_s)

    def test_that_ends_otherwise_is_an_error(self) -> None:
        with pytest.raises(ChildProcessError):
            in_child(lambda: signal.raise_signal(signal.SIGTERM), 60)


class TestARound:
    def test_is_recomputed_in_a_child_as_without_one(self) -> None:
        history = RoundHistory(StagedPool().files().get)
        plain = list(history.rounds(lambda _: ""))
        bounded = list(history.rounds(lambda _: "", bounded=lambda work: in_child(work, 600)))
        assert bounded == plain

    def test_that_takes_too_long_is_not_proven_and_the_next_ones_are(self) -> None:
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
