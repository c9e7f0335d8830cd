"""A shortcut that is exact: one tenant alone, a strict order, and leases that outlast their jobs.

Then nothing but arrivals and ends happens, everything is own quota, and nothing has a price: the
policy's order is a heap, and a round takes what fits from its top. Used by `fifo` and `sjf`
with their default options on partitions; placement is theirs (`policies.baselines.ordered`).
tests/simulation/test_simulator_shortcuts.py compares it with asking the policy at every event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from evenshare_core.policies.baselines.ordered import find_place
from evenshare_core.simulation.books import Books, JobRow, LeaseRow, TermRow
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.simulation.world import Rules, free_gpus

ORDERS: dict[str, Callable[[SimJob], tuple[float, int, int]]] = {
    "fifo": lambda job: (0, job.submitted_us, job.id),
    "sjf": lambda job: (
        inf if job.estimate_us is None else job.estimate_us, job.submitted_us, job.id,
    ),
}  # fmt: skip


def suits(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> bool:
    """Whether a run is of this kind; a gang that can never run needs the policy to say so."""
    tenants = {job.tenant for job in jobs}
    if rules.policy not in ORDERS or rules.options or rules.round_us or len(tenants) != 1:
        return False
    types = {node.gpu_type for node in cluster.nodes}
    if len(types) != 1 or cluster.changes or cluster.has_speeds:
        return False
    (tenant,) = tenants
    quota = sum(row.gpus for row in cluster.quotas if row.tenant == tenant)
    end_us = max(job.submitted_us for job in jobs) + sum(job.duration_us for job in jobs)
    plain = all(
        job.cancel_us is None and not job.gpu_types and job.gpus <= cluster.capacity for job in jobs
    )
    return plain and quota >= cluster.capacity and rules.lease_us > end_us


def run(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> tuple[Books, int, list[int]]:
    """Return the books, the number of rounds and the jobs that could not start."""
    ((gpu_type, free),) = free_gpus(cluster.nodes).items()
    order, books = ORDERS[rules.policy], Books()
    whole_nodes = True  # the default of both
    queue: list[tuple[tuple[float, int, int], SimJob]] = []
    ends: list[tuple[int, int, SimJob, int, tuple[tuple[int, int], ...]]] = []
    arrivals = sorted(jobs, key=lambda job: (job.submitted_us, job.id))
    index = lease = 0
    rounds = int(not arrivals or arrivals[0].submitted_us > 0)  # one that tells the quotas
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
            found = find_place(free, job.gpus, whole_nodes=whole_nodes)
            if found is None:
                break
            heappop(queue)
            free.take(found)
            lease += 1
            heappush(ends, (at_us + job.duration_us, lease, job, at_us, found))
    return books, rounds, [job.id for _, job in queue]


def _book(
    books: Books, job: SimJob, lease: int, gpu_type: str,
    held: tuple[int, int, tuple[tuple[int, int], ...]],
) -> None:  # fmt: skip
    start_us, end_us, placement = held
    state, reason = ("failed", "failed") if job.failed else ("succeeded", "finished")
    books.leases.append(
        LeaseRow(lease, job.id, 1, gpu_type, placement, start_us, end_us, reason, 0)
    )
    books.terms.append(TermRow(lease, 1, job.gpus, 0, 0, start_us, end_us, 0))
    books.jobs.append(JobRow(job.id, state, start_us, end_us, 1, job.duration_us))
