"""Test BatchSche: its planner, and private partitions planned with estimated run times."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster
from evenshare_research.policies.batch_sche import PartitionPlan
from tests.papers.test_baselines import Times, job, run, times
from tests.unit.core.snapshots import job as waiting_job
from tests.unit.core.snapshots import snapshot


class TestPartition:
    def test_neither_lends_nor_borrows(self) -> None:
        jobs = [job(1, 2, 100), job(2, 1, 10, at_s=1), job(3, 1, 10, at_s=2, tenant=2)]
        found = run("batch_sche", jobs, {1: 2, 2: 2})
        assert (found[2], found[3]) == (Times(100, 110), Times(2, 12))

    def test_never_preempts(self) -> None:
        found = run("batch_sche", [job(1, 4, 1000), job(2, 4, 10, at_s=5)], {1: 4})
        assert found == {1: Times(0, 1000), 2: Times(1000, 1010)}

    def test_refuses_jobs_above_quota_limit(self) -> None:
        quotas = (Entitlement(1, "v100", 2), Entitlement(2, "v100", 2))
        waiting = [waiting_job(1, 3), waiting_job(2, 1), waiting_job(3, 1, tenant=9)]
        asked = snapshot(
            waiting, nodes={1: 4}, quotas=quotas, policy="batch_sche", options={"oversized": False}
        )
        decision = decide_round(asked)
        assert [(grant.job, grant.key.note) for grant in decision.grants] == [(2, "planned")]
        reasons = {job_id: row.reason for row in decision.skips for job_id in row.jobs}
        assert reasons == {1: Reason.QUOTA_LIMIT, 3: Reason.QUOTA_LIMIT}
        assert queue_order(asked, decision.service) == (2,)

    def test_gang_above_quota_runs_exclusively(self) -> None:
        jobs = [job(1, 1, 100), job(2, 3, 10, at_s=1), job(3, 1, 10, at_s=95)]
        found = run("batch_sche", jobs, {1: 2, 2: 2})
        assert (found[2], found[3]) == (Times(100, 110), Times(110, 120))
        off = run("batch_sche", jobs, {1: 2, 2: 2}, oversized=False)
        assert off == {1: Times(0, 100), 3: Times(95, 105)}

    def test_gang_that_cannot_borrow_does_not_block(self) -> None:
        """The other tenant lends nothing, so the gang of 3 never starts."""
        quotas = (Entitlement(1, "v100", 2), Entitlement(2, "v100", 2, Mode.RESERVE))
        waiting = [waiting_job(1, 3), waiting_job(2, 2)]
        decision = decide_round(snapshot(waiting, nodes={1: 4}, quotas=quotas, policy="batch_sche"))
        assert [grant.job for grant in decision.grants] == [2]
        (skip,) = decision.skips
        assert skip.reason is Reason.QUOTA_LIMIT


class TestBackfillPlan:
    def test_backfills_if_no_job_is_delayed(self) -> None:
        """3 of 4 GPUs are held for 100 s, and the gang of 2 starts then.

        A job of 50 s fits before it.
        """
        jobs = [
            job(1, 3, 100), job(2, 2, 10, at_s=1), job(3, 1, 50, at_s=2), job(4, 1, 90, at_s=60),
        ]  # fmt: skip
        found = run("batch_sche", jobs, {1: 4})
        assert found[3] == Times(2, 52)
        assert found[2] == Times(100, 110)
        # 150 s is longer than 100 s, but 2 GPUs are free next to the gang of 2, so no job is
        # delayed.
        assert found[4] == Times(60, 150)

    def test_holds_back_job_that_would_delay_earlier_one(self) -> None:
        """The gang of 4 needs all GPUs at 100 s.

        A job of 99 s that starts at 1 s has ended by then.
        """
        jobs = [job(1, 3, 100), job(2, 4, 10, at_s=1), job(3, 1, 99, at_s=1), job(4, 1, 99, at_s=2)]
        found = run("batch_sche", jobs, {1: 4})
        assert found == {
            1: Times(0, 100), 3: Times(1, 100), 2: Times(100, 110), 4: Times(110, 209),
        }  # fmt: skip

    def test_uses_configured_runtime_without_estimate(self) -> None:
        jobs = [job(1, 3, 100), job(2, 4, 10, at_s=1), job(3, 1, 20, at_s=2, estimate_us=None)]
        assert run("batch_sche", jobs, {1: 4}, unknown_s=98)[3].start_s == 2
        assert run("batch_sche", jobs, {1: 4}, unknown_s=99)[3].start_s == 110

    def test_plan_jobs_option_limits_jobs_per_tenant(self) -> None:
        jobs = [job(1, 3, 100), job(2, 4, 10, at_s=1), job(3, 1, 20, at_s=2)]
        assert run("batch_sche", jobs, {1: 4}, plan_jobs=2)[3].start_s == 2
        assert run("batch_sche", jobs, {1: 4}, plan_jobs=1)[3].start_s == 110

    def test_picks_gpu_type_that_is_free_first(self) -> None:
        nodes = (Node(1, "k80", 4), Node(2, "v100", 4))
        quotas = tuple(Entitlement(1, name, 4) for name in ("k80", "v100"))
        jobs = (job(1, 4, 50), job(2, 4, 90), job(3, 4, 10))
        result = simulate(Cluster(nodes, quotas), jobs, Rules("batch_sche"))
        assert times(result) == {1: Times(0, 50), 2: Times(0, 90), 3: Times(50, 60)}


jobs_of_a_plan = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=8)


class TestPartitionPlan:
    @given(jobs_of_a_plan, jobs_of_a_plan)
    def test_earliest_matches_exhaustive_search(
        self, held: list[tuple[int, int]], asked: list[tuple[int, int]]
    ) -> None:
        """Compare with a check of every point in time."""
        plan = PartitionPlan(5, 0, [(until, gpus) for gpus, until in held])
        used: Counter[int] = Counter()
        for gpus, until in held:
            used.update(dict.fromkeys(range(until), gpus))
        for gpus, length in asked:
            room = [all(used[t] + gpus <= 5 for t in range(i, i + length)) for i in range(200)]
            start = plan.earliest(gpus, length)
            assert start == room.index(True)
            plan.take(gpus, start, length)
            used.update(dict.fromkeys(range(start, start + length), gpus))

    def test_earliest_returns_none_above_capacity(self) -> None:
        assert PartitionPlan(3, 0, []).earliest(4, 1) is None
