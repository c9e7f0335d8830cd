"""The fair reference: the end of each job if it always progressed at the rate it deserves.

Each tenant has only its own quota, and its jobs are divisible. At instant t, its unfinished jobs
share the quota by water filling, with the rates of eq. (13)(14):

    rate_i = min(gang_i, level x weight_i)

The level rises until every job has its gang. It stops earlier for jobs that accept only some types,
once these jobs use up the quota of these types. They keep their rates while the others rise
further. GPUs that a small job leaves unused go to larger jobs of the same tenant only. A job of d
seconds with gang g ends when the integral of its rate reaches g d. A cancelled job leaves at its
cancellation.

The reference depends on the trace, the quotas and the nodes, and not on a policy. It has no
borrowing, leases, gangs or overhead. A GPU type that is faster than that of the stated durations
does not speed it up.

Source: LTGF (TPDS 2021) eq. (13)(14). Water filling is our addition: a reference that leaves its
own quota idle would be too easy to beat.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf

from evenshare_core.domain.cluster import Node
from evenshare_core.simulation.deserved import ARRIVE, LEAVE, QUOTA, JobTypes, quota_steps
from evenshare_core.simulation.type_flow import TypeFlow, joined
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US

# (time, order, GPUs, type's bit or job's mask, job)
Step = tuple[float, int, int, int, SimJob | None]


def fair_reference(
    cluster: Cluster,
    jobs: Iterable[SimJob],
    partitions: Mapping[int, Sequence[Node]] | None = None,
) -> dict[int, float]:
    """Return the end of each job, in seconds; infinity if it never ends.

    A job never ends if its tenant has no usable quota, it fits no GPU type, or it is cancelled.
    """
    rows = list(jobs)
    types = JobTypes(cluster, rows)
    by_tenant: dict[int, list[SimJob]] = {}
    for job in rows:
        by_tenant.setdefault(job.tenant, []).append(job)
    quotas: dict[int, list[Step]] = {}
    for step in quota_steps(cluster, partitions):
        at_us = -inf if step.at_us is None else float(step.at_us)
        line = (at_us, QUOTA, step.gpus, types.bits[step.gpu_type], None)
        quotas.setdefault(step.tenant, []).append(line)
    ends = {job.id: inf for job in rows}
    for tenant, mine in sorted(by_tenant.items()):
        for members in joined(types.of[job.id] for job in mine):
            group = set(members)
            steps = [
                *quotas.get(tenant, ()),
                *_steps((job for job in mine if types.of[job.id] in group), types.of),
            ]
            _Fluid(members).run(sorted(steps, key=lambda step: step[:2]), ends)
    return ends


def _steps(jobs: Iterable[SimJob], masks: Mapping[int, int]) -> list[Step]:
    steps: list[Step] = []
    for job in jobs:
        steps.append((float(job.submitted_us), ARRIVE, job.gpus, masks[job.id], job))
        if job.cancel_us is not None:
            at_us = float(max(job.cancel_us, job.submitted_us))
            steps.append((at_us, LEAVE, job.gpus, masks[job.id], job))
    return steps


class _Class:
    """Jobs of equal gang, weight and accepted types; they share a rate and its integral."""

    __slots__ = ("gang", "heap", "integral", "jobs", "mask", "weight")

    def __init__(self, gang: int, weight: int, mask: int) -> None:
        self.gang, self.weight, self.mask = gang, weight, mask
        self.jobs, self.integral = 0, 0.0
        # (the rate's integral when the job ends, job)
        self.heap: list[tuple[float, int]] = []


class _Fluid:
    """The jobs of one tenant and group of GPU types."""

    def __init__(self, masks: Sequence[int]) -> None:
        self.flow = TypeFlow(masks)
        self.classes: dict[tuple[int, int, int], _Class] = {}
        self.open: set[int] = set()

    def run(self, steps: Sequence[Step], ends: dict[int, float]) -> None:
        """Process steps and ends of jobs in order of time."""
        now_us, index = 0.0, 0
        while index < len(steps) or self.open:
            rates = self._rates()
            first, span_us = self._next_end(rates)
            comes = index < len(steps) and steps[index][0] <= now_us + span_us
            if not comes and first is None:
                return
            until_us = max(now_us, steps[index][0]) if comes else now_us + span_us
            for row, rate in rates:
                row.integral += rate * (until_us - now_us)
            now_us = until_us
            if comes:
                self._happen(steps[index])
                index += 1
            elif first is not None:
                first.integral, job_id = heappop(first.heap)
                ends[job_id] = now_us / SECOND_US
                self._leave(first, job_id)

    def _rates(self) -> list[tuple[_Class, float]]:
        rows = [row for row in self.classes.values() if row.jobs]
        flow = self.flow
        limits = [(float(gpus), sets) for gpus, sets in zip(flow.supply, flow.sets, strict=True)]
        return water_fill(rows, limits)

    def _next_end(self, rates: Iterable[tuple[_Class, float]]) -> tuple[_Class | None, float]:
        first, span_us = None, inf
        for row, rate in rates:
            while row.heap[0][1] not in self.open:  # the job was cancelled
                heappop(row.heap)
            if rate > 0:
                left_us = max(0.0, row.heap[0][0] - row.integral) / rate
                if left_us < span_us:
                    first, span_us = row, left_us
        return first, span_us

    def _happen(self, step: Step) -> None:
        _, order, gpus, mask, job = step
        if job is None:
            self.flow.offer(mask, gpus)
            return
        key = (gpus, job.weight, mask)
        row = self.classes.setdefault(key, _Class(*key))
        if order == ARRIVE:
            row.jobs += 1
            self.open.add(job.id)
            heappush(row.heap, (row.integral + gpus * job.duration_us, job.id))
        elif job.id in self.open:
            self._leave(row, job.id)

    def _leave(self, row: _Class, job_id: int) -> None:
        row.jobs -= 1
        self.open.discard(job_id)
        if not row.jobs:
            row.heap.clear()


def water_fill(
    rows: Sequence[_Class], limits: Sequence[tuple[float, int]]
) -> list[tuple[_Class, float]]:
    """Return min(gang, level x weight) for each class, with the level as high as the limits allow.

    `limits`: (GPUs, set of types): the most GPUs for the jobs that accept only types of the set.
    The sets are all unions of accepted sets. If there are several, the tightest fixes its classes,
    and the level of the others rises further.
    """
    rates: list[tuple[_Class, float]] = []
    open_ = sorted(rows, key=lambda row: row.gang / row.weight)
    while open_:
        level, tight = inf, 0
        for gpus, union in limits:
            inside = [row for row in open_ if row.mask & ~union == 0]
            held = sum(rate * row.jobs for row, rate in rates if row.mask & ~union == 0)
            reached = _level(inside, gpus - held)
            if reached < level:
                level, tight = reached, union
        if level == inf:
            return rates + [(row, float(row.gang)) for row in open_]
        level = max(0.0, level)
        fixed = [row for row in open_ if row.mask & ~tight == 0]
        rates += [(row, min(float(row.gang), level * row.weight)) for row in fixed]
        open_ = [row for row in open_ if row.mask & ~tight]
    return rates


def _level(rows: Iterable[_Class], gpus: float) -> float:
    """Return the level at which `rows`, sorted by gang over weight, use `gpus`, or infinity."""
    inside = list(rows)
    weights = sum(row.weight * row.jobs for row in inside)
    for row in inside:
        if row.gang * weights >= gpus * row.weight:
            return gpus / weights
        gpus -= row.gang * row.jobs
        weights -= row.weight * row.jobs
    return inf
