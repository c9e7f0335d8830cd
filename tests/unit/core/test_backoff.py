"""Test the back-off of a job whose process is lost repeatedly, and its effect on rounds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.backoff import (
    LIMIT,
    LONGEST_US,
    STEADY_US,
    Backoff,
    is_given_up,
    losses_after,
    wait_us,
)
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.fairness.certificate import Verdict
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.outlook import go_on
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.units import SECOND_US
from tests.unit.core.snapshots import AT_US, job, snapshot

S = SECOND_US


class TestBackoffRule:
    """Waits are in seconds. The loss of a process after STEADY_US does not count."""

    @pytest.mark.parametrize(
        ("losses", "wait_s"),
        [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (10**6, 300)],
    )
    def test_doubles_wait_up_to_limit(self, losses: int, wait_s: int) -> None:
        assert wait_us(losses) == wait_s * S

    @pytest.mark.parametrize(
        ("losses", "held_us", "after"),
        [
            (0, 0, 1),
            (0, STEADY_US - 1, 1),
            (0, STEADY_US, 0),
            (3, 5 * S, 4),
            (5, STEADY_US, 0),
            (5, 0, 6),
        ],
    )
    def test_counts_only_losses_soon_after_start(
        self, losses: int, held_us: int, after: int
    ) -> None:
        assert losses_after(losses, held_us) == after

    def test_gives_up_after_limit_of_consecutive_losses(self) -> None:
        assert [n for n in range(9) if is_given_up(n)] == [*range(LIMIT, 9)]
        assert wait_us(LIMIT - 1) < LONGEST_US, "a job that is given up never waited the longest"


def barred(until_us: int, policy: str = "ltgf", **fields: Any) -> Snapshot:
    """Return a round of two jobs that both fit; the process of the first was lost twice."""
    jobs = [job(1, 4), job(2, 4)]
    rest: dict[str, Any] = {"policy": policy, "policy_version": POLICIES[policy].version, **fields}
    return snapshot(jobs, nodes={1: 8}, backoffs=(Backoff(1, until_us, 2),), schema=3, **rest)


class TestRound:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_every_policy_skips_job_during_backoff(self, policy: str) -> None:
        decision = decide_round(barred(AT_US + 1, policy))
        assert [grant.job for grant in decision.grants] == [2]
        (skip,) = decision.skips
        assert (skip.reason, skip.jobs, skip.gpus) == (Reason.BACKING_OFF, (1,), 4)
        assert skip.numbers == {"losses": 2, "limit": LIMIT, "until_us": AT_US + 1}
        again = decide_round(barred(AT_US, policy))
        assert sorted(grant.job for grant in again.grants) == [1, 2]

    def test_grant_during_backoff_is_invariant_violation(self) -> None:
        snap = barred(AT_US + 1)
        free = decide_round(replace(snap, backoffs=()))
        found = violations(snap, free)
        assert ("jobs", "job 1 may not start yet") in [(row.rule, row.detail) for row in found]

    def test_certificate_has_no_violation_during_backoff(self) -> None:
        """A GPU may stay free while the only waiting job is in a back-off."""
        snap = barred(AT_US + 1)
        found = certify_round(snap, decide_round(snap))
        assert not found.failure
        assert [row.name for row in found.findings if row.verdict is Verdict.VIOLATED] == []

    def test_ignores_backoff_of_absent_job(self) -> None:
        snap = barred(AT_US + 1)
        snap = replace(snap, jobs=snap.jobs[1:], backoffs=(*snap.backoffs, Backoff(9, 10**9, 1)))
        assert [grant.job for grant in decide_round(snap).grants] == [2]


class TestSnapshotBytes:
    def test_snapshot_without_backoffs_keeps_old_encoding(self) -> None:
        plain = replace(barred(0), backoffs=(), schema=2)
        data = canonical_bytes(plain)
        fields = Snapshot.__struct_fields__
        count = len(Snapshot.newest)
        assert fields[-count:] == Snapshot.newest
        values = [getattr(plain, name) for name in fields[:-count]]
        assert data == b"[" + b",".join(canonical_bytes(value) for value in values) + b"]"
        assert decode(data, Snapshot) == plain
        assert canonical_bytes(decide_round(plain)) == canonical_bytes(
            decide_round(decode(data, Snapshot))
        )

    def test_snapshot_with_backoffs_round_trips(self) -> None:
        snap = barred(AT_US + 1)
        assert decode(canonical_bytes(snap), Snapshot) == snap
        assert canonical_bytes(snap).endswith(b",[[1,10001,2]]]")


class TestSimulation:
    """Simulations from a pool's current state, with the policy's kept queues or `decide_round`."""

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    @pytest.mark.parametrize("fast_forward", [True, False])
    def test_starts_job_in_first_round_after_backoff(
        self, policy: str, *, fast_forward: bool
    ) -> None:
        until_us = AT_US + 25 * S
        snap = replace(barred(until_us, policy), round_us=10 * S)
        start = Start(snap, {1: Work(60 * S), 2: Work(60 * S)})
        state = PresentState(start)
        result = SimulationResult(state.books, 0, 0)
        run(state, result, until_us=500 * S, fast_forward=fast_forward)
        begun = {row.job: row.start_us for row in state.books.leases}
        assert begun[1] >= until_us > begun[2]
        assert begun[1] - until_us < 10 * S, "in the next round of the grid"
        assert not go_on(PresentState(start), until_us=500 * S).stranded
