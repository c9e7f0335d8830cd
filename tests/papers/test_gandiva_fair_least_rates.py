"""Rates of gandiva_fair within a tenant: no job waits forever behind another job of its tenant."""

from __future__ import annotations

from collections.abc import Mapping

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.jobs import Job
from evenshare_core.policies.gandiva_fair.homes import TypeHomes
from evenshare_core.policies.gandiva_fair.memory import Pass, StrideJob, read_memory
from evenshare_core.policies.gandiva_fair.rates import UNIT
from evenshare_core.policies.gandiva_fair.ratings import LEAST_PART, set_rates
from evenshare_core.units import GPU_MICRO


def rates(
    sizes: Mapping[int, int], homes: list[tuple[int, Placement]], tickets: Mapping[int, int]
) -> list[int]:
    """Return the rates of jobs, given the tenant and home of each job and the GPUs of each node."""
    row = TypeHomes("k80", [Node(node, "k80", gpus) for node, gpus in sizes.items()])
    jobs = []
    for number, (tenant, home) in enumerate(homes, start=1):
        job = Job(number, tenant, sum(gpus for _, gpus in home), 0)
        jobs.append(StrideJob(job, home, Pass(), is_new=True, usable=("k80",)))
        row.read(jobs[-1])
    quotas = {(tenant, "k80"): gpus * GPU_MICRO for tenant, gpus in tickets.items()}
    set_rates("placement", {"k80": row}, jobs, quotas, read_memory({}))
    return [one.passes.rate for one in jobs]


SIZES = {1: 8, 2: 2}
HOMES: list[tuple[int, Placement]] = [(2, ((1, 8),)), (1, ((2, 2),)), (2, ((2, 2),))]


class TestJobWithTenantShareElsewhere:
    def test_gets_sixteenth_of_ticket_share(self) -> None:
        """The second tenant gets all 8 GPUs of node 1, so the first tenant gets all of node 2."""
        large, other, small = rates(SIZES, HOMES, {1: 5, 2: 5})
        assert (large, other) == (8 * UNIT, 2 * UNIT)
        assert small == 2 * (UNIT * 5 // 10 // LEAST_PART)

    def test_gets_at_most_sixteenth_of_job_size(self) -> None:
        assert rates(SIZES, HOMES, {1: 900, 2: 100})[2] == 2 * UNIT // LEAST_PART

    def test_gets_zero_rate_without_tickets(self) -> None:
        assert rates(SIZES, HOMES, {1: 5})[2] == 0


class TestGangsOnSameNodes:
    def test_share_evenly_within_tenant(self) -> None:
        nodes: Placement = ((1, 8), (2, 8))
        others: list[tuple[int, Placement]] = [(2, ((1, 4),)), (3, ((1, 8),)), (2, ((2, 8),))]
        first, *rest = rates({1: 8, 2: 8}, [(1, nodes)] * 3 + others, {1: 4, 2: 12})[:3]
        assert rest == [first, first]
        assert abs(3 * first - int(3.428 * UNIT)) < UNIT // 100
