"""Test DRF: the paper's example, weights, and nodes that run out of CPUs or memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import Snapshot, schema_of
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromiseKind
from evenshare_core.policies.registry import quota_promise
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster
from evenshare_core.units import SECOND_US
from scheduling.selectors.jobs.reasons import why
from tests.papers.test_baselines import job as sim_job
from tests.papers.test_baselines import run
from tests.unit.core.snapshots import job, lease, snapshot
from tests.unit.core.test_every_policy import drawn


def asked(
    jobs: list[Job], leases: list[Lease] | None = None, *, needs: dict[int, tuple[int, int]],
    has: dict[int, tuple[int, int]], quotas: tuple[int, ...] = (8, 8), **fields: Any,
) -> Snapshot:  # fmt: skip
    """Return a round; `needs` of jobs and `has` of nodes are CPUs and MB."""
    fields = {"nodes": dict.fromkeys(has, 64), "options": {"weights": "equal"}, **fields}
    job_rows = tuple(Resources(id_, *counts) for id_, counts in needs.items())
    node_rows = tuple(Resources(id_, *counts) for id_, counts in has.items())
    return snapshot(
        jobs, leases or [], policy="drf", schema=5, node_resources=node_rows,
        job_resources=job_rows,
        quotas=[Entitlement(i, "v100", gpus) for i, gpus in enumerate(quotas, start=1)], **fields,
    )  # fmt: skip


def given_to(decision: Decision) -> Counter[int]:
    return Counter(grant.tenant for grant in decision.grants)


class TestPaperExample:
    """Figure 3 and table 1: 9 CPUs and 18 GB; tasks of 1 CPU, 4 GB and of 3 CPUs, 1 GB."""

    JOBS = [job(number, 1, tenant=1 + number % 2) for number in range(1, 21)]
    NEEDS = {number: ((3, 1), (1, 4))[number % 2 == 0] for number in range(1, 21)}

    def test_grants_three_and_two_tasks(self) -> None:
        snap = asked(self.JOBS, needs=self.NEEDS, has={1: (9, 18)})
        decision = decide_round(snap)
        assert given_to(decision) == {1: 3, 2: 2}
        # The shares in the end are 12 of 18 GB and 6 of 9 CPUs.
        assert [(grant.tenant, grant.key.note) for grant in decision.grants] == [
            (1, "dominant_memory"), (2, "dominant_cpus"), (1, "dominant_memory"),
            (2, "dominant_cpus"), (1, "dominant_memory"),
        ]  # fmt: skip

    def test_waiting_jobs_have_cpus_or_memory_reason(self) -> None:
        decision = decide_round(asked(self.JOBS, needs=self.NEEDS, has={1: (9, 18)}))
        assert {row.reason for row in decision.skips} == {Reason.CPUS_OR_MEMORY}
        assert sum(len(row.jobs) for row in decision.skips) == 15
        row = decision.skips[0]
        assert row.numbers == {"gpu_type": "v100", "cpus": 1, "memory_mb": 4}
        text = why(row.reason, row.numbers)
        assert text.sentence.startswith("It needs 1 CPU and 4 MB of memory in addition to its GPUs")

    def test_queue_order_alternates_tenants(self) -> None:
        snap = asked(self.JOBS, needs=self.NEEDS, has={1: (9, 18)})
        order = queue_order(snap, decide_round(snap).service)
        assert order is not None
        assert [1 + number % 2 for number in order[:5]] == [1, 2, 1, 2, 1]


class TestGpuOnlySharing:
    def test_shares_gpus_evenly(self) -> None:
        """The tenant with gangs of 2 gets as many of the 8 GPUs as the tenant with single GPUs."""
        jobs = [job(number, 1 + number % 2, tenant=1 + number % 2) for number in range(1, 21)]
        snap = asked(jobs, needs={}, has={}, nodes={1: 8})
        assert given_to(decide_round(snap)) == {1: 4, 2: 2}

    def test_uses_quotas_as_weights_by_default(self) -> None:
        jobs = [job(number, 1, tenant=1 + number % 2) for number in range(1, 21)]
        fields: dict[str, Any] = {"needs": {}, "has": {}, "nodes": {1: 8}, "quotas": (6, 2)}
        assert given_to(decide_round(asked(jobs, **fields))) == {1: 4, 2: 4}
        assert given_to(decide_round(asked(jobs, **fields, options={}))) == {1: 6, 2: 2}

    def test_serves_tenant_without_quota_last(self) -> None:
        jobs = [job(1, 4, tenant=1), job(2, 4, tenant=2)]
        snap = asked(jobs, needs={}, has={}, nodes={1: 4}, quotas=(0, 1), options={})
        assert given_to(decide_round(snap)) == {2: 1}

    def test_breaks_ties_by_least_received(self) -> None:
        """When the lease ends, no tenant holds GPUs, but the first tenant has received some."""
        jobs = [sim_job(1, 4, 500), sim_job(2, 2, 20, at_s=5, tenant=2)]
        found = run("drf", jobs, {1: 2, 2: 2})
        assert found[2].start_s == 100

    def test_prefers_tenant_holding_less_over_received(self) -> None:
        """The first tenant had 4 GPUs for 100 s. At 130 s, the second has had 2 for 30 s."""
        jobs = [sim_job(1, 4, 100), sim_job(2, 2, 90, at_s=5, tenant=2)]
        jobs += [sim_job(3, 2, 90, at_s=110, tenant=2), sim_job(4, 2, 90, at_s=111)]
        jobs.append(sim_job(5, 2, 30, at_s=100, tenant=3))
        found = run("drf", jobs, {1: 2, 2: 2, 3: 2})
        assert found[4].start_s < found[3].start_s

    def test_quota_promise_is_weight_unless_weights_are_equal(self) -> None:
        lengths = PoolLengths(0, 0)
        assert quota_promise("drf", {}, lengths).kind is QuotaPromiseKind.WEIGHT
        equal = quota_promise("drf", {"weights": "equal"}, lengths)
        assert equal.kind is QuotaPromiseKind.NOT_GUARANTEED


class TestNodeResources:
    def test_skips_node_with_too_few_cpus(self) -> None:
        """The first node is the tighter fit by GPUs, but it has only 4 CPUs."""
        snap = asked(
            [job(1, 2)], needs={1: (8, 0)}, has={1: (4, 0), 2: (8, 0)}, nodes={1: 2, 2: 64}
        )
        assert [grant.placement for grant in decide_round(snap).grants] == [((2, 2),)]

    def test_node_without_reported_resources_is_unlimited(self) -> None:
        snap = asked([job(1, 2)], needs={1: (999, 999)}, has={1: (4, 4)}, nodes={1: 8, 2: 8})
        assert [grant.placement for grant in decide_round(snap).grants] == [((2, 2),)]

    @pytest.mark.parametrize("has", [(4, 0), (0, 4)])
    def test_unreported_resource_is_unlimited(self, has: tuple[int, int]) -> None:
        both = asked([job(1, 1)], needs={1: (4, 4)}, has={1: has})
        assert [grant.job for grant in decide_round(both).grants] == [1]
        more = (999, 4) if has[1] else (4, 999)
        assert decide_round(asked([job(1, 1)], needs={1: more}, has={1: has})).grants
        less = (4, 5) if has[1] else (5, 4)
        assert not decide_round(asked([job(1, 1)], needs={1: less}, has={1: has})).grants

    def test_running_leases_use_cpus(self) -> None:
        jobs = [job(1, 1), job(2, 1)]
        held = [lease(1, 1, (1, 1), expires_us=10**12)]
        snap = asked(jobs, held, needs={1: (6, 0), 2: (4, 0)}, has={1: (8, 0)})
        assert not decide_round(snap).grants

    def test_does_not_renew_lease_after_losing_cpus(self) -> None:
        """The second tenant holds nothing, so it goes first. The node has enough GPUs for both."""
        jobs = [job(1, 1), job(2, 1, tenant=2), job(3, 1)]
        held = [lease(1, 1, (1, 1)), lease(9, 3, (2, 1), expires_us=10**12)]
        snap = asked(jobs, held, needs={1: (6, 0), 2: (6, 0)}, has={1: (8, 0), 2: (4, 0)})
        decision = decide_round(snap)
        assert [grant.job for grant in decision.grants] == [2]
        assert [(end.lease, end.reason) for end in decision.ends] == [(1, EndReason.NOT_RENEWED)]
        assert [row.reason for row in decision.skips] == [Reason.CPUS_OR_MEMORY]

    def test_splits_cpus_with_split_gang(self) -> None:
        """A gang of 12 GPUs and 12 CPUs gets 5 of 8 GPUs on a node with 5 CPUs."""
        snap = asked([job(1, 12)], needs={1: (12, 0)}, has={1: (5, 0), 2: (8, 0)},
                     nodes={1: 8, 2: 8})  # fmt: skip
        (grant,) = decide_round(snap).grants
        assert grant.placement in (((1, 4), (2, 8)), ((1, 5), (2, 7)))

    @given(st.integers(0, 10**6))
    def test_never_exceeds_node_resources(self, seed: int) -> None:
        """Grants fit the resources that continuing leases leave, unless these exceed the node."""
        snap = drawn("drf", 2 * seed)
        decision = decide_round(snap)
        gangs = {row.id: row.gpus for row in snap.jobs}
        needs = {row.id: row for row in snap.job_resources}
        renewed = {row.lease for row in decision.renewals}
        given_now = [(row.job, row.placement) for row in decision.grants]
        given_now += [(row.job, row.placement) for row in snap.leases if row.id in renewed]
        gone = {row.lease for row in decision.ends} | renewed
        kept = [(row.job, row.placement) for row in snap.leases if row.id not in gone]
        for index in (1, 2):
            name = Resources.__struct_fields__[index]
            before, now = Counter[int](), Counter[int]()
            for use, rows in ((before, kept), (now, given_now)):
                for job_id, placement in rows:
                    needed = getattr(needs.get(job_id, Resources(0)), name)
                    for node, gpus in placement:
                        use[node] += -(-needed * gpus // gangs[job_id])
            for row in snap.node_resources:
                has = getattr(row, name)
                assert not now[row.id] or now[row.id] + before[row.id] <= has


class TestSimulation:
    """Two jobs of 6 CPUs on a node of 8 GPUs and 9 CPUs, and one job without CPUs."""

    POOL = Cluster(
        (Node(1, "v100", 8),), (Entitlement(1, "v100", 8),),
        node_resources=(Resources(1, 9),),
        job_resources={1: Resources(1, 6), 2: Resources(2, 6)},
    )  # fmt: skip
    JOBS = (sim_job(1, 1, 10), sim_job(2, 1, 10), sim_job(3, 1, 10))

    def test_runs_jobs_in_sequence_if_cpus_are_scarce(self) -> None:
        starts = {row.job: row.start_us for row in self.simulated("drf").books.jobs}
        assert starts == {1: 0, 2: 10 * SECOND_US, 3: 0}
        assert {row.start_us for row in self.simulated("fifo").books.jobs} == {0}

    def simulated(self, policy: str) -> SimulationResult:
        return simulate(self.POOL, self.JOBS, Rules(policy))

    def test_continues_from_snapshot_with_job_resources(self) -> None:
        state = SimulationState(self.POOL, self.JOBS, Rules("drf"))
        state.advance(0)
        first = state.snapshot()
        assert [row.id for row in first.job_resources] == [1, 2]
        work = {row.id: Work(10 * SECOND_US) for row in first.jobs}
        again = PresentState(Start(first, work)).snapshot()
        assert canonical_bytes(again) == canonical_bytes(first)
        assert again.schema == 5


class TestSnapshotEncoding:
    def test_is_unchanged_without_resources(self) -> None:
        plain = replace(asked([job(1, 1)], needs={}, has={}, nodes={1: 8}), schema=2)
        fields = Snapshot.__struct_fields__
        old = [canonical_bytes(getattr(plain, name)) for name in fields[: -len(Snapshot.newest)]]
        assert canonical_bytes(plain) == b"[" + b",".join(old) + b"]"

    def test_round_trips_resources(self) -> None:
        snap = asked([job(1, 1)], needs={1: (2, 3)}, has={1: (4, 5)})
        assert decode(canonical_bytes(snap), Snapshot) == snap
        assert canonical_bytes(snap).endswith(b",[],[],[[1,4,5]],[[1,2,3]]]")

    @pytest.mark.parametrize(("resources", "schema"), [((), 2), ((Resources(1, 2, 3),), 5)])
    def test_schema_version_depends_on_resources(
        self, resources: tuple[Resources, ...], schema: int
    ) -> None:
        assert schema_of((), (), resources) == schema
