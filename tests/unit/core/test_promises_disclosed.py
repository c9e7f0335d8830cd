"""Test that rounds with promised starts can be disclosed, and that readers detect broken promises.

Promises are in the policy's memory, with ids of jobs. A pinned job may have ended since.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import ids_of
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Verdict, plain
from evenshare_core.policies.base import certify_round
from evenshare_core.verification.rounds import RoundCheck
from evenshare_core.verification.verdict import ProofVerdict
from tests.unit.core.test_promised_starts import promised, starts, with_promises
from tests.unit.core.test_verify_rounds import DAY_US, WHOLE, verified, wrong
from tests.unit.verified_rounds import (
    BEGIN_US,
    BOB,
    ROUND_US,
    StagedPool,
    StagedRound,
    decided,
    staged_rounds,
)

COUNT = 14
BEFORE_MIDNIGHT_US = BEGIN_US - BEGIN_US % DAY_US + DAY_US - 9 * ROUND_US
MEMORY = "The policy's memory is not what round {} left: 1 of 3 entries differ (promises)."


def made(begin_us: int = BEGIN_US) -> list[StagedRound]:
    options = {"promises": True, "min_runtime_s": 10}
    return staged_rounds(
        COUNT, policy="evenshare", options=options, sizes=(2, 4, 3), begin_us=begin_us
    )


@pytest.fixture
def pool() -> StagedPool:
    return StagedPool(made())


def gone_pins(snapshot: Snapshot) -> set[int]:
    """Return the pinned jobs that ended since the round before."""
    rows = snapshot.memory.get("promises", ())
    pinned = {job for row in rows for part in row[5] for job, _ in part[2]}
    return pinned - {job.id for job in snapshot.jobs}


def promising(pool: StagedPool) -> int:
    """Return the index of a round that keeps a promise of the round before."""
    return next(
        index
        for index, row in enumerate(pool.rounds)
        if {one[0] for one in row.snapshot.memory.get("promises", ())}
        & promised(row.decision).keys()
    )


def later(snapshot: Snapshot, rows: list[Any]) -> list[Any]:
    """Return promises, each due a round after its time before the round."""
    due_us = {row[0]: row[3] for row in snapshot.memory["promises"]}
    return [[*row[:3], due_us.get(row[0], row[3]) + ROUND_US, *row[4:]] for row in rows]


def follows(text: str) -> list[str]:
    """Return a problem that the portal's record admits and the reader detects, too."""
    return [f"follows: the portal says: {text}", f"follows: {text}"]


class TestDisclosedPromises:
    def test_rounds_include_promises_and_pins_of_ended_jobs(self, pool: StagedPool) -> None:
        found = [starts(row.snapshot, row.decision) for row in pool.rounds]
        assert sum(row.checked for row in found) > 10
        assert {row.verdict for row in found} == {Verdict.HOLDS, Verdict.NOT_APPLICABLE}
        gone = [(ids_of(row.snapshot).jobs, gone_pins(row.snapshot)) for row in pool.rounds]
        assert sum(bool(jobs) for _, jobs in gone) > 1
        assert all(jobs <= set(ids) for ids, jobs in gone)

    @pytest.mark.parametrize("begin_us", [BEGIN_US, BEFORE_MIDNIGHT_US])
    @pytest.mark.parametrize("reader", ["ada", BOB])
    def test_are_recomputed_completely(self, begin_us: int, reader: str) -> None:
        findings = verified(StagedPool(made(begin_us), reader=reader))
        assert wrong(findings) == {}
        assert [row.recomputed for row in findings[1:]] == [WHOLE] * (COUNT - 1)
        assert {row.verdict() for row in findings} == {ProofVerdict.PROVEN}


class TestBrokenPromise:
    @pytest.fixture
    def bent(self, pool: StagedPool) -> tuple[StagedPool, int]:
        """Return the pool, and the number of a round that moved the times of promises."""
        index = promising(pool)
        row = pool.rounds[index]
        memory = with_promises(row.decision, *later(row.snapshot, row.decision.memory["promises"]))
        pool.rounds[index] = StagedRound(row.snapshot, memory, row.certificate)
        pool.seal()
        return pool, row.snapshot.number

    def test_contradicts_decision_and_certificate(self, bent: tuple[StagedPool, int]) -> None:
        pool, number = bent
        texts = wrong(verified(pool))
        assert list(texts) == [number, number + 1]
        assert "certificate: promised_starts: holds there, violated here" in texts[number]
        assert any(text.startswith("decision: ") for text in texts[number])
        assert texts[number + 1] == follows(MEMORY.format(number))

    def test_is_remarked_if_certificate_admits_it(self, bent: tuple[StagedPool, int]) -> None:
        pool, number = bent
        row = pool.rounds[number - 1]
        certificate = plain(certify_round(row.snapshot, row.decision))
        pool.rounds[number - 1] = StagedRound(row.snapshot, row.decision, certificate)
        pool.seal()
        finding = verified(pool)[number - 1]
        assert finding.remarks == ["its certificate says violated: promised_starts"]
        assert {problem.check for problem in finding.problems} == {RoundCheck.DECISION}


@pytest.mark.parametrize("begin_us", [BEGIN_US, BEFORE_MIDNIGHT_US])
def test_promise_changed_between_rounds_is_reported(begin_us: int) -> None:
    """The changed round is decided and certified again, so it contradicts only its neighbours."""
    pool = StagedPool(made(begin_us))
    index = promising(pool)
    snapshot = pool.rounds[index].snapshot
    memory = snapshot.memory | {"promises": later(snapshot, snapshot.memory["promises"])}
    pool.rounds[index] = decided(replace(snapshot, memory=memory))
    pool.seal()
    texts = wrong(verified(pool))
    assert texts[snapshot.number] == follows(MEMORY.format(snapshot.number - 1))
