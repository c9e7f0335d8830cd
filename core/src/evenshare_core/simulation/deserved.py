"""GPU-time deserved and received by each tenant and hour, and deserved by each job.

The sums are per tenant j, group of GPU types, and instant t. Jobs of one group (`type_flow.joined`)
accept only types of the group.

| paper | here |
|---|---|
| Quota_j, eq. (6) | quotas by GPU type, scaled to the GPUs that are up: `quota_steps` |
| Demand_j, eq. (7) | gangs of submitted jobs that have not ended, by accepted types |
| FairShare_j = min(Demand_j, Quota_j), eq. (8) | `TypeFlow.usable`: with one type this minimum |
| FairTime_j, AllocTime_j, eq. (9)-(11) | `TenantPeriod.deserved`, `TenantPeriod.received` |
| FairShare_ij, FairTime_ij, eq. (13)(14) | `TenantHours.job_gpu_us`: of its group's FairShare_j |

Received is useful GPU-time on the type that was held. The overhead of a lease counts as its first
part, and not as received. The shortfall of a group in a period is the maximum over sets of types T
of deserved(T) - received(T). A surplus of one type thus offsets another only for jobs that accept
both. All integrals are exact.

Source: LTGF (TPDS 2021), section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from evenshare_core.domain.cluster import Node, capacity_by_type
from evenshare_core.domain.entitlements import Entitlement, effective_quotas
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.type_flow import TypeFlow, bits_of, joined, mask_of
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob
from evenshare_core.units import HOUR_US

# kinds of steps, in the order in which they apply at one instant
QUOTA, ARRIVE, HOLD, LEAVE = range(4)


class QuotaStep(NamedTuple):
    """A change of a tenant's quota of a type by `gpus`; `at_us` is None if from the start."""

    at_us: int | None
    tenant: int
    gpu_type: str
    gpus: int


class TenantPeriod(NamedTuple):
    """A tenant's GPU-us in one period of the grid; `short` is the shortfall below deserved."""

    tenant: int
    period: int
    received: int
    deserved: int
    short: int

    @property
    def rho(self) -> float | None:
        """Return received over deserved, below 1 if there is a shortfall; None if undefined."""
        if not self.deserved:
            return None
        return (self.deserved - self.short if self.short else self.received) / self.deserved


@dataclass(slots=True)
class TenantHours:
    """Tenants' GPU-us by hour from the first submission. `job_gpu_us`: deserved, by job."""

    groups: list[_Group] = field(default_factory=list)
    job_gpu_us: dict[int, float] = field(default_factory=dict)

    def periods(self, hours: int = 1) -> list[TenantPeriod]:
        """Return the sums by tenant and period of `hours`, without empty periods."""
        sums: dict[tuple[int, int], list[int]] = {}
        for group in self.groups:
            for period, (received, deserved) in group.by_period(hours).items():
                row = sums.setdefault((group.tenant, period), [0, 0, 0])
                short = max(fair - got for got, fair in zip(received, deserved, strict=True))
                for place, gpu_us in enumerate((received[-1], deserved[-1], max(0, short))):
                    row[place] += gpu_us
        return [TenantPeriod(*key, *sums[key]) for key in sorted(sums)]


class JobTypes:
    """The GPU types that each job can run on, as masks; 0 if the job fits no type.

    A gang that is larger than a type's capacity, with all nodes up, does not fit it. A type on
    which the books record a lease of the job counts as accepted.
    """

    def __init__(
        self, cluster: Cluster, jobs: Iterable[SimJob], books: Books | None = None
    ) -> None:
        held = books.leases if books is not None else []
        quotas = [row.gpu_type for row in cluster.quotas]
        types = [node.gpu_type for node in cluster.nodes] + quotas
        self.bits = bits_of([*types, *(lease.gpu_type for lease in held)])
        capacity = capacity_by_type(cluster.nodes)
        known: dict[tuple[tuple[str, ...], int], int] = {}
        self.of: dict[int, int] = {}
        for job in jobs:
            key = (job.gpu_types, job.gpus)
            if key not in known:
                accepted = job.gpu_types or self.bits
                fits = [name for name in accepted if job.gpus <= capacity.get(name, 0)]
                known[key] = mask_of(fits, self.bits) if fits else 0
            self.of[job.id] = known[key]
        for lease in held:
            self.of[lease.job] |= self.bits[lease.gpu_type]


class _Group:
    """A tenant's jobs that compete for the same GPU types, swept over time."""

    def __init__(self, tenant: int, masks: Sequence[int]) -> None:
        self.tenant = tenant
        self.flow = TypeFlow(masks)
        # (instant, kind of step, GPUs, bit of the type or mask of the job, job)
        self.steps: list[tuple[int, int, int, int, SimJob | None]] = []
        self.hours: dict[int, tuple[list[int], list[int]]] = {}  # (received, deserved) by set

    def by_period(self, hours: int) -> dict[int, tuple[list[int], list[int]]]:
        if hours == 1:
            return self.hours
        periods: dict[int, tuple[list[int], list[int]]] = {}
        for hour, sums in self.hours.items():
            empty = [0] * len(self.flow.sets)
            before = periods.get(hour // hours, (empty, empty))
            received, deserved = (
                [one + more for one, more in zip(*pair, strict=True)]
                for pair in zip(before, sums, strict=True)
            )
            periods[hour // hours] = (received, deserved)
        return periods

    def sweep(self, begin_us: int, deserved: dict[int, float]) -> None:
        """Process all steps; write each job's deserved GPU-us until its end to `deserved`."""
        flow = self.flow
        held = [0] * len(flow.sets)
        shares = flow.usable()
        weights, last_us = 0, begin_us
        classes: dict[tuple[int, int], list[float]] = {}  # (gang, weight): [jobs, integral]
        begun: dict[int, float] = {}
        for at_us, order, gpus, mask, job in sorted(self.steps, key=_moment):
            if at_us > last_us:
                self._add(last_us - begin_us, at_us - begin_us, held, shares)
                for (gang, weight), row in classes.items():
                    row[1] += min(gang, shares[-1] * weight / weights) * (at_us - last_us)
                last_us = at_us
            if order == HOLD:
                flow.add(held, mask, gpus)
                continue
            if order == QUOTA:
                flow.offer(mask, gpus)
            elif job is not None:
                sign = 1 if order == ARRIVE else -1
                flow.ask(mask, sign * gpus)
                weights += sign * job.weight
                row = classes.setdefault((gpus, job.weight), [0, 0.0])
                row[0] += sign
                if sign > 0:
                    begun[job.id] = row[1]
                else:
                    deserved[job.id] = row[1] - begun.pop(job.id)
                    if not row[0]:
                        del classes[gpus, job.weight]
            shares = flow.usable()

    def _add(self, from_us: int, to_us: int, held: list[int], shares: list[int]) -> None:
        while (held[-1] or shares[-1]) and from_us < to_us:
            hour = from_us // HOUR_US
            span_us = min(to_us, (hour + 1) * HOUR_US) - from_us
            if hour not in self.hours:
                self.hours[hour] = ([0] * len(held), [0] * len(held))
            received, deserved = self.hours[hour]
            for place, gpus in enumerate(held):
                received[place] += gpus * span_us
                deserved[place] += shares[place] * span_us
            from_us += span_us


def _moment(step: tuple[int, int, int, int, SimJob | None]) -> tuple[int, int]:
    return step[:2]


def tenant_hours(
    cluster: Cluster,
    jobs: Sequence[SimJob],
    books: Books,
    partitions: Mapping[int, Sequence[Node]] | None = None,
) -> TenantHours:
    """Return each tenant's GPU-time received in the run of `books`, and deserved, by hour.

    A job without an end in the books ends with the last record. `partitions`: tenant -> its nodes,
    if each tenant has a separate pool.
    """
    hours = TenantHours()
    if not jobs:
        return hours
    types = JobTypes(cluster, jobs, books)
    masks: dict[int, set[int]] = {}
    for job in jobs:
        masks.setdefault(job.tenant, set()).add(types.of[job.id])
    groups: dict[tuple[int, int], _Group] = {}
    for tenant in sorted(masks):
        for members in joined(masks[tenant]):
            group = _Group(tenant, members)
            hours.groups.append(group)
            groups |= {(tenant, mask): group for mask in members}
    by_id = {job.id: job for job in jobs}
    begin_us = min(job.submitted_us for job in jobs)
    _note_quotas(hours.groups, types.bits, quota_steps(cluster, partitions), begin_us)
    _note_jobs(groups, types.of, by_id, books)
    for lease in books.leases:
        job = by_id[lease.job]
        bit, steps = types.bits[lease.gpu_type], groups[job.tenant, types.of[job.id]].steps
        steps.append((lease.start_us + lease.overhead_us, HOLD, job.gpus, bit, None))
        steps.append((lease.end_us, HOLD, -job.gpus, bit, None))
    for group in hours.groups:
        group.sweep(begin_us, hours.job_gpu_us)
    return hours


def _note_quotas(
    groups: Sequence[_Group], bits: Mapping[str, int], steps: Iterable[QuotaStep], begin_us: int
) -> None:
    mine: dict[int, list[_Group]] = {}
    for group in groups:
        mine.setdefault(group.tenant, []).append(group)
    for step in steps:
        at_us = begin_us if step.at_us is None else max(begin_us, step.at_us)
        for group in mine.get(step.tenant, ()):
            group.steps.append((at_us, QUOTA, step.gpus, bits[step.gpu_type], None))


def _note_jobs(
    groups: Mapping[tuple[int, int], _Group],
    masks: Mapping[int, int],
    by_id: Mapping[int, SimJob],
    books: Books,
) -> None:
    ends = {row.job: row.end_us for row in books.jobs}
    last_us = max([*ends.values(), *(row.end_us for row in books.leases)], default=0)
    for job in by_id.values():
        if mask := masks[job.id]:
            end_us = ends.get(job.id, max(last_us, job.submitted_us))
            steps = groups[job.tenant, mask].steps
            steps.append((job.submitted_us, ARRIVE, job.gpus, mask, job))
            steps.append((end_us, LEAVE, job.gpus, mask, job))


def quota_steps(
    cluster: Cluster, partitions: Mapping[int, Sequence[Node]] | None = None
) -> list[QuotaStep]:
    """Return the changes of quotas with the nodes that are up, in order of time.

    If quotas exceed the GPUs of their type, they are scaled down as in a round. The scaling takes
    effect at the instant of the change, because the next round would depend on the grid.
    """
    if not partitions:
        return _quota_steps(cluster.nodes, cluster.quotas, cluster.changes)
    steps: list[QuotaStep] = []
    for tenant, nodes in partitions.items():
        ids = {node.id for node in nodes}
        quotas = [row for row in cluster.quotas if row.tenant == tenant]
        steps += _quota_steps(nodes, quotas, [row for row in cluster.changes if row.node in ids])
    return steps


def _quota_steps(
    nodes: Sequence[Node], quotas: Sequence[Entitlement], changes: Sequence[NodeChange]
) -> list[QuotaStep]:
    capacity = capacity_by_type(nodes)
    rows: dict[str, list[Entitlement]] = {}
    for row in quotas:
        rows.setdefault(row.gpu_type, []).append(row)
    there = {node.id: node.gpus for node in nodes}
    type_of = {node.id: node.gpu_type for node in nodes}
    now: dict[tuple[int, str], int] = {}
    steps: list[QuotaStep] = []

    def scale(at_us: int | None, gpu_type: str) -> None:
        mine = rows.get(gpu_type, [])
        gpus = effective_quotas([row.gpus for row in mine], capacity.get(gpu_type, 0))
        for row, count in zip(mine, gpus, strict=True):
            key = (row.tenant, gpu_type)
            if count != now.get(key, 0):
                steps.append(QuotaStep(at_us, *key, count - now.get(key, 0)))
                now[key] = count

    for gpu_type in sorted(rows):
        scale(None, gpu_type)
    ordered = sorted(changes, key=lambda change: change.at_us)
    for at_us, together in groupby(ordered, key=lambda change: change.at_us):
        changed = set()
        for change in together:
            gpu_type = type_of[change.node]
            capacity[gpu_type] += change.gpus - there[change.node]
            there[change.node] = change.gpus
            changed.add(gpu_type)
        for gpu_type in sorted(changed):
            scale(at_us, gpu_type)
    return steps
