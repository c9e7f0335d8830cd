"""Figures of jobs with deadlines, computed only from a run's records.

| figure | here |
|---|---|
| reward rate | mean over jobs with a deadline of the reward at their end / their first reward |
| miss rate | 1 - reward rate; also for jobs with one deadline and with several separately |
| best-effort JCT | mean of end - submission of finished jobs without a deadline |
| suspensions | preempted leases of jobs with a deadline / jobs with a deadline |

Cancelled jobs and profiling runs do not count. Jobs that never end count as missed. Source:
UniSched (15), which as printed is the reward rate; figures 6 and 8.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from evenshare_core.simulation.books import Books
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import SECOND_US

# Reasons for which a lease ends, at or before its expiry, although its job has work left.
PREEMPTED = ("not_renewed", "preempted", "moved")


@dataclass(frozen=True, slots=True)
class DeadlineFigures:
    """Figures of jobs with deadlines; each is None if the run has no job of its class."""

    miss_rate: float | None = None
    strict_miss_rate: float | None = None
    soft_miss_rate: float | None = None
    best_effort_jct_s: float | None = None
    suspensions: float | None = None

    @property
    def reward_rate(self) -> float | None:
        """Return the reward of jobs with deadlines as a share of the highest possible reward."""
        return None if self.miss_rate is None else 1 - self.miss_rate

    def published(self) -> dict[str, float | None]:
        """Return the further columns of a table of runs, by column name."""
        return {
            "deadline_reward_rate": self.reward_rate,
            "strict_miss_rate": self.strict_miss_rate,
            "soft_miss_rate": self.soft_miss_rate,
            "best_effort_jct_s": self.best_effort_jct_s,
            "slo_suspensions": self.suspensions,
        }


def values_lost(jobs: Iterable[SimJob], books: Books) -> dict[int, float]:
    """Return the lost share of the first reward of each job with a deadline, by job, 0 to 1."""
    over = {row.job: row for row in books.jobs}
    lost: dict[int, float] = {}
    for job in jobs:
        end = over.get(job.id)
        if job.deadline_us is not None and (end is None or end.state != "cancelled"):
            lost[job.id] = job.value_lost(None if end is None else end.end_us)
    return lost


def deadline_figures(jobs: Sequence[SimJob], books: Books) -> DeadlineFigures:
    lost = values_lost(jobs, books)
    if not lost:
        return DeadlineFigures()
    ended = {row.job: row for row in books.jobs if row.state != "cancelled"}
    suspended = sum(row.reason in PREEMPTED for row in books.leases if row.job in lost)
    return DeadlineFigures(
        fmean(lost.values()),
        _mean(lost[job.id] for job in jobs if job.id in lost and job.job_class == "strict_slo"),
        _mean(lost[job.id] for job in jobs if job.id in lost and job.job_class == "soft_slo"),
        _mean(
            (ended[job.id].end_us - job.submitted_us) / SECOND_US
            for job in jobs
            if job.deadline_us is None and not job.is_profiler and job.id in ended
        ),
        suspended / len(lost),
    )


def _mean(values: Iterable[float]) -> float | None:
    rows = list(values)
    return fmean(rows) if rows else None
