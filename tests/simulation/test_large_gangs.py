"""Gangs over several nodes under evenshare, with skipped rounds and kept queues."""

from __future__ import annotations

import random
from typing import Any

import pytest

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.reasons import EndReason
from evenshare_core.simulation.fast_forward import Rounds
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import HOUR_US, SECOND_US

# Only gangs that overtake may end other jobs' leases before they expire.
ALONE = {"promises": False, "pays": False, "guarantee": False}


def drawn(seed: int, options: dict[str, Any], lease_s: int) -> SimulationState:
    """Return five nodes for five hours, with long jobs on one node and gangs on two to four."""
    rng = random.Random(f"large gangs {seed}")  # noqa: S311 - a test's seed
    jobs = []
    for number in range(1, 41):
        is_large = number % 4 == 0
        jobs.append(
            SimJob(
                id=number,
                tenant=rng.randint(1, 3),
                gpus=rng.choice((12, 16, 20, 32)) if is_large else rng.choice((1, 2, 4, 8, 8)),
                submitted_us=rng.randrange(2 * 3600) * SECOND_US,
                duration_us=rng.randrange(600, 4 * 3600) * SECOND_US,
                weight=rng.choice((1, 1, 3)),
            )
        )
    jobs.sort(key=lambda job: (job.submitted_us, job.id))
    quotas = tuple(Entitlement(tenant, "v100", gpus) for tenant, gpus in ((1, 8), (2, 20), (3, 12)))
    cluster = Cluster(make_nodes({"v100": 5}, 8), quotas)
    rules = Rules("evenshare", options, 10 * SECOND_US, lease_s * SECOND_US, cold_us=20 * SECOND_US)
    return SimulationState(cluster, tuple(jobs), rules)


def played(
    seed: int, options: dict[str, Any], lease_s: int, *, kept: bool = True
) -> tuple[SimulationState, SimulationResult]:
    """Run a random pool for five hours; without `kept`, each round uses a snapshot."""
    state = drawn(seed, options, lease_s)
    result = SimulationResult(state.books, 0, 0)
    if kept:
        run(state, result, until_us=5 * HOUR_US)
        return state, result
    rounds = Rounds(state, fast_forward=False)
    for number in range(5 * 3600 // 10 + 1):
        state.advance(number * 10 * SECOND_US)
        if not state.is_quiet:
            rounds.run()
    return state, result


CASES = [
    (ALONE, 900),
    (ALONE, 3600),
    ({"promises": False}, 3600),
    ({"promises": False, "preset": "tight"}, 3600),
    ({"min_runtime_s": 1200, "window_s": 600}, 5400),
    ({**ALONE, "estimates": "given"}, 900),
]


class TestLargeGangs:
    @pytest.mark.parametrize(("options", "lease_s"), CASES)
    def test_skipped_rounds_keep_books(
        self, options: dict[str, Any], lease_s: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        skipped = 0
        for seed in range(2):
            state, result = played(seed, options, lease_s)
            with monkeypatch.context() as patch:
                patch.setattr(Rounds, "pass_over", lambda *_: 0)
                whole, _ = played(seed, options, lease_s)
            assert state.books.sha256() == whole.books.sha256()
            assert state.memory == whole.memory
            skipped += result.rounds - len(result.decide_s)
        assert skipped > 0 or "estimates" in options

    @pytest.mark.parametrize(("options", "lease_s"), CASES)
    def test_kept_queues_match_snapshots(self, options: dict[str, Any], lease_s: int) -> None:
        state, _ = played(1, options, lease_s)
        asked, _ = played(1, options, lease_s, kept=False)
        assert state.books.sha256() == asked.books.sha256()

    @pytest.mark.parametrize("estimates", ["none", "given"])
    def test_preempt_unexpired_leases(self, estimates: str) -> None:
        """This shows that gangs overtake in the runs of the previous test."""
        options = {**ALONE, "estimates": estimates}
        ended = [row.reason for row in played(0, options, 3600)[0].books.leases]
        assert ended.count(EndReason.PREEMPTED.value) > 5
        off = {**options, "gangs_overtake": False}
        ended = [row.reason for row in played(0, off, 3600)[0].books.leases]
        assert EndReason.PREEMPTED.value not in ended


class TestGangWithRoom:
    """Rule 3 does not place a gang if a smaller gang did not fit earlier in the round."""

    def started_s(self) -> int | None:
        """Return the start of the gang, in seconds.

        Each of three nodes has 3 free GPUs, so a gang of 4 fits nowhere, but a gang of 9 fits on
        all of them. Tenant 2 held the pool before, so tenant 1's job is tried first, until the
        order of keys reverses.
        """
        rows = [(2, 24, 0), (1, 5, 1), (1, 5, 1), (3, 5, 1), (1, 4, 620), (2, 9, 620)]
        jobs = tuple(
            SimJob(number, tenant, gpus, at_s * SECOND_US, (9000 if at_s else 600) * SECOND_US)
            for number, (tenant, gpus, at_s) in enumerate(rows, 1)
        )
        quotas = tuple(Entitlement(tenant, "v100", 8) for tenant in (1, 2, 3))
        cluster = Cluster(make_nodes({"v100": 3}, 8), quotas)
        options = {**ALONE, "gangs_overtake": False, "moves_per_round": 0}
        state = SimulationState(
            cluster, jobs, Rules("evenshare", options, 10 * SECOND_US, 9000 * SECOND_US)
        )
        run(state, SimulationResult(state.books, 0, 0), until_us=2 * HOUR_US)
        started_us = state.runs[6].started_us
        return None if started_us is None else started_us // SECOND_US

    def test_starts_when_order_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.started_s()
        with monkeypatch.context() as patch:
            patch.setattr(Rounds, "pass_over", lambda *_: 0)
            asked = self.started_s()
        assert found == asked
        assert found is not None
        assert found > 1000
