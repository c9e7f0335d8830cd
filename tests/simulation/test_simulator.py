"""Test the simulator's promises: exact times, skipping, determinism, conservation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.simulator import (
    ConservationError,
    SimulationResult,
    check_conservation,
    simulate,
)
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import (
    Cluster,
    NodeChange,
    SimJob,
    make_nodes,
    quotas_by_demand,
    read_churn,
    synthetic,
)
from evenshare_core.units import SECOND_US
from tests.tiers import SITE_POLICIES

pytestmark = pytest.mark.usefixtures("quick_plans")

MINUTE_US = 60 * SECOND_US
WORK = synthetic(seed=7, jobs=120, tenants=4, hours=3, failed=0.1, cancelled=0.1)
NODES = make_nodes({"v100": 4}, 8)
CLUSTER = Cluster(NODES, quotas_by_demand(WORK.jobs, NODES))
GRID = Rules(round_us=10 * SECOND_US, lease_us=5 * MINUTE_US)
# A smaller case with nodes that are lost and return.
SOME = synthetic(seed=7, jobs=50, tenants=4, hours=2, failed=0.1, cancelled=0.2)
FEW = make_nodes({"v100": 3}, 8)
CHURN = ["time,active,total", *(f"{i},{9 - 3 * (i % 60 // 20)},9" for i in range(300))]
CHURNED = Cluster(FEW, quotas_by_demand(SOME.jobs, FEW), changes=read_churn(CHURN, FEW, seed=3))
COSTLY = replace(GRID, cold_us=30 * SECOND_US, checkpoint_us=2 * SECOND_US)


def one_job(cancel_us: int | None = None) -> tuple[SimJob, ...]:
    return (SimJob(1, 1, 2, 0, 100 * SECOND_US, cancel_us=cancel_us),)


def small(gpus: int = 2, **fields: object) -> Cluster:
    cluster = Cluster((Node(1, "v100", gpus),), (Entitlement(1, "v100", gpus),))
    return replace(cluster, **fields)  # type: ignore[arg-type]  # the test names the fields


def ends(result: SimulationResult) -> dict[int, int]:
    return {row.job: row.end_us // SECOND_US for row in result.books.jobs}


def assert_all_is_over(result: SimulationResult) -> None:
    assert not result.stranded
    states = {row.state for row in result.books.jobs}
    assert states == {"succeeded", "failed", "cancelled"}
    assert any(row.reason == "node_lost" for row in result.books.leases)


class TestInstants:
    def test_job_starts_at_round_and_ends_exactly(self) -> None:
        jobs = (replace(one_job()[0], submitted_us=13 * SECOND_US),)
        row = simulate(small(), jobs, GRID).books.leases[0]
        assert (row.start_us, row.end_us) == (20 * SECOND_US, 120 * SECOND_US)

    def test_job_starts_at_arrival_without_rounds(self) -> None:
        jobs = (replace(one_job()[0], submitted_us=13 * SECOND_US),)
        assert ends(simulate(small(), jobs, replace(GRID, round_us=0))) == {1: 113}

    def test_double_speed_halves_duration(self) -> None:
        assert ends(simulate(small(speeds={"v100": 2000}), one_job(), GRID)) == {1: 50}

    def test_checkpoints_cost_at_expiry_and_cold_starts_at_resume(self) -> None:
        jobs = (one_job()[0], replace(one_job()[0], id=2))
        rules = Rules(
            "srtf", lease_us=40 * SECOND_US, checkpoint_us=SECOND_US, cold_us=5 * SECOND_US
        )
        alone = simulate(small(), jobs[:1], rules)
        assert ends(alone) == {1: 102}  # two renewals cost a second each
        assert alone.books.leases[0].overhead_us == 2 * SECOND_US
        shared = simulate(small(), jobs, replace(rules, policy="ltgf", round_us=10 * SECOND_US))
        assert all(row.overhead_us >= SECOND_US for row in shared.books.leases[:-1])
        assert max(row.number for row in shared.books.leases) > 1

    def test_cancels_waiting_job_at_once_and_running_at_round(self) -> None:
        jobs = (
            one_job(cancel_us=33 * SECOND_US)[0],
            replace(one_job(cancel_us=12 * SECOND_US)[0], id=2),
        )
        assert ends(simulate(small(), jobs, GRID)) == {1: 40, 2: 12}

    def test_node_loss_requeues_jobs_from_last_checkpoint(self) -> None:
        changes = (
            NodeChange(50 * SECOND_US, 1, 0),
            NodeChange(80 * SECOND_US, 1, 2),
        )
        # this policy has no minimum runtime
        rules = replace(GRID, policy="ltgf", lease_us=20 * SECOND_US)
        result = simulate(small(changes=changes), one_job(), rules)
        assert [row.reason for row in result.books.leases] == ["node_lost", "finished"]
        assert result.books.leases[0].overhead_us == 10 * SECOND_US
        assert ends(result) == {1: 80 + 60}

    def test_reports_oversized_gang_as_stranded(self) -> None:
        jobs = (one_job()[0], SimJob(2, 1, 99, 0, SECOND_US))
        result = simulate(small(), jobs, GRID)
        assert (ends(result), result.stranded) == ({1: 100}, (2,))

    def test_reports_stranded_gang_soon_with_long_leases(self) -> None:
        """Regression: the expiry of a lease that had already ended kept rounds going forever."""
        jobs = (one_job()[0], SimJob(2, 1, 99, 0, SECOND_US))
        long = replace(GRID, lease_us=9_999 * GRID.round_us)
        result = simulate(small(), jobs, long)
        assert result.stranded == (2,)
        assert result.rounds < 99


class TestSkippedRounds:
    @pytest.mark.parametrize("policy", sorted(SITE_POLICIES))
    def test_books_match_run_of_every_round(self, policy: str) -> None:
        """test_simulator_types.py covers other policies, on nodes of several types."""
        rules = replace(COSTLY, policy=policy)
        some = simulate(CHURNED, SOME.jobs, rules)
        every = simulate(CHURNED, SOME.jobs, rules, skip=False)
        assert some.books.sha256() == every.books.sha256()
        assert some.rounds < every.rounds
        assert_all_is_over(some)


class TestRunInvariants:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_conserves_work_without_rounds(self, policy: str) -> None:
        assert_all_is_over(simulate(CHURNED, SOME.jobs, replace(COSTLY, policy=policy, round_us=0)))

    @pytest.mark.parametrize("round_s", [0, 10])
    def test_is_deterministic(self, round_s: int) -> None:
        rules = replace(COSTLY, policy="ltgf", round_us=round_s * SECOND_US)
        first, again = (simulate(CHURNED, SOME.jobs, rules) for _ in range(2))
        assert first.books.sha256() == again.books.sha256()

    def test_other_seed_gives_other_hash(self) -> None:
        other = synthetic(seed=8, jobs=120, tenants=4, hours=3)
        found = {simulate(CLUSTER, jobs, GRID).books.sha256() for jobs in (WORK.jobs, other.jobs)}
        assert len(found) == 2

    def test_charges_equal_lender_earnings(self) -> None:
        books = simulate(CLUSTER, WORK.jobs, GRID).books
        assert sum(books.charged.values()) == sum(books.earned.values()) > 0


class TestConservation:
    """The checks find losses of work that the test causes."""

    @staticmethod
    def lose_job(result: SimulationResult) -> None:
        result.books.jobs.pop()

    @staticmethod
    def lose_term(result: SimulationResult) -> None:
        result.books.terms.pop()

    @staticmethod
    def lose_work(result: SimulationResult) -> None:
        row = result.books.leases[0]
        result.books.leases[0] = row._replace(overhead_us=row.overhead_us + 1)

    @staticmethod
    def lose_income(result: SimulationResult) -> None:
        next(iter(result.books.incomes.values()))[1] -= 1

    @pytest.mark.parametrize("lose", [lose_job, lose_term, lose_work, lose_income])
    def test_check_detects_planted_losses(self, lose: Callable[[SimulationResult], None]) -> None:
        result = simulate(CLUSTER, WORK.jobs, GRID)
        lose(result)
        with pytest.raises(ConservationError):
            check_conservation(result, CLUSTER, WORK.jobs)
