"""The figures of a run, from its records alone: the same definitions for every policy.

| figure | here |
|---|---|
| rho of a job | gang x work done / deserved, eq. (14)(15) of LTGF; cold starts are not work |
| sharing loss | share of jobs that did all their work with rho < 0.95 |
| unfair interval | (tenant, hour) with rho < 0.99; without those where nothing is deserved |
| deficit | sum over (tenant, hour) of deserved GPU-time not received / all deserved |
| late | ends over a second later than in the fair reference: every tenant alone on its quota, |
| | shared by eq. (13) among the jobs that the reference itself has not finished |
| utilisation | GPUs at useful work / GPUs, between the first and the last submission |
| waste | (idle GPUs that waiting jobs ask for + overhead) / GPUs, between the same |
| queue | time in which a job was submitted, not over, and held nothing |
| slowdown | (end - submission) / work |
| deadline miss | mean over jobs with a deadline, those taken back left out, of the share of their |
| | value that was lost: a strict one 0 or 1, a soft one 1 - value at its end / its first value |
| revenue | `lenders`: how far incomes follow contributions |

Where GPU types differ in speed, work is told on the slowest one that a job can use, so that a
faster one gives more than it takes: rho above 1, a slowdown below it.
A job counts for the GPU type of its first lease. Quotas are those of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import fmean

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.fairness.rho import rho_of
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.lenders import Lender, lenders_of, revenue_fairness
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import HOUR_US, SECOND_US

LOSS_BELOW, UNFAIR_BELOW = 0.95, 0.99
# How a lease ended whose job had not done all of its work, at or before its expiry.
PREEMPTED = ("not_renewed", "preempted", "moved")

Steps = list[tuple[int, int]]  # (instant, change of GPUs)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One job that did all its work; times in seconds, rho None where nothing was deserved."""

    job: SimJob
    start_s: float
    end_s: float
    queue_s: float
    slowdown: float
    rho: float | None

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.job.submitted_us / SECOND_US


@dataclass(slots=True)
class Figures:
    """All figures of one run. `hours`: per hour, (lowest rho of a tenant or None, use of GPUs)."""

    jobs: list[JobFigures] = field(default_factory=list)
    sharing_loss: float | None = None
    unfair_intervals: float | None = None
    deficit: float | None = None
    late: float | None = None
    utilisation: float | None = None
    waste: float | None = None
    deadline_miss_rate: float | None = None
    revenue_fairness: float | None = None
    lenders: list[Lender] = field(default_factory=list)
    preemptions: int = 0
    hours: list[tuple[float | None, float]] = field(default_factory=list)

    def mean(self, name: str) -> float | None:
        """Average of a field over the jobs; None without jobs."""
        return fmean(getattr(row, name) for row in self.jobs) if self.jobs else None

    def published(self) -> dict[str, float | int | None]:
        """What tables of runs and of outlooks both show, by the name that they give it."""
        return {
            "sharing_loss_jobs": self.sharing_loss,
            "tenant_unfair_intervals": self.unfair_intervals,
            "tenant_deficit": self.deficit,
            "late_vs_fair_reference": self.late,
            "gpu_utilisation": self.utilisation,
            "waste": self.waste,
            "preemptions": self.preemptions,
            "deadline_miss_rate": self.deadline_miss_rate,
        }


class _Claim:
    """Demand, holds and deserved GPU-time of one (tenant, GPU type), swept over time."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.steps: list[tuple[int, int, int, SimJob | None, int]] = []
        self.hours: dict[int, list[float]] = {}  # hour: [received, deserved], GPU-us
        self.deserved: dict[int, float] = {}  # by job

    def sweep(self) -> None:
        """Walk all steps: (instant, sequence, kind, job, GPUs)."""
        held = demand = weights = 0
        last_us = 0
        classes: dict[tuple[int, int], list[float]] = {}  # (gang, weight): [jobs, integral]
        begun: dict[int, float] = {}
        for at_us, _, kind, job, gpus in sorted(self.steps, key=lambda step: step[:2]):
            if at_us > last_us:
                share = min(demand, self.quota)
                self._add(last_us, at_us, held, share)
                for (gang, weight), row in classes.items():
                    row[1] += min(gang, share * weight / weights) * (at_us - last_us)  # (13)(14)
                last_us = at_us
            if kind == 0:
                held += gpus
                continue
            if job is None:
                raise ValueError("an arrival or an end without its job")
            row = classes.setdefault((job.gpus, job.weight), [0, 0.0])
            demand, weights = demand + kind * job.gpus, weights + kind * job.weight
            row[0] += kind
            if kind > 0:
                begun[job.id] = row[1]
            else:
                self.deserved[job.id] = row[1] - begun.pop(job.id)
                if not row[0]:
                    del classes[job.gpus, job.weight]

    def _add(self, from_us: int, to_us: int, held: int, share: int) -> None:
        while (held or share) and from_us < to_us:
            hour = from_us // HOUR_US
            until_us = min(to_us, (hour + 1) * HOUR_US)
            sums = self.hours.setdefault(hour, [0, 0])
            sums[0] += held * (until_us - from_us)
            sums[1] += share * (until_us - from_us)
            from_us = until_us


def figures_of(
    cluster: Cluster,
    jobs: Sequence[SimJob],
    books: Books,
    *,
    between_us: tuple[int, int] | None = None,
) -> Figures:
    """Return the figures of a run; all are None where no job was submitted.

    `between_us`: (first, last) instant for utilisation and waste, instead of the submissions'.
    """
    figures = Figures()
    if not jobs:
        return figures
    by_id = {job.id: job for job in jobs}
    claims = _swept(cluster, by_id, books)
    deserved = {job: gpu_us for claim in claims.values() for job, gpu_us in claim.deserved.items()}
    figures.jobs = _job_rows(by_id, books, deserved)
    _tenants(figures, claims)
    _losses(figures, cluster)
    figures.deadline_miss_rate = _deadline_miss_rate(jobs, books)
    figures.lenders = lenders_of(books)
    figures.revenue_fairness = revenue_fairness(figures.lenders)
    _pool(figures, cluster, by_id, books, between_us)
    figures.preemptions = sum(row.reason in PREEMPTED for row in books.leases)
    return figures


def _swept(
    cluster: Cluster, by_id: dict[int, SimJob], books: Books
) -> dict[tuple[int, str], _Claim]:
    quotas = {(row.tenant, row.gpu_type): row.gpus for row in cluster.quotas}
    default = cluster.nodes[0].gpu_type if cluster.nodes else ""
    types: dict[int, str] = {}
    claims: dict[tuple[int, str], _Claim] = {}
    sequence = 0

    def claim(tenant: int, gpu_type: str) -> _Claim:
        key = (tenant, gpu_type)
        return claims.setdefault(key, _Claim(quotas.get(key, 0)))

    for lease in books.leases:
        job = by_id[lease.job]
        types.setdefault(lease.job, lease.gpu_type)
        steps = claim(job.tenant, lease.gpu_type).steps
        sequence += 2
        steps.append((lease.start_us + lease.overhead_us, sequence, 0, None, job.gpus))
        steps.append((lease.end_us, sequence + 1, 0, None, -job.gpus))
    for row in books.jobs:
        job = by_id[row.job]
        accepted = job.gpu_types[0] if job.gpu_types else default
        steps = claim(job.tenant, types.get(row.job, accepted)).steps
        sequence += 2
        # Arrivals come before ends of the same instant: a class must not be lost in between.
        steps.append((job.submitted_us, -1, 1, job, 0))
        steps.append((row.end_us, sequence, -1, job, 0))
    for one in claims.values():
        one.sweep()
    return claims


def _job_rows(
    by_id: dict[int, SimJob], books: Books, deserved: dict[int, float]
) -> list[JobFigures]:
    held: dict[int, int] = {}
    for lease in books.leases:
        held[lease.job] = held.get(lease.job, 0) + lease.end_us - lease.start_us
    rows = []
    for row in sorted(books.jobs):
        if row.state == "cancelled" or row.start_us is None:
            continue
        job, jct_us = by_id[row.job], row.end_us - by_id[row.job].submitted_us
        fair = deserved.get(row.job, 0.0)
        rows.append(
            JobFigures(
                job,
                row.start_us / SECOND_US,
                row.end_us / SECOND_US,
                (jct_us - held.get(row.job, 0)) / SECOND_US,
                jct_us / job.duration_us,
                rho_of(job.gpus * job.duration_us, fair),
            )
        )
    return rows


def _tenants(figures: Figures, claims: dict[tuple[int, str], _Claim]) -> None:
    lowest: dict[int, float] = {}
    unfair = intervals = 0
    short = deserved = 0.0
    for claim in claims.values():
        for hour, (received, fair) in claim.hours.items():
            if not fair:
                continue
            rho = received / fair
            intervals += 1
            unfair += rho < UNFAIR_BELOW
            short += max(0.0, fair - received)
            deserved += fair
            lowest[hour] = min(rho, lowest.get(hour, rho))
    if intervals:
        figures.unfair_intervals = unfair / intervals
        figures.deficit = short / deserved
        last = max(lowest)
        figures.hours = [(lowest.get(hour), 0.0) for hour in range(min(lowest), last + 1)]


def _losses(figures: Figures, cluster: Cluster) -> None:
    rhos = [row.rho for row in figures.jobs if row.rho is not None]
    if rhos:
        figures.sharing_loss = sum(rho < LOSS_BELOW for rho in rhos) / len(rhos)
    reference = fair_reference(cluster.quotas, [row.job for row in figures.jobs])
    if reference:
        late = sum(row.end_s > reference[row.job.id] + 1 for row in figures.jobs)
        figures.late = late / len(figures.jobs)


def _deadline_miss_rate(jobs: Sequence[SimJob], books: Books) -> float | None:
    """UniSched (15) of jobs that weigh the same; None where no job has a deadline."""
    over = {row.job: row for row in books.jobs}
    lost = []
    for job in jobs:
        row = over.get(job.id)
        if job.deadline_us is None or (row is not None and row.state == "cancelled"):
            continue
        lost.append(job.value_lost(None if row is None else row.end_us))
    return fmean(lost) if lost else None


def fair_reference(quotas: Sequence[Entitlement], jobs: Iterable[SimJob]) -> dict[int, float]:
    """Return when each job would end, in seconds, on its tenant's quota shared by eq. (13).

    GPUs of all types of a tenant count as one. Jobs of tenants without quota are left out of the
    sharing: they end with infinity.
    """
    gpus: dict[int, int] = {}
    for row in quotas:
        gpus[row.tenant] = gpus.get(row.tenant, 0) + row.gpus
    by_tenant: dict[int, list[SimJob]] = {}
    for job in jobs:
        by_tenant.setdefault(job.tenant, []).append(job)
    ends: dict[int, float] = {}
    for tenant, rows in sorted(by_tenant.items()):
        _reference(gpus.get(tenant, 0), sorted(rows, key=lambda job: job.submitted_us), ends)
    return ends


def _reference(quota: int, jobs: list[SimJob], ends: dict[int, float]) -> None:
    """One tenant's jobs as a fluid; a class (gang, weight) has one integral for all its jobs."""
    classes: dict[tuple[int, int], float] = {}
    heaps: dict[tuple[int, int], list[tuple[float, int]]] = {}
    now_us, index, demand, weights = 0.0, 0, 0, 0
    while quota and (index < len(jobs) or demand):
        share = min(demand, quota)
        rates = {key: min(key[0], share * key[1] / weights) for key, heap in heaps.items() if heap}
        first, span_us = None, float("inf")
        for key, rate in rates.items():
            left_us = (heaps[key][0][0] - classes[key]) / rate
            if left_us < span_us:
                first, span_us = key, max(0.0, left_us)
        arrives = index < len(jobs) and jobs[index].submitted_us <= now_us + span_us
        until_us = max(now_us, float(jobs[index].submitted_us)) if arrives else now_us + span_us
        for key, rate in rates.items():
            classes[key] += rate * (until_us - now_us)
        now_us = until_us
        if arrives:
            job, sign = jobs[index], 1
            index += 1
            key = (job.gpus, job.weight)
            target = classes.setdefault(key, 0.0) + job.gpus * job.duration_us
            heappush(heaps.setdefault(key, []), (target, job.id))
        elif first is not None:
            key, sign = first, -1
            classes[key], job_id = heappop(heaps[key])
            ends[job_id] = now_us / SECOND_US
        demand, weights = demand + sign * key[0], weights + sign * key[1]
    for job in jobs:
        ends.setdefault(job.id, float("inf"))


def _pool(
    figures: Figures,
    cluster: Cluster,
    by_id: dict[int, SimJob],
    books: Books,
    between_us: tuple[int, int] | None,
) -> None:
    """Utilisation, waste and their course by the hour."""
    submitted = [job.submitted_us for job in by_id.values()]
    first_us, last_us = between_us or (min(submitted), max(submitted))
    if not cluster.capacity or last_us <= first_us:
        return
    steps: list[tuple[int, int, int, int, int]] = [(0, cluster.capacity, 0, 0, 0)]
    gpus_of = {node.id: node.gpus for node in cluster.nodes}
    for change in sorted(cluster.changes, key=lambda change: change.at_us):
        steps.append((change.at_us, change.gpus - gpus_of[change.node], 0, 0, 0))
        gpus_of[change.node] = change.gpus
    for lease in books.leases:
        gpus = by_id[lease.job].gpus
        steps.append((lease.start_us, 0, gpus, 0, 0))
        steps.append((lease.start_us + lease.overhead_us, 0, 0, gpus, 0))
        steps.append((lease.end_us, 0, -gpus, -gpus, 0))
    for row in books.jobs:
        gpus = by_id[row.job].gpus
        steps += [(by_id[row.job].submitted_us, 0, 0, 0, gpus), (row.end_us, 0, 0, 0, -gpus)]
    steps.sort(key=lambda step: step[0])
    capacity = held = useful = asked = 0
    now_us = offered = used = wasted = 0
    hours: dict[int, int] = {}
    for at_us, more, held_more, useful_more, asked_more in [*steps, (last_us, 0, 0, 0, 0)]:
        from_us, to_us = max(now_us, first_us), min(at_us, last_us)
        if from_us < to_us:
            span_us = to_us - from_us
            offered += capacity * span_us
            used += useful * span_us
            wasted += (max(0, min(capacity - held, asked - held)) + held - useful) * span_us
            hour = (from_us + to_us) // 2 // HOUR_US
            hours[hour] = hours.get(hour, 0) + useful * span_us
        now_us = max(now_us, at_us)
        capacity, held = capacity + more, held + held_more
        useful, asked = useful + useful_more, asked + asked_more
    if offered:  # nodes may be lost for as long as jobs come
        figures.utilisation, figures.waste = used / offered, wasted / offered
    lowest = dict(enumerate((low for low, _ in figures.hours), start=first_us // HOUR_US))
    figures.hours = [
        (lowest.get(hour), min(1.0, hours.get(hour, 0) / (cluster.capacity * HOUR_US)))
        for hour in range(first_us // HOUR_US, last_us // HOUR_US + 1)
    ]
