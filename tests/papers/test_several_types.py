"""Jobs that accept several GPU types: each type is tried, and the type that is held counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.simulator import SimulationResult, run, simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob
from evenshare_core.units import SECOND_US

pytestmark = pytest.mark.usefixtures("quick_plans")

MINUTE_US = 60 * SECOND_US
ANY: tuple[str, ...] = ()
# Policies, with options, that leave no GPU idle if a waiting job accepts its type.
CONSERVING: list[tuple[str, dict[str, Any]]] = [
    ("ltgf", {"reserve_after_leases": 0}),
    ("fifo", {"backfill": True, "whole_nodes": False}),
    ("sjf", {"backfill": True, "whole_nodes": False}),
    ("srtf", {}),
]


def cluster(*sizes: tuple[str, int], quotas: dict[tuple[int, str], int]) -> Cluster:
    return Cluster(
        tuple(Node(index, *size) for index, size in enumerate(sizes, start=1)),
        tuple(Entitlement(*key, gpus) for key, gpus in sorted(quotas.items())),
    )


def job(id_: int, gpus: int, minutes: float, tenant: int = 1, **fields: Any) -> SimJob:
    return SimJob(id_, tenant, gpus, 0, int(minutes * MINUTE_US), **fields)


def mixed(seed: int, hours: int = 2) -> tuple[Cluster, tuple[SimJob, ...]]:
    """Draw a pool of three types, random quotas, and jobs that accept one, some or all types."""
    rng = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    types = ("k80", "p100", "v100")
    nodes = [(name, 8) for name in types] + [(name, 4) for name in types if rng.random() < 0.5]
    quotas = {
        (tenant, name): rng.randrange(1 + sum(size for kind, size in nodes if kind == name))
        for tenant in (1, 2, 3)
        for name in types
    }
    jobs = []
    for index in range(1, 90):
        accepted = rng.choice((ANY, ANY, types[:2], types[1:], (rng.choice(types),)))
        submitted_us = rng.randrange(hours * 3600) * SECOND_US
        duration_us = rng.randint(1, 40) * MINUTE_US
        jobs.append(
            SimJob(
                index, rng.randint(1, 3), rng.choice((1, 1, 2, 4, 8)), submitted_us, duration_us,
                accepted, rng.choice((1, 2)), estimate_us=rng.choice((None, duration_us)),
            )
        )  # fmt: skip
    jobs.sort(key=lambda row: row.submitted_us)
    jobs = [SimJob(i, *tuple(getattr(row, n) for n in FIELDS)) for i, row in enumerate(jobs, 1)]
    return cluster(*nodes, quotas=quotas), tuple(jobs)


FIELDS = ("tenant", "gpus", "submitted_us", "duration_us", "gpu_types", "weight")


def rounds(
    pool: Cluster, jobs: Sequence[SimJob], rules: Rules
) -> Iterator[tuple[Snapshot, Decision, SimulationState]]:
    """Yield rounds until all jobs have ended, each with the state before its decision."""
    state = SimulationState(pool, tuple(jobs), rules)
    at_us = 0
    while state.runs or not state.events.is_over:
        state.advance(at_us)
        snapshot = state.snapshot()
        decision = decide_round(snapshot)
        yield snapshot, decision, state
        state.apply(decision)
        at_us += rules.round_us
        assert at_us < 24 * 3600 * SECOND_US


class TestTypeSelection:
    @pytest.mark.parametrize("policy", ["ltgf", "fifo", "sjf", "srtf", "yarn_cs"])
    @pytest.mark.parametrize("tenants", [(1, 1), (1, 2)])
    def test_gangs_of_any_type_use_both_types(self, policy: str, tenants: tuple[int, int]) -> None:
        """Regression: the jobs used K80s only and ended at 470 and 480 minutes, not both at 240."""
        quotas = {(tenant, name): 4 for tenant in set(tenants) for name in ("k80", "v100")}
        if tenants == (1, 2):
            quotas = dict.fromkeys(quotas, 2)
        pool = cluster(("k80", 4), ("v100", 4), quotas=quotas)
        jobs = tuple(job(i, 4, 240, tenant) for i, tenant in enumerate(tenants, start=1))
        books = simulate(pool, jobs, Rules(policy, round_us=10 * SECOND_US)).books
        assert {row.end_us for row in books.jobs} == {240 * MINUTE_US}
        assert {row.gpu_type for row in books.leases} == {"k80", "v100"}

    @pytest.mark.parametrize("policy", [name for name, _ in CONSERVING])
    def test_job_uses_own_quota_before_borrowing(self, policy: str) -> None:
        """The job's tenant has a quota of V100s only, so it would have to borrow K80s."""
        pool = cluster(("k80", 4), ("v100", 4), quotas={(1, "v100"): 4, (2, "k80"): 4})
        jobs = (job(1, 2, 30), job(2, 2, 30), job(3, 2, 30))
        (first, *_) = rounds(pool, jobs, Rules(policy, round_us=10 * SECOND_US))
        got = Counter({row.gpu_type: 0 for row in first[1].grants})
        got.update({"v100": 0, "k80": 0})
        for row in first[1].grants:
            got[row.gpu_type] += row.own
        assert got == {"v100": 4, "k80": 0}
        assert sorted(row.borrowed for row in first[1].grants) == [0, 0, 2]

    @pytest.mark.parametrize("policy", ["ltgf", "srtf"])
    def test_job_stays_on_its_type(self, policy: str) -> None:
        pool = cluster(("k80", 4), ("v100", 4), quotas={(1, "k80"): 4, (2, "v100"): 4})
        jobs = (job(1, 4, 200), job(2, 4, 200, tenant=2))
        rules = Rules(policy, round_us=10 * SECOND_US, lease_us=10 * MINUTE_US)
        books = simulate(pool, jobs, rules).books
        assert len(books.leases) == 2  # every lease was renewed

    def test_job_continues_on_other_type_after_losing_gpus(self) -> None:
        """A job loses its K80s to their owner, whose own job can run on K80s only."""
        pool = cluster(("k80", 4), ("v100", 4), quotas={(2, "k80"): 4, (3, "v100"): 4})
        jobs = (
            job(1, 4, 60, tenant=1),
            job(2, 4, 5, tenant=3, gpu_types=("v100",)),
            SimJob(3, 2, 4, MINUTE_US, 60 * MINUTE_US, ("k80",)),
        )
        rules = Rules("ltgf", round_us=10 * SECOND_US, lease_us=10 * MINUTE_US)
        books = simulate(pool, jobs, rules).books
        mine = [row.gpu_type for row in books.leases if row.job == 1]
        assert mine == ["k80", "v100"]
        assert {row.job: row.end_us for row in books.jobs}[1] == 60 * MINUTE_US

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize(("policy", "options"), CONSERVING, ids=lambda one: str(one)[:9])
    def test_starts_job_if_an_accepted_type_has_room(
        self, policy: str, options: dict[str, Any], seed: int
    ) -> None:
        pool, jobs = mixed(seed)
        rules = Rules(policy, options, round_us=60 * SECOND_US, lease_us=7 * MINUTE_US)
        waits = 0
        for snapshot, decision, _ in rounds(pool, jobs, rules):
            gone = {end.lease for end in decision.ends}
            free = {node.id: node.gpus for node in snapshot.nodes}
            places = [row.placement for row in snapshot.leases if row.id not in gone]
            for place in [*places, *(grant.placement for grant in decision.grants)]:
                for node, gpus in place:
                    free[node] -= gpus
            known = {row.id: row for row in snapshot.jobs}
            for one in [known[key] for skip in decision.skips for key in skip.jobs]:
                waits += 1
                for home in snapshot.nodes:
                    accepts = not one.gpu_types or home.gpu_type in one.gpu_types
                    assert not accepts or free[home.id] < one.gpus, (one, home)
        assert waits > 20

    def test_gang_too_large_for_claimed_type_waits_for_other(self) -> None:
        pool = cluster(("k80", 2), ("v100", 4), quotas={(1, "k80"): 2, (1, "v100"): 4})
        jobs = (job(1, 4, 10, gpu_types=("v100",)), job(2, 4, 10))
        (first, *_) = rounds(pool, jobs, Rules("ltgf", round_us=10 * SECOND_US))
        (skip,) = first[1].skips
        assert skip.reason is Reason.LEASE_TURN
        assert skip.numbers["gpu_type"] == "v100"
        assert skip.numbers["other_types"] == ["k80"]

    @pytest.mark.parametrize("policy", [*(name for name, _ in CONSERVING), "yarn_cs"])
    def test_limit_on_one_type_is_not_the_reason_if_other_is_allowed(self, policy: str) -> None:
        """All jobs wait for V100s, as the tenant has no quota of K80s and may not borrow them."""
        quotas = (Entitlement(1, "k80", 0, Mode.LEND), Entitlement(1, "v100", 4))
        pool = Cluster((Node(1, "k80", 4), Node(2, "v100", 4)), quotas)
        jobs = (job(1, 4, 30, gpu_types=("v100",)), job(2, 4, 30), job(3, 2, 30))
        decisions = [
            row for _, row, _ in rounds(pool, jobs, Rules(policy, round_us=10 * SECOND_US))
        ]
        skips = [row for row in decisions[1].skips if row.numbers.get("other_types")]
        assert {key for row in skips for key in row.jobs} == {2, 3}
        for row in skips:
            assert row.reason is not Reason.QUOTA_LIMIT
            assert (row.numbers["gpu_type"], row.numbers["other_types"]) == ("v100", ["k80"])


class TestStarvedGang:
    def test_reserves_type_allowed_by_limits(self) -> None:
        """The gang claims K80s, but its tenant may not borrow them; V100s become free one by one.

        Regression: K80s were held back forever, so the gang never started.
        """
        quotas = (
            Entitlement(1, "k80", 4, Mode.LEND),
            Entitlement(1, "v100", 8),
            Entitlement(2, "v100", 8),
        )
        nodes = (Node(1, "k80", 8), Node(2, "v100", 8), Node(3, "v100", 8))
        long, gang = 60, job(7, 8, 10, gpu_types=("k80", "v100"))
        steady = [job(i, 1, long, gpu_types=("v100",)) for i in range(1, 7)]
        others = [
            SimJob(i, 2, 1, max(0, i - 24) * 40 * SECOND_US, (1 + i % 7) * MINUTE_US, ("v100",))
            for i in range(8, 100)
        ]
        rules = Rules("ltgf", round_us=20 * SECOND_US, lease_us=3 * MINUTE_US)
        notes, held_back = [], set()
        for _, decision, _ in rounds(Cluster(nodes, quotas), (*steady, gang, *others), rules):
            held_back |= {
                name
                for name, row in decision.memory.get("reserved", {}).items()
                if row["job"] == gang.id
            }
            notes += [row.key.note for row in decision.grants if row.job == gang.id]
        assert held_back == {"v100"}
        assert notes[0] == "reserved"


class TestReceivedSums:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_gpu_time_by_type_matches_leases(self, policy: str) -> None:
        """GPU-time counts for the type that is held, and demand is counted once per round.

        Regression: `oef` counted only 400 of 1,470 V100 GPU-minutes.
        """
        pool, jobs = self.with_a_lost_node(5)
        played = list(rounds(pool, jobs, self.rules(policy)))
        for snapshot, decision, _ in played:
            self.assert_demand_is_counted_once(snapshot, decision)
        _, _, state = played[-1]
        self.assert_sums_are_those_of_leases(state, jobs)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(
        "policy", sorted(name for name, one in POLICIES.items() if one.session({}) is not None)
    )
    def test_gpu_time_matches_leases_with_skipped_rounds(self, policy: str, seed: int) -> None:
        pool, jobs = self.with_a_lost_node(seed)
        state = SimulationState(pool, tuple(jobs), self.rules(policy))
        run(state, SimulationResult(state.books, 0, 0))
        self.assert_sums_are_those_of_leases(state, jobs)

    @staticmethod
    def rules(policy: str) -> Rules:
        return Rules(policy, round_us=60 * SECOND_US, lease_us=7 * MINUTE_US)

    @staticmethod
    def with_a_lost_node(seed: int) -> tuple[Cluster, tuple[SimJob, ...]]:
        pool, jobs = mixed(seed)
        lost = (NodeChange(40 * MINUTE_US, 1, 0), NodeChange(50 * MINUTE_US, 1, 8))
        return Cluster(pool.nodes, pool.quotas, changes=lost), jobs

    @staticmethod
    def assert_sums_are_those_of_leases(state: SimulationState, jobs: Sequence[SimJob]) -> None:
        held: Counter[tuple[int, str]] = Counter()
        tenants = {one.id: one.tenant for one in jobs}
        for row in state.books.leases:
            gpus = sum(count for _, count in row.placement)
            held[tenants[row.job], row.gpu_type] += gpus * (row.end_us - row.start_us)
        told = {
            (row.tenant, row.gpu_type): row.alloc_gpu_us
            for row in state.service.claims
            if row.alloc_gpu_us
        }
        assert told == {key: value for key, value in held.items() if value}
        assert not any(row.demand or row.weights for row in state.service.claims)

    @staticmethod
    def assert_demand_is_counted_once(snapshot: Snapshot, decision: Decision) -> None:
        service = decision.service
        asked: Counter[int] = Counter()
        for one in snapshot.jobs:
            asked[one.tenant] += one.gpus
        demand: Counter[int] = Counter()
        for row in service.claims:
            demand[row.tenant] += row.demand
        assert +demand == +asked
        claimed = {row.job: row.gpu_type for row in service.jobs}
        assert all(claimed[row.job] == row.gpu_type for row in snapshot.leases)

    def test_policy_switch_serves_least_received_first(self) -> None:
        """Regression: sums were wrong if jobs that claim K80s had been given V100s."""
        pool = cluster(("k80", 4), ("v100", 4), quotas={
            (1, "k80"): 2, (1, "v100"): 2, (2, "k80"): 2, (2, "v100"): 2})  # fmt: skip
        jobs = [job(i, 4, 400, tenant=1 + i % 2) for i in range(1, 5)]
        state = SimulationState(pool, tuple(jobs), Rules("fifo", round_us=10 * SECOND_US))
        for minute in range(120):
            state.advance(minute * MINUTE_US)
            state.apply(decide_round(state.snapshot()))
        leases = {row.job: row.gpu_type for row in state.leases.values()}
        sums = {row.job: row for row in state.service.jobs}
        assert leases == {key: sums[key].gpu_type for key in leases}
        switched = replace(state.snapshot(), policy="ltgf", policy_version="", memory={})
        order = [row.job for row in decide_round(switched).service.jobs if row.held]
        assert sorted(order) == sorted(leases)
