"""Figures of a run, computed only from its records with the same definitions for every policy.

| figure | here |
|---|---|
| rho of a job | gang x work done / deserved, eq. (14)(15) of LTGF; cold starts are not work |
| sharing loss | share of finished jobs with rho < 0.95 |
| unfair interval | (tenant, hour) with rho < 0.99; without hours in which nothing is deserved |
| deficit | sum over (tenant, hour) of deserved GPU-time not received / all deserved |
| daily deficit | the same by days: GPU-time received later on the same day makes up for it |
| late | ends over a second later than in the fair reference (`reference`) |
| utilisation | GPUs at useful work / GPUs, between the first and the last submission |
| waste | (idle GPUs that waiting jobs could use + overhead) / GPUs, in the same span |
| queue | time between submission and end in which a job held no GPUs |
| slowdown | (end - submission) / work |
| deadlines | `deadline_figures` |
| revenue | `lenders`: how closely incomes follow contributions |

Formulas: docs/metrics.md. Deserved and received GPU-time: `deserved`. GPU types and the sets that
jobs accept: `type_flow`.

Hours and days count from the first submission. Work is measured on the slowest type that a job can
use. A faster type thus yields rho above 1 and a slowdown below 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from evenshare_core.domain.cluster import Node
from evenshare_core.fairness.rho import rho_of
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.deadline_figures import (
    PREEMPTED,
    DeadlineFigures,
    deadline_figures,
)
from evenshare_core.simulation.deserved import TenantHours, TenantPeriod, tenant_hours
from evenshare_core.simulation.lenders import Lender, lenders_of, revenue_fairness
from evenshare_core.simulation.pool_use import Utilisation, pool_use
from evenshare_core.simulation.reference import fair_reference
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US

LOSS_BELOW, UNFAIR_BELOW = 0.95, 0.99
LATE_S = 1  # a job is late only if it ends later than the reference by more than this
HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Figures of a finished job, times in seconds; rho is None if nothing was deserved."""

    job: SimJob
    start_s: float
    end_s: float
    queue_s: float
    slowdown: float
    rho: float | None

    @property
    def jct_s(self) -> float:
        """Return the time from submission to end."""
        return self.end_s - self.job.submitted_us / SECOND_US


class HourFigures(NamedTuple):
    """Lowest rho of a tenant, deficit of all tenants, share of GPUs in use; None if undefined."""

    least_rho: float | None = None
    deficit: float | None = None
    use: float | None = None


@dataclass(slots=True)
class Figures:
    """All figures of a run. `hours` count from the first submission and may have gaps."""

    jobs: list[JobFigures] = field(default_factory=list)
    sharing_loss: float | None = None
    unfair_intervals: float | None = None
    deficit: float | None = None
    daily_deficit: float | None = None
    late: float | None = None
    utilisation: float | None = None
    waste: float | None = None
    deadline_miss_rate: float | None = None
    deadlines: DeadlineFigures = field(default_factory=DeadlineFigures)
    revenue_fairness: float | None = None
    lenders: list[Lender] = field(default_factory=list)
    preemptions: int = 0
    tenant_hours: list[TenantPeriod] = field(default_factory=list)
    hours: dict[int, HourFigures] = field(default_factory=dict)

    def mean(self, name: str) -> float | None:
        """Return the average of a field over the jobs; None without jobs."""
        return fmean(getattr(row, name) for row in self.jobs) if self.jobs else None

    def percentile(self, name: str, percent: int) -> float | None:
        """Return the smallest value of a field that `percent` % of the jobs do not exceed."""
        values = sorted(getattr(row, name) for row in self.jobs)
        return values[-(-len(values) * percent // 100) - 1] if values else None

    def of_tenant(self, tenant: int) -> "Figures":
        """Return a tenant's jobs, hours, sharing loss, unfair intervals and deficit."""
        mine = Figures(
            jobs=[row for row in self.jobs if row.job.tenant == tenant],
            tenant_hours=[row for row in self.tenant_hours if row.tenant == tenant],
        )
        _set_shares(mine)
        return mine

    def published(self) -> dict[str, float | int | None]:
        """Return the columns common to tables of runs and of outlooks, by column name."""
        return {
            "sharing_loss_jobs": self.sharing_loss,
            "tenant_unfair_intervals": self.unfair_intervals,
            "tenant_deficit": self.deficit,
            "tenant_daily_deficit": self.daily_deficit,
            "late_vs_fair_reference": self.late,
            "gpu_utilisation": self.utilisation,
            "waste": self.waste,
            "preemptions": self.preemptions,
            "deadline_miss_rate": self.deadline_miss_rate,
        }


def figures_of(
    cluster: Cluster,
    jobs: Sequence[SimJob],
    books: Books,
    *,
    between_us: tuple[int, int] | None = None,
    partitions: Mapping[int, Sequence[Node]] | None = None,
) -> Figures:
    """Return the figures of a run; all are None if no job was submitted.

    `between_us`: (first, last) instant for utilisation and waste; by default the first and the last
    submission. `partitions`: tenant -> its nodes, if each tenant has a separate pool.
    """
    figures = Figures()
    if not jobs:
        return figures
    by_id = {job.id: job for job in jobs}
    hours = tenant_hours(cluster, jobs, books, partitions)
    figures.jobs = _job_rows(by_id, books, hours.job_gpu_us)
    figures.tenant_hours = hours.periods()
    _set_shares(figures)
    _set_hours(figures, hours)
    _set_late(figures, fair_reference(cluster, jobs, partitions))
    figures.deadlines = deadline_figures(jobs, books)
    figures.deadline_miss_rate = figures.deadlines.miss_rate
    figures.lenders = lenders_of(books)
    figures.revenue_fairness = revenue_fairness(figures.lenders)
    _pool(figures, pool_use(cluster, by_id, books, between_us))
    figures.preemptions = sum(row.reason in PREEMPTED for row in books.leases)
    return figures


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


def _set_shares(figures: Figures) -> None:
    """Set the figures of fair shares that follow from the jobs and the tenants' hours."""
    rhos = [row.rho for row in figures.jobs if row.rho is not None]
    if rhos:
        figures.sharing_loss = sum(rho < LOSS_BELOW for rho in rhos) / len(rhos)
    due = [row for row in figures.tenant_hours if row.deserved]
    if due:
        figures.unfair_intervals = fmean((row.rho or 0) < UNFAIR_BELOW for row in due)
        figures.deficit = _deficit(due)


def _set_hours(figures: Figures, hours: TenantHours) -> None:
    """Set the daily deficit, and the figures by hour."""
    figures.daily_deficit = _deficit(hours.periods(HOURS_OF_DAY))
    by_hour: dict[int, list[TenantPeriod]] = {}
    for row in figures.tenant_hours:
        if row.deserved:
            by_hour.setdefault(row.period, []).append(row)
    figures.hours = {
        hour: HourFigures(min(row.rho or 0 for row in rows), _deficit(rows))
        for hour, rows in sorted(by_hour.items())
    }


def _deficit(rows: Iterable[TenantPeriod]) -> float | None:
    short = deserved = 0
    for row in rows:
        short, deserved = short + row.short, deserved + row.deserved
    return short / deserved if deserved else None


def _set_late(figures: Figures, reference: Mapping[int, float]) -> None:
    if figures.jobs:
        late = sum(row.end_s > reference[row.job.id] + LATE_S for row in figures.jobs)
        figures.late = late / len(figures.jobs)


def _pool(figures: Figures, use: Utilisation) -> None:
    figures.utilisation, figures.waste = use.utilisation, use.waste
    for hour, share in use.hours.items():
        row = figures.hours.get(hour, HourFigures())
        figures.hours[hour] = row._replace(use=share)
