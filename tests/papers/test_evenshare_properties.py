"""Evenshare over whole runs of random pools: invariants of rounds, and the value of a quota."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from benchmarks.ltgf_pool import advanced
from benchmarks.ltgf_pool import pool as busy_pool
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.fairness.gpu_time import ServiceView, deserved, job_received, received
from evenshare_core.placement.defragmentation import MOVABLE_GPUS, make_room
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.evenshare.options import RESTART_US
from evenshare_core.policies.evenshare.policy import POLICY
from evenshare_core.policies.evenshare.queues import LONG_GPU_US, remaining_us
from evenshare_core.policies.registry import options as options_of
from evenshare_core.policies.shared.preemption import (
    LeaseIndex,
    VictimRule,
    VictimSearch,
    fewest_victims,
)
from evenshare_core.policies.shared.several_nodes import clear_nodes
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import (
    Cluster,
    SimJob,
    make_nodes,
    quotas_by_demand,
    synthetic,
)
from evenshare_core.units import SECOND_US
from tests.papers.literal_evenshare import literal_fewest_victims, literal_search
from tests.patience import few, some
from tests.unit.core.snapshots import lease as lease_of

SEEDS = st.integers(0, 10**6)
ROUND_US = 20 * SECOND_US
ROUNDS = 150


def drawn(seed: int, sizes: tuple[int, ...]) -> tuple[Cluster, tuple[SimJob, ...]]:
    """Draw three nodes of 8, four tenants with uneven quotas, and more jobs than fit."""
    rng = random.Random(seed)  # noqa: S311 - a test's seed
    work = synthetic(seed=seed, jobs=90, tenants=4, hours=1)
    jobs = tuple(
        replace(
            job,
            gpus=rng.choice(sizes),
            duration_us=rng.choice((60, 300, 900, 3_600, 7_200)) * SECOND_US,
            estimate_us=rng.choice((60, 600, 3_600)) * SECOND_US,
        )
        for job in work.jobs
    )
    nodes = make_nodes({"v100": 3}, 8)
    quotas = quotas_by_demand(jobs, nodes)
    rng.shuffle(tenants := [row.tenant for row in quotas])
    swapped = (with_fields(row, tenant=tenant) for row, tenant in zip(quotas, tenants, strict=True))
    return Cluster(nodes, tuple(sorted(swapped, key=lambda row: row.tenant))), jobs


def played(
    seed: int, sizes: tuple[int, ...], **options: Any
) -> Iterator[tuple[Snapshot, Decision, SimulationState]]:
    """Yield every round of a run with its snapshot and decision; invariants are checked."""
    cluster, jobs = drawn(seed, sizes)
    rules = Rules("evenshare", options, ROUND_US, 600 * SECOND_US, cold_us=10 * SECOND_US)
    state = SimulationState(cluster, jobs, rules)
    for number in range(ROUNDS):
        state.advance(number * ROUND_US)
        asked = state.snapshot()
        decision = decide_round(asked)
        state.joined.clear()
        state.apply(decision)
        yield asked, decision, state


class TestPreemptionInvariants:
    @settings(max_examples=few())
    @given(SEEDS, st.sampled_from(["none", "given"]), st.sampled_from([60, 300]))
    def test_respects_minimum_runtime_and_payback_limits(
        self, seed: int, estimates: str, least_s: int
    ) -> None:
        for asked, decision, _ in played(
            seed, (1, 1, 1, 2, 4, 8), estimates=estimates, min_runtime_s=least_s
        ):
            leases = {row.id: row for row in asked.leases}
            jobs = {row.id: row for row in asked.jobs}
            sums = ServiceView(decision.service).jobs
            for row in decision.preemptions:
                ran_us = asked.at_us - leases[row.lease].started_us
                assert ran_us >= least_s * SECOND_US
            paid = [row for row in decision.preemptions if row.rule is PreemptionRule.PAYS]
            for job_id in {row.for_job for row in paid}:
                victims = [jobs[row.job] for row in paid if row.for_job == job_id]
                attained = [job_received(sums[job.id], asked.at_us) for job in victims]
                assert sum(job.gpus for job in victims) <= 2 * jobs[job_id].gpus
                if estimates == "none":
                    assert min(attained) > LONG_GPU_US
                else:
                    assert_it_pays(jobs[job_id], victims, attained)

    @settings(max_examples=few())
    @given(SEEDS, st.integers(0, 3), st.integers(0, 6))
    def test_moves_are_bounded_and_get_new_placement(
        self, seed: int, gangs: int, most: int
    ) -> None:
        for _, decision, _ in played(
            seed, (1, 1, 2, 4, 8), gangs_per_round=gangs, moves_per_round=most
        ):
            moved = [row for row in decision.preemptions if row.rule is PreemptionRule.DEFRAGMENT]
            assert len(moved) <= most
            assert len({row.for_job for row in moved}) <= gangs
            assert {row.job for row in moved} <= {row.job for row in decision.grants}

    @settings(max_examples=few())
    @given(SEEDS)
    def test_interrupted_jobs_still_progress(self, seed: int) -> None:
        """Livelock is impossible: a job interrupted n times has run for n minimum runtimes."""
        interrupted: Counter[int] = Counter()
        ended: dict[int, int] = {}
        for asked, decision, state in played(seed, (1, 1, 2, 4, 8), min_runtime_s=100):
            interrupted.update(row.job for row in decision.preemptions)
            sums = ServiceView(decision.service).jobs
            ended = {job: job_received(sums[job], asked.at_us) for job in sums}
            for job in asked.jobs:
                ran_us = ended[job.id] / job.gpus
                assert interrupted[job.id] * 100 * SECOND_US <= ran_us
            assert state.number <= ROUNDS + 1
        assert sum(interrupted.values())


class TestMultiNodeGangs:
    """Gangs that are larger than a node, without promised starts."""

    @settings(max_examples=few())
    @given(SEEDS, st.sampled_from(["none", "given"]))
    def test_preempt_only_long_jobs_above_share(self, seed: int, estimates: str) -> None:
        """Preempted jobs are of the gang's tenant, or their tenants keep min(demand, quota)."""
        for asked, decision, _ in played(
            seed, (1, 2, 8, 12, 16, 20), estimates=estimates, promises=False
        ):
            rows = [row for row in decision.preemptions if row.rule is PreemptionRule.GANG]
            leases = {row.id: row for row in asked.leases}
            sums = ServiceView(decision.service).jobs
            grants = {row.job: row for row in decision.grants}
            for row in rows:
                assert job_received(sums[row.job], asked.at_us) >= LONG_GPU_US
                nodes = dict(grants[row.for_job].placement)
                assert len(nodes) > 1
                assert leases[row.lease].placement[0][0] in nodes
            ended = {row.lease for row in decision.ends}
            held = Counter[int]()
            for lease in asked.leases:
                held[lease.tenant] += 0 if lease.id in ended else lease.gpus
            for grant in decision.grants:
                held[grant.tenant] += sum(gpus for _, gpus in grant.placement)
            shares = {row.tenant: min(row.demand, row.quota) for row in decision.service.claims}
            losers = {row.tenant for row in rows if row.tenant != row.for_tenant}
            assert all(held[tenant] >= shares[tenant] for tenant in losers)

    @settings(max_examples=some())
    @given(SEEDS, st.integers(9, 24))
    def test_start_once_running_jobs_are_long(self, seed: int, gpus: int) -> None:
        """A tenant without quota fills three nodes; its jobs of one GPU are long after 2,700 s."""
        rng = random.Random(seed)  # noqa: S311 - a test's seed
        sizes: list[int] = []
        while (left := 8 - sum(sizes) % 8) < 8 or sum(sizes) < 24:
            sizes.append(rng.choice([one for one in (1, 2, 4, 8) if one <= left]))
        jobs = [
            SimJob(number, 1, size, 0, 40_000 * SECOND_US)
            for number, size in enumerate(sizes, start=1)
        ]
        came_us = rng.randrange(4_000) * SECOND_US
        jobs.append(SimJob(len(jobs) + 1, 2, gpus, came_us, 40_000 * SECOND_US))
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 8))
        rules = Rules("evenshare", {"promises": False}, ROUND_US, 900 * SECOND_US)
        state = SimulationState(Cluster(make_nodes({"v100": 3}, 8), quotas), tuple(jobs), rules)
        started_us = None
        for number in range(400):
            state.advance(number * ROUND_US)
            decision = decide_round(state.snapshot())
            state.joined.clear()
            state.apply(decision)
            if any(row.job == len(jobs) for row in decision.grants):
                started_us = decision.at_us
                break
        assert started_us is not None
        assert started_us <= max(2_700 * SECOND_US, came_us) + ROUND_US

    @pytest.mark.parametrize("small", [1, 8])
    def test_share_pool_evenly_with_small_jobs(self, small: int) -> None:
        """Two tenants have half of the quota each and too much work, and each gets its half."""
        jobs = [SimJob(number, 1, 16, 0, 50_000 * SECOND_US) for number in (1, 2)]
        jobs += [
            SimJob(number, 2, small, 0, 50_000 * SECOND_US) for number in range(3, 3 + 64 // small)
        ]
        quotas = (Entitlement(1, "v100", 16), Entitlement(2, "v100", 16))
        rules = Rules("evenshare", {}, ROUND_US, 600 * SECOND_US)
        state = SimulationState(Cluster(make_nodes({"v100": 4}, 8), quotas), tuple(jobs), rules)
        for number in range(900):
            state.advance(number * ROUND_US)
            decision = decide_round(state.snapshot())
            state.joined.clear()
            state.apply(decision)
        for claim in decision.service.claims:
            assert received(claim, decision.at_us) > 0.9 * deserved(claim, decision.at_us)


def assert_it_pays(job: Job, victims: list[Job], attained: list[int]) -> None:
    """Check that the job saves more GPU-time than the preempted jobs lose."""
    left_us = [
        remaining_us(victim, gpu_us / victim.gpus)
        for victim, gpu_us in zip(victims, attained, strict=True)
    ]
    needs_us = remaining_us(job, 0) + RESTART_US
    assert job.gpus * min(left_us) > sum(victim.gpus for victim in victims) * needs_us


class TestQuota:
    """The guarantee of the first edition, without promised starts."""

    @settings(max_examples=few())
    @given(SEEDS)
    def test_tight_preset_grants_quota_in_time(self, seed: int) -> None:
        """A job of one GPU within its tenant's quota waits no longer than the minimum runtime."""
        options = options_of("evenshare", {"preset": "tight"})
        below_since: dict[int, int] = {}
        for asked, decision, state in played(seed, (1,), preset="tight", promises=False):
            held = Counter(row.tenant for row in state.leases.values())
            quotas = {row.tenant: row.gpus for row in asked.entitlements}
            waits = {state.jobs[job].tenant for job in state.queue}
            below = {tenant for tenant in waits if held[tenant] < quotas.get(tenant, 0)}
            below_since = {one: below_since.get(one, decision.at_us) for one in below}
            for since_us in below_since.values():
                assert decision.at_us - since_us < options.min_runtime_us + ROUND_US

    @settings(max_examples=few())
    @given(SEEDS)
    def test_standard_preset_grants_owed_quota_in_time(self, seed: int) -> None:
        options = options_of("evenshare", {})
        below_since: dict[int, int] = {}
        for asked, decision, state in played(seed, (1,), window_s=1_800, promises=False):
            held = Counter(row.tenant for row in state.leases.values())
            quotas = {row.tenant: row.gpus for row in asked.entitlements}
            waits = {state.jobs[job].tenant for job in state.queue}
            owed = set()
            rows = {row[0]: row for row in decision.memory["claims"]}
            for claim in decision.service.claims:
                row = rows[claim.tenant]
                received = row[2] + claim.alloc_gpu_us - row[4]
                deserved = row[3] + claim.fair_gpu_us - row[5]
                if 20 * received < 19 * deserved:
                    owed.add(claim.tenant)
            below = {one for one in waits & owed if held[one] < quotas.get(one, 0)}
            below_since = {one: below_since.get(one, decision.at_us) for one in below}
            for since_us in below_since.values():
                assert decision.at_us - since_us < options.min_runtime_us + ROUND_US


@st.composite
def nodes_with_leases(draw: st.DrawFn) -> tuple[dict[int, int], list[Any]]:
    """Draw nodes of 8 GPUs; return free GPUs by node, and leases on one node each."""
    free: dict[int, int] = {}
    leases: list[Any] = []
    for node in range(1, draw(st.integers(1, 6)) + 1):
        left = 8
        for gpus in draw(st.lists(st.sampled_from([1, 1, 2, 3, 4]), max_size=8)):
            if gpus <= left:
                number = len(leases) + 1
                tenant = draw(st.integers(1, 3))
                leases.append(lease_of(number, number, (node, gpus), tenant=tenant))
                left -= gpus
        free[node] = left
    return free, leases


class TestSearches:
    @given(nodes_with_leases(), st.integers(2, 8), st.integers(0, 8))
    def test_moves_make_room_without_overfilling_nodes(
        self, pool: tuple[dict[int, int], list[Any]], gpus: int, most: int
    ) -> None:
        free, leases = pool
        movable: dict[int, list[Any]] = {}
        for row in leases:
            if row.gpus <= MOVABLE_GPUS:
                movable.setdefault(row.placement[0][0], []).append(row)
        room = make_room(gpus, free, free, movable, most)
        if room is None:
            return
        assert len(room.moves) <= most
        homes = {row.id: row.placement[0] for row in leases}
        after = dict(free)
        for move in room.moves:
            assert homes[move.lease] == (room.node, move.gpus)
            assert move.to_node != room.node
            after[move.to_node] -= move.gpus
            after[room.node] += move.gpus
        assert min(after.values()) >= 0
        assert after[room.node] >= gpus
        for move in room.moves:  # no move can be left out
            assert after[room.node] - move.gpus < gpus

    @given(nodes_with_leases(), st.integers(1, 8), st.integers(0, 12))
    def test_finds_fewest_victims(
        self, pool: tuple[dict[int, int], list[Any]], gpus: int, spare: int
    ) -> None:
        free, leases = pool
        if any(count >= gpus for count in free.values()):
            return
        index = LeaseIndex()
        for row in leases:
            index.add(row)
        limits: dict[int, int | None] = {1: spare, 2: None, 3: 0}
        rule = VictimRule(gpus, limits.__getitem__, lambda row: float(row.id), 8)
        choice = fewest_victims(free, free, index, rule)
        assert VictimSearch(free, index, rule).best() == choice
        assert literal_fewest_victims(free, free, index, rule) == choice
        if choice is None:
            return
        cleared = choice[1]
        taken = [row.gpus for row in cleared.victims]
        assert {row.placement[0][0] for row in cleared.victims} == {cleared.node}
        assert {row.tenant for row in cleared.victims} <= {1, 2}
        assert sum(row.gpus for row in cleared.victims if row.tenant == 1) <= spare
        assert free[cleared.node] + sum(taken) >= gpus
        assert all(free[cleared.node] + sum(taken) - one < gpus for one in taken)

    @pytest.mark.parametrize(
        "options",
        [{}, {"estimates": "given"}, {"promises": False}, {"preset": "tight", "promises": False}],
    )
    def test_rounds_match_plain_search(self, options: dict[str, Any]) -> None:
        preempted = 0
        for seed in range(10):
            made = busy_pool(
                seed=seed, nodes=12, tenants=4, pending=60, fill=0.97, expired=0.1, limits=seed > 8,
                gpu_types=("k80", "v100") if seed % 3 == 0 else ("v100",), several=0.2,
            )  # fmt: skip
            ready = with_fields(advanced(made), policy="evenshare", options=options)
            found = POLICY.decide(ready)
            with literal_search():
                assert canonical_bytes(POLICY.decide(ready)) == canonical_bytes(found)
            preempted += len(found.preemptions)
        assert preempted > 20


class TestClearedNodes:
    @given(nodes_with_leases(), st.integers(9, 40), st.integers(0, 24))
    def test_fit_gang_without_needless_preemption(
        self, pool: tuple[dict[int, int], list[Any]], gpus: int, spare: int
    ) -> None:
        free, leases = pool
        by_node: dict[int, list[tuple[float, Any]]] = {}
        for row in leases:
            if row.tenant != 3:
                by_node.setdefault(row.placement[0][0], []).append((float(row.id), row))
        limits: dict[int, int | None] = {1: spare, 2: None}
        parts = clear_nodes(gpus, free, by_node, limits)
        own = sum(row.gpus for row in leases if row.tenant == 2)
        if parts is None:  # all available GPUs together are too few
            assert sum(free.values()) + own < gpus
            return
        assert sum(part.gpus for part in parts) == gpus
        assert len({part.cleared.node for part in parts}) == len(parts)
        lost = [row for part in parts for row in part.cleared.victims]
        assert sum(row.gpus for row in lost if row.tenant == 1) <= spare
        for part in parts:
            had = free[part.cleared.node] + part.taken
            assert 0 < part.gpus <= had
            for row in part.cleared.victims:
                assert row.placement[0][0] == part.cleared.node
                assert had - row.gpus < part.gpus


def test_generated_quotas_are_uneven() -> None:
    """With uneven quotas, some tenants are below their quota and others above it."""
    cluster, _ = drawn(7, (1,))
    assert len({row.gpus for row in cluster.quotas}) > 1
