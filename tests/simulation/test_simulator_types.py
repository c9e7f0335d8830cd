"""Test every policy on GPU types of different speed, and the resulting sums."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.lenders import Lender, lenders_of, revenue_fairness
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.simulator import ConservationError, check_conservation, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.throughputs import read_speeds
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob, make_nodes, synthetic
from evenshare_core.units import HOUR_US, SECOND_US

pytestmark = pytest.mark.usefixtures("quick_plans")

DATA = Path(__file__).resolve().parents[1] / "data"
MINUTE_US = 60 * SECOND_US


def mixed(*, everywhere: bool = False) -> Scenario:
    """Return jobs of measured models on three types; some fail, and some are cancelled.

    With `everywhere`, only models that run on every type are used, so that no job names types.
    """
    with (DATA / "gavel_slice.csv").open() as file:
        speeds = read_speeds(file)
    models = [name for name in speeds.models if not everywhere or "size 128" not in name]
    work = synthetic(seed=5, jobs=50, tenants=4, hours=2, failed=0.1, cancelled=0.1, models=models)
    small = tuple(
        replace(job, gpus=min(job.gpus, 4), duration_us=min(job.duration_us, HOUR_US))
        for job in work.jobs
    )
    nodes = make_nodes({"k80": 2, "p100": 1, "v100": 1}, 4)
    return Scenario.make(replace(work, jobs=small), nodes, {}, {}, 4, measured=speeds)


MIXED, EVERYWHERE = mixed(), mixed(everywhere=True)
GRID = Rules(round_us=20 * SECOND_US, lease_us=5 * MINUTE_US, cold_us=7 * SECOND_US)


@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestMeasuredSpeeds:
    def test_skipping_quiet_rounds_keeps_books(self, policy: str) -> None:
        """Nodes are lost and return. `simulate` checks that both runs conserve work."""
        lost = [
            NodeChange(hour * HOUR_US + 1, node.id, gpus)
            for hour, gpus in ((1, 0), (2, 4))
            for node in MIXED.cluster.nodes[::2]
        ]
        cluster = replace(MIXED.cluster, changes=tuple(lost))
        rules = replace(GRID, policy=policy, checkpoint_us=SECOND_US)
        some = simulate(cluster, MIXED.workload.jobs, rules)
        every = simulate(cluster, MIXED.workload.jobs, rules, skip=False, fast_forward=False)
        assert some.books.sha256() == every.books.sha256()
        assert some.books.earned == every.books.earned
        assert some.books.contributed() == every.books.contributed()
        assert some.rounds < every.rounds
        assert any(row.reason == "node_lost" for row in some.books.leases)
        assert not some.stranded


class TestFastForward:
    @pytest.mark.parametrize(
        "policy", sorted(name for name, policy in POLICIES.items() if policy.session({}))
    )
    def test_books_match_full_run_without_job_types(self, policy: str) -> None:
        rules = replace(GRID, policy=policy)
        cluster, jobs = EVERYWHERE.cluster, EVERYWHERE.workload.jobs
        assert any(job.gpu_types for job in MIXED.workload.jobs)
        assert not any(job.gpu_types for job in jobs)
        found = simulate(cluster, jobs, rules)
        asked = simulate(cluster, jobs, rules, fast_forward=False)
        assert found.books.sha256() == asked.books.sha256()
        assert found.books.contributed() == asked.books.contributed()

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_does_not_start_job_on_unlisted_type(self, policy: str) -> None:
        cluster = Cluster((Node(1, "v100", 2),), (Entitlement(1, "v100", 2),))
        jobs = (SimJob(1, 1, 1, 0, SECOND_US, ("k80",)),)
        assert simulate(cluster, jobs, Rules(policy)).stranded == (1,)


class TestWork:
    """Work is useful time x speed.

    Each lease is rounded down, and a job's last lease up to a microsecond.
    """

    THIRDS = Profile(1, 1, (("k80", 1000), ("v100", 3000)))

    def two(self) -> tuple[Cluster, tuple[SimJob, ...]]:
        nodes = (Node(1, "v100", 1),)
        cluster = Cluster(nodes, (Entitlement(1, "v100", 1),), profiles={1: self.THIRDS})
        jobs = tuple(SimJob(id_, 1, 1, 0, 100_000_001, profile=1) for id_ in (1, 2))
        return cluster, jobs

    def test_moved_job_conserves_work(self) -> None:
        cluster, jobs = self.two()
        rules = Rules("ltgf", lease_us=10 * SECOND_US, round_us=SECOND_US, cold_us=SECOND_US)
        outcome = simulate(cluster, jobs, rules)
        assert max(row.number for row in outcome.books.leases) > 1
        assert all(row.useful_us == 100_000_001 for row in outcome.books.jobs)
        useful = sum(row.end_us - row.start_us - row.overhead_us for row in outcome.books.leases)
        assert useful == 2 * -(-100_000_001 // 3)

    @pytest.mark.parametrize("less_us", [-1, 1])
    def test_check_detects_lost_work(self, less_us: int) -> None:
        cluster, jobs = self.two()
        outcome = simulate(cluster, jobs, Rules("fifo"))
        row = outcome.books.leases[-1]
        outcome.books.leases[-1] = row._replace(overhead_us=row.overhead_us + less_us)
        with pytest.raises(ConservationError, match="worked"):
            check_conservation(outcome, cluster, jobs)

    def test_check_covers_every_type_of_mixed_pool(self) -> None:
        outcome = simulate(MIXED.cluster, MIXED.workload.jobs, GRID)
        assert {row.gpu_type for row in outcome.books.leases} == {"k80", "p100", "v100"}
        slower = {key: replace_speed(row) for key, row in MIXED.cluster.profiles.items()}
        with pytest.raises(ConservationError, match="worked"):
            check_conservation(
                outcome, replace(MIXED.cluster, profiles=slower), MIXED.workload.jobs
            )


def replace_speed(profile: Profile) -> Profile:
    speedups = tuple((name, speed + 1) for name, speed in profile.speedups)
    return Profile(profile.id, profile.tenant, speedups)


class TestRevenueFairness:
    """Two lenders have equal idle quota; it earns more while more GPUs are borrowed."""

    QUOTAS = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4))
    CLUSTER = Cluster((Node(1, "v100", 8),), QUOTAS)

    def test_is_one_if_income_follows_contribution(self) -> None:
        jobs = (SimJob(1, 1, 4, 0, 2 * HOUR_US), SimJob(2, 1, 2, SECOND_US, HOUR_US))
        books = simulate(self.CLUSTER, jobs, Rules("fifo", lease_us=10 * HOUR_US)).books
        (row,) = lenders_of(books)
        assert (row.tenant, row.gpu_type) == (2, "v100")
        assert row.alpha == Fraction(1)
        assert row.contributed_gpu_us == 4 * HOUR_US
        assert row.earned_micro == books.charged[1] > 0
        assert revenue_fairness([row]) == 1

    def test_falls_with_misallocated_income(self) -> None:
        rows = [(1, 30, 60), (2, 10, 20), (3, 60, 20)]  # (tenant, contributed, earned)
        lenders = [Lender("v100", tenant, gave, got, None) for tenant, gave, got in rows]
        assert revenue_fairness(lenders) == pytest.approx(0.3 + 0.1 + 0.2)

    def test_weights_types_by_revenue(self) -> None:
        lenders = [
            Lender("k80", 1, 10, 90, None),
            Lender("v100", 1, 10, 10, None),
            Lender("v100", 2, 10, 0, None),
        ]
        assert revenue_fairness(lenders) == pytest.approx(0.9 * 1 + 0.1 * 0.5)

    def test_counts_idle_quota_only_while_gpus_are_borrowed(self) -> None:
        jobs = (
            SimJob(1, 1, 4, 0, HOUR_US),  # within own quota
            # borrows the other tenant's whole quota for half an hour
            SimJob(2, 1, 4, SECOND_US, HOUR_US // 2),
        )
        books = simulate(self.CLUSTER, jobs, Rules("fifo", lease_us=10 * HOUR_US)).books
        assert [row.contributed_gpu_us for row in lenders_of(books)] == [4 * HOUR_US // 2]

    def test_is_none_without_lending(self) -> None:
        jobs = (SimJob(1, 1, 4, 0, HOUR_US),)
        assert revenue_fairness(lenders_of(simulate(self.CLUSTER, jobs, Rules()).books)) is None
