"""Fast runs of a single tenant with a fixed queue order and leases longer than all jobs.

In such a run jobs only arrive and end, all GPUs are own quota, and there are no charges. The queue
is a heap, and a round starts jobs from its top while they fit. The policy determines the order of
the queue (`policies.shared.session.StaticQueue`) and the placement.

Other runs use `simulation.fast_forward`. Fast runs are needed for FIFO on partitions: two weeks of
Philly take 0.25 s of CPU, 5 us per round. A round with sums, limits, prices and terms takes 20 to
30 us. tests/simulation/test_single_tenant.py compares fast runs with runs that call the policy at
every event.
"""

from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from evenshare_core.placement.consolidated import FreeGpus, find_place
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.policies.shared.session import StaticQueue
from evenshare_core.simulation.books import Books, JobRecord, LeaseRecord, TermRecord
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob


class SingleTenantRun(NamedTuple):
    """The result of a run; `stranded` has the ids of jobs that could not start."""

    books: Books
    rounds: int
    stranded: tuple[int, ...]


def run(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> SingleTenantRun | None:
    """Return the result of a single tenant's run; None if a fast run is not possible."""
    queue = static_queue(cluster, jobs, rules)
    return None if queue is None else _run(cluster, jobs, queue)


def static_queue(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> StaticQueue | None:
    """Return the policy's queue if a fast run is possible, else None.

    It is not possible if a gang can never run, because only the policy can report the gang.
    """
    policy = policy_named(rules.policy)
    tenants = {job.tenant for job in jobs}
    static = policy.static_queue(dict(rules.options))
    if static is None or rules.round_us or len(tenants) != 1:
        return None
    types = {node.gpu_type for node in cluster.nodes}
    if len(types) != 1 or cluster.changes or cluster.has_speeds:
        return None
    (tenant,) = tenants
    quota = sum(row.gpus for row in cluster.quotas if row.tenant == tenant)
    end_us = max(job.submitted_us for job in jobs) + sum(job.duration_us for job in jobs)
    is_plain = all(
        job.cancel_us is None and not job.gpu_types and job.gpus <= cluster.capacity for job in jobs
    )
    if not is_plain or quota < cluster.capacity or rules.lease_us <= end_us:
        return None
    return static


def _run(cluster: Cluster, jobs: tuple[SimJob, ...], static: StaticQueue) -> SingleTenantRun:
    gpu_type, sizes = cluster.nodes[0].gpu_type, {node.id: node.gpus for node in cluster.nodes}
    free = FreeGpus(sizes, max(sizes.values()))
    order, whole_nodes, books = static.order, static.whole_nodes, Books()
    queue: list[tuple[tuple[Any, ...], SimJob]] = []
    ends: list[tuple[int, int, SimJob, int, tuple[tuple[int, int], ...]]] = []
    arrivals = sorted(jobs, key=lambda job: (job.submitted_us, job.id))
    index = lease = 0
    rounds = int(arrivals[0].submitted_us > 0)  # the round that sets the quotas
    while index < len(arrivals) or ends:
        next_us = ends[0][0] if ends else inf
        at_us = int(min(next_us, arrivals[index].submitted_us if index < len(arrivals) else inf))
        rounds += 1
        while index < len(arrivals) and arrivals[index].submitted_us == at_us:
            heappush(queue, (order(arrivals[index]), arrivals[index]))
            index += 1
        while ends and ends[0][0] == at_us:
            _, number, job, start_us, placement = heappop(ends)
            free.give(placement)
            _book(books, job, number, gpu_type, (start_us, at_us, placement))
        while queue:
            job = queue[0][1]
            place = find_place(free, job.gpus, whole_nodes=whole_nodes)
            if place is None:
                break
            heappop(queue)
            free.take(place)
            lease += 1
            heappush(ends, (at_us + job.duration_us, lease, job, at_us, place))
    return SingleTenantRun(books, rounds, tuple(job.id for _, job in queue))


def _book(
    books: Books,
    job: SimJob,
    lease: int,
    gpu_type: str,
    held: tuple[int, int, tuple[tuple[int, int], ...]],
) -> None:
    start_us, end_us, placement = held
    state, reason = ("failed", "failed") if job.failed else ("succeeded", "finished")
    books.leases.append(
        LeaseRecord(lease, job.id, 1, gpu_type, placement, start_us, end_us, reason, 0)
    )
    books.terms.append(TermRecord(lease, 1, job.gpus, 0, 0, start_us, end_us, 0))
    books.jobs.append(JobRecord(job.id, state, start_us, end_us, 1, job.duration_us))
