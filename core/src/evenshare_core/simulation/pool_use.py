"""Use of a pool's GPUs: useful work, overhead, and idle time that waiting jobs could use.

Waste at an instant has two parts. The first is the idle GPUs that waiting jobs could use, by
accepted types (`type_flow`); the second is the GPUs of leases at overhead. Gangs count as
divisible. Idle GPUs that fit no gang, because they are scattered or too few, are also wasted.
Another placement or order might have used them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from evenshare_core.simulation.books import Books
from evenshare_core.simulation.deserved import JobTypes
from evenshare_core.simulation.type_flow import TypeFlow, joined
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import HOUR_US

CAPACITY, HELD, USEFUL, IDLE, WAITING = range(5)
Step = tuple[int, int, int, int]  # (instant, changed quantity, change in GPUs, type or mask)


@dataclass(slots=True)
class Utilisation:
    """Shares of all GPUs; None if no GPU was up. `hours`: utilisation by hour number."""

    utilisation: float | None = None
    waste: float | None = None
    hours: dict[int, float] = field(default_factory=dict)


def pool_use(
    cluster: Cluster,
    by_id: Mapping[int, SimJob],
    books: Books,
    between_us: tuple[int, int] | None = None,
) -> Utilisation:
    """Return utilisation and waste between the first and the last submission, or `between_us`.

    Hours count from the first submission.
    """
    use = Utilisation()
    begin_us = min(job.submitted_us for job in by_id.values())
    first_us, last_us = between_us or (begin_us, max(job.submitted_us for job in by_id.values()))
    types = JobTypes(cluster, by_id.values(), books)
    groups = [(masks, TypeFlow(masks)) for masks in joined(types.of.values())]
    flows = [flow for _, flow in groups]
    flow_of = {mask: flow for masks, flow in groups for mask in masks}
    sums = [0, 0, 0]  # GPUs: capacity, held, useful
    now_us, wasted = first_us, 0
    hours: dict[int, list[int]] = {}  # by hour: [useful GPU-us, GPU-us of all nodes]
    steps = [*_steps(cluster, by_id, books, types), (last_us, CAPACITY, 0, 0)]
    for at_us, change, gpus, key in sorted(steps):
        until_us = min(at_us, last_us)
        if now_us < until_us:
            capacity, held, useful = sums
            usable = sum(flow.most() for flow in flows)
            wasted += (usable + held - useful) * (until_us - now_us)
            _add(hours, now_us - begin_us, until_us - begin_us, (useful, capacity))
            now_us = until_us
        if change <= USEFUL:
            sums[change] += gpus
        elif change == WAITING:
            flow_of[key].ask(key, gpus)
        else:
            for flow in flows:
                flow.offer(key, gpus)
    used, offered = (sum(row[place] for row in hours.values()) for place in (0, 1))
    if offered:  # zero if all nodes are lost during the whole span
        use.utilisation, use.waste = used / offered, wasted / offered
    use.hours = {hour: row[0] / row[1] for hour, row in sorted(hours.items()) if row[1]}
    return use


def _add(hours: dict[int, list[int]], from_us: int, to_us: int, gpus: tuple[int, int]) -> None:
    while from_us < to_us:
        hour = from_us // HOUR_US
        span_us = min(to_us, (hour + 1) * HOUR_US) - from_us
        row = hours.setdefault(hour, [0, 0])
        for place, count in enumerate(gpus):
            row[place] += count * span_us
        from_us += span_us


def _steps(
    cluster: Cluster, by_id: Mapping[int, SimJob], books: Books, types: JobTypes
) -> Iterator[Step]:
    begin_us = min(job.submitted_us for job in by_id.values())
    gpus_of = {node.id: node.gpus for node in cluster.nodes}
    bit_of = {node.id: types.bits[node.gpu_type] for node in cluster.nodes}
    for node in cluster.nodes:
        yield begin_us, CAPACITY, node.gpus, 0
        yield begin_us, IDLE, node.gpus, bit_of[node.id]
    for change in sorted(cluster.changes, key=lambda change: change.at_us):
        more = change.gpus - gpus_of[change.node]
        gpus_of[change.node] = change.gpus
        at_us = max(begin_us, change.at_us)
        yield at_us, CAPACITY, more, 0
        yield at_us, IDLE, more, bit_of[change.node]
    for lease in books.leases:
        gpus, mask = by_id[lease.job].gpus, types.of[lease.job]
        for at_us, count in ((lease.start_us, gpus), (lease.end_us, -gpus)):
            yield at_us, HELD, count, 0
            yield at_us, IDLE, -count, types.bits[lease.gpu_type]
            yield at_us, WAITING, -count, mask
        yield lease.start_us + lease.overhead_us, USEFUL, gpus, 0
        yield lease.end_us, USEFUL, -gpus, 0
    ends = {row.job: row.end_us for row in books.jobs}
    for job in by_id.values():
        if mask := types.of[job.id]:
            yield job.submitted_us, WAITING, job.gpus, mask
            if job.id in ends:
                yield ends[job.id], WAITING, -job.gpus, mask
