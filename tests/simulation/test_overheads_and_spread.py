"""Costs of a job's overheads and of several nodes: worked examples, and conservation of work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US
from tests.patience import some

# Two nodes of 4 GPUs, each with one GPU in a long lease: 3 + 3 are free.
NODES = (Node(1, "v100", 4), Node(2, "v100", 4))
LONG = tuple(SimJob(id_, 1, 3, 0, 1000 * SECOND_US) for id_ in (1, 2))
GANG = SimJob(3, 1, 2, SECOND_US, 100 * SECOND_US)
SPREADS = sorted(
    name for name, one in POLICIES.items() if "spread" in one.options_type.__struct_fields__
)


def pool(spread_milli: int = 1000) -> Cluster:
    return Cluster(NODES, (Entitlement(1, "v100", 8),), spread_milli=spread_milli)


def ends(outcome: SimulationResult) -> dict[int, float]:
    return {row.job: row.end_us / SECOND_US for row in outcome.books.jobs}


def run(
    cluster: Cluster, *jobs: SimJob, policy: str = "fifo", spread: bool = True
) -> SimulationResult:
    rules = Rules(policy, {"spread": spread}, lease_us=5000 * SECOND_US)
    return simulate(cluster, (*LONG, *jobs), rules)


class TestMultiNodeGang:
    def test_queue_and_share_policies_have_spread_option(self) -> None:
        assert {"fifo", "sjf", "srtf", "yarn_cs", "ltgf", "oef"} <= set(SPREADS)

    @pytest.mark.parametrize("policy", SPREADS)
    def test_waits_for_one_node_unless_spread_is_on(self, policy: str) -> None:
        waits = run(pool(), GANG, policy=policy, spread=False)
        assert ends(waits)[3] == 1100
        starts = run(pool(), GANG, policy=policy)
        assert ends(starts)[3] == 101
        row = next(row for row in starts.books.leases if row.job == 3)
        assert row.placement == ((1, 1), (2, 1))

    @pytest.mark.parametrize("policy", SPREADS)
    def test_runs_slower_by_multi_node_penalty(self, policy: str) -> None:
        assert ends(run(pool(800), GANG, policy=policy))[3] == 1 + 125

    def test_penalty_of_job_overrides_common_one(self) -> None:
        own = replace(GANG, spread=(("v100", 500),))
        assert ends(run(pool(800), own))[3] == 1 + 200
        other = replace(GANG, spread=(("k80", 500),))
        assert ends(run(pool(800), other))[3] == 1 + 125
        anywhere = replace(GANG, spread=(("", 250),))
        assert ends(run(pool(800), anywhere))[3] == 1 + 400

    def test_has_no_penalty_on_one_node_or_above_node_size(self) -> None:
        cluster = pool(500)
        rules = Rules("fifo", {"spread": True}, lease_us=5000 * SECOND_US)
        on_one = replace(GANG, gpus=4)
        over_two = replace(GANG, gpus=8)
        assert ends(simulate(cluster, (on_one,), rules)) == {3: 101}
        assert ends(simulate(cluster, (over_two,), rules)) == {3: 101}

    def test_node_shrinkage_keeps_penalty(self) -> None:
        """The reference for its duration does not change when GPUs are lost."""
        cluster = pool(500)
        job = replace(GANG, gpus=4)
        assert cluster.placed_speed_milli(job, "v100", ((1, 2), (2, 2))) == 500
        assert cluster.placed_speed_milli(replace(GANG, gpus=5), "v100", ((1, 2), (2, 3))) == 1000


class TestJobOverheads:
    RULES = Rules("fifo", lease_us=40 * SECOND_US, checkpoint_us=SECOND_US)

    @pytest.mark.parametrize(("own_s", "end_s"), [(None, 102), (0, 100), (7, 114)])
    def test_checkpoints_cost_declared_time(self, own_s: int | None, end_s: int) -> None:
        own_us = None if own_s is None else own_s * SECOND_US
        job = SimJob(1, 1, 1, 0, 100 * SECOND_US, checkpoint_us=own_us)
        assert ends(simulate(pool(), (job,), self.RULES)) == {1: end_s}

    def test_resumed_job_pays_declared_cold_start(self) -> None:
        gangs = tuple(
            SimJob(id_, id_, 8, 0, 100 * SECOND_US, cold_us=cold_s * SECOND_US)
            for id_, cold_s in ((1, 3), (2, 11))
        )
        quotas = tuple(Entitlement(tenant, "v100", 4) for tenant in (1, 2))
        rules = Rules("ltgf", round_us=10 * SECOND_US, lease_us=40 * SECOND_US, cold_us=SECOND_US)
        books = simulate(Cluster(NODES, quotas), gangs, rules).books
        overhead = {(row.job, row.number): row.overhead_us // SECOND_US for row in books.leases}
        assert max(number for _, number in overhead) > 1
        for (job, number), lost_s in overhead.items():
            assert lost_s == (0 if number == 1 else {1: 3, 2: 11}[job])


@settings(max_examples=some())
@given(data=st.data())
def test_work_is_conserved_with_any_overheads(data: st.DataObject) -> None:
    """`simulate` checks each run: for each lease, work done = useful time x speed."""
    draw = data.draw
    jobs = tuple(
        SimJob(
            id_, draw(st.integers(1, 2)), draw(st.integers(1, 8)),
            draw(st.integers(0, 200 * SECOND_US)), draw(st.integers(1, 300 * SECOND_US)),
            cold_us=draw(st.sampled_from((None, 0, 5 * SECOND_US))),
            checkpoint_us=draw(st.sampled_from((None, 0, 9 * SECOND_US))),
            spread=draw(st.sampled_from(((), (("v100", 333),), (("", 1),)))),
        )
        for id_ in range(1, 9)
    )  # fmt: skip
    quotas = tuple(Entitlement(tenant, "v100", 4) for tenant in (1, 2))
    cluster = Cluster(NODES, quotas, spread_milli=draw(st.integers(1, 1000)))
    rules = Rules(
        draw(st.sampled_from(SPREADS)), {"spread": True}, round_us=10 * SECOND_US,
        lease_us=60 * SECOND_US, cold_us=SECOND_US, checkpoint_us=2 * SECOND_US,
    )  # fmt: skip
    few = simulate(cluster, jobs, rules, until_us=3600 * SECOND_US)
    asked = simulate(cluster, jobs, rules, until_us=3600 * SECOND_US, fast_forward=False)
    assert asked.books.sha256() == few.books.sha256()
    assert not simulate(cluster, tuple(replace(job, spread=()) for job in jobs), rules).stranded
