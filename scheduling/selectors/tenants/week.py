"""A tenant's ended jobs by day of pool time: slowdown, sharing loss, and deadlines with points.

Slowdown is the time from arrival to end over the time on GPUs. Jobs that ran before their last
hold are left out, because their time on GPUs is a sum over all their leases. A job has a sharing
loss if its rho at its end was below `LOSS_BELOW`. Simulations (docs/metrics.md) use work instead of
time on GPUs: cold starts do not count as received.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from typing import Annotated

from django.db.models import Q

from evenshare_core.simulation.figures import LOSS_BELOW
from scheduling.models import Job
from scheduling.selectors.deadlines.answers import DeadlineStanding, Points, read_standings
from scheduling.selectors.deadlines.instants import deadline_steps_of
from scheduling.selectors.jobs.preemption_costs import PreemptionCost, read_tenant_cost
from tenants.answers import Answer, about, answer_of
from tenants.sql import fetch_rows

# The maximum numbers of jobs that are read, the newest ends and the newest jobs with deadlines.
ENDED_MAX, DATED_MAX = 2000, 500
DAYS, DAY = 7, timedelta(days=1)


@dataclass(slots=True)
class ServedJobs:
    """Sums over jobs that ended in a period.

    `jobs` ran and ended, and `slowdowns` is the sum of their slowdowns. `compared` of them have a
    rho, which is below `LOSS_BELOW` for `losses`. `due` jobs met or missed their deadlines:
    `missed` all, for `points` of at most `most` (millionths of a point).
    """

    jobs: int = 0
    slowdowns: float = 0.0
    compared: int = 0
    losses: int = 0
    due: int = 0
    missed: int = 0
    points: int = 0
    most: int = 0

    def add(self, other: "ServedJobs") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def slowdown(self) -> float | None:
        """The mean slowdown; None without jobs."""
        return self.slowdowns / self.jobs if self.jobs else None

    @property
    def loss_share(self) -> float | None:
        """The share of jobs with a sharing loss; None if no job has a rho."""
        return self.losses / self.compared if self.compared else None

    @property
    def miss_share(self) -> float | None:
        """The share of missed deadlines; None if no deadline was due."""
        return self.missed / self.due if self.due else None

    @property
    def reward_share(self) -> float | None:
        """Points over the most points possible; None if no deadline was due."""
        return self.points / self.most if self.most else None


# Received GPU-time over GPUs is the time on GPUs.
_ENDED = """
SELECT (ended_at AT TIME ZONE 'UTC')::date, count(*),
       sum(extract(epoch FROM ended_at - arrived_at) * 1e6 * gpus / received_gpu_us)::float,
       count(*) FILTER (WHERE deserved_gpu_us > 0),
       count(*) FILTER (WHERE deserved_gpu_us > 0
                        AND received_gpu_us < %(below)s * deserved_gpu_us)
FROM (
    SELECT coalesce(eligible_at, submitted_at) AS arrived_at, ended_at, gpus, received_gpu_us,
           deserved_gpu_us
    FROM scheduling_job
    WHERE pool_id = %(pool)s AND tenant_id = %(tenant)s AND ended_at >= %(since)s
          AND state IN ('succeeded', 'failed') AND profiling_s = 0 AND received_gpu_us > 0
          AND (eligible_at IS NULL OR first_started_at >= eligible_at)
    ORDER BY ended_at DESC LIMIT %(limit)s
) e
GROUP BY 1
"""


def read_served_days(
    pool_id: int, tenant_id: int, *, since: datetime, at: datetime
) -> dict[date, ServedJobs]:
    """Return a tenant's ended jobs in a pool by day of pool time, oldest first, up to `at`.

    Only the newest `ENDED_MAX` ends and `DATED_MAX` jobs with deadlines are read. At most three
    queries.
    """
    days: dict[date, ServedJobs] = {}
    given = {"pool": pool_id, "tenant": tenant_id, "since": since, "limit": ENDED_MAX}
    for day, *sums in fetch_rows(_ENDED, {**given, "below": LOSS_BELOW}):
        days[day] = ServedJobs(*sums)
    for day, due in _deadlines(pool_id, tenant_id, since, at):
        days.setdefault(day, ServedJobs()).add(due)
    return dict(sorted(days.items()))


class ServedDay(Answer, frozen=True, kw_only=True):
    """A tenant's jobs that ended on a day of pool time."""

    day: date
    jobs: Annotated[int, about("Jobs that ran and ended.")]
    slowdown: Annotated[
        float | None, about("Mean time from submission to end over time on GPUs; null: no job.")
    ]
    compared: Annotated[int, about("Jobs with a rho.")]
    losses: Annotated[int, about("Of these, jobs with a sharing loss: a rho below 0.95.")]
    due: Annotated[int, about("Jobs that met or missed their deadlines on this day.")]
    missed: Annotated[int, about("Of these, jobs that missed all their deadlines.")]
    points: Annotated[Points, about("Points for jobs that ended in time.")]
    most: Annotated[Points, about("Points possible for the jobs that were due.")]


class TenantWeek(Answer, frozen=True, kw_only=True):
    """A tenant's last seven days in a pool, in pool time."""

    days: Annotated[tuple[ServedDay, ...], about("Days with such jobs, oldest first.")]
    preemptions: PreemptionCost


def read_week(pool_id: int, tenant_id: int, *, at: datetime, simulates: bool) -> TenantWeek:
    """Return a tenant's last days in a pool up to `at`; `simulates`: no process runs."""
    since = at - DAYS * DAY
    served = read_served_days(pool_id, tenant_id, since=since, at=at)
    return TenantWeek(
        days=tuple(answer_of(ServedDay, sums, day=day) for day, sums in served.items()),
        preemptions=read_tenant_cost(pool_id, tenant_id, since=since, simulates=simulates),
    )


def total(days: Iterable[ServedJobs]) -> ServedJobs:
    """Return the sums over several days."""
    all_days = ServedJobs()
    for day in days:
        all_days.add(day)
    return all_days


def _deadlines(
    pool_id: int, tenant_id: int, since: datetime, at: datetime
) -> Iterable[tuple[date, ServedJobs]]:
    """Yield each job that met or missed its deadlines, with the day on which this was clear."""
    over = Q(ended_at__gte=since) | Q(
        state__in=Job.ACTIVE_STATES, deadline_at__gte=since, deadline_at__lt=at
    )
    jobs = Job.objects.filter(
        over, pool_id=pool_id, tenant_id=tenant_id, deadline_at__isnull=False, profiling_s=0
    ).exclude(state=Job.State.CANCELLED)
    rows = list(jobs.order_by("-id")[:DATED_MAX])
    stories = read_standings(rows, {pool_id: at})
    for job in rows:
        story = stories.get(job.pk)
        if story is None:
            continue
        most = deadline_steps_of(job)[0].reward_micro
        if story.standing is DeadlineStanding.MET and job.ended_at is not None:
            points = story.reward_micro
            yield job.ended_at.date(), ServedJobs(due=1, points=points, most=most)
        elif story.standing is DeadlineStanding.MISSED and story.by >= since:
            yield story.by.date(), ServedJobs(due=1, missed=1, most=most)
