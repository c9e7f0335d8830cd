"""Creates profiling runs: separate jobs that measure the speed of a job type.

A job type is profiled if a job of more than `RUN_GPUS` GPUs waits and the time of its iterations is
unknown. Such a job type gets a run on one GPU, then a run on two GPUs, each for half the time.
Equation (2) gives the other sizes. Each round computes again which runs are needed. So it does not
matter how a job was submitted, and nothing is lost in a crash. No job waits for a run. Source:
UniSched, III-A; docs/pools.md.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import structlog
from django.db.models import Max

from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.fence import lock_fence
from scheduling.models import Job, Measurement, Pool, Profile, VirtualWork
from scheduling.selectors.jobs.estimates import profile_value, read_job_types
from tenants.faults import fault_point
from tenants.scopes import engine_scope

# The numbers of GPUs that equation (2) needs, in the order of measurement.
SIZES = (1, 2)
RUN_GPUS = SIZES[-1]
# Repeat measurements that are older than this, in pool time.
FRESH = timedelta(days=7)
# The maximum number of a tenant's runs that wait or run at once in a pool.
RUNS_MOST = 2
# A run for which no job waits is kept for this time, since another job may come. After this time a
# waiting run no longer counts towards its tenant's limit.
KEPT = timedelta(hours=1)
SOURCE = "profiling"

log = structlog.get_logger(__name__)


class _Wish(NamedTuple):
    """A waiting job, and the number of GPUs on which its job type must be measured."""

    job: Job
    gpus: int


def make_profiling_runs(pool: Pool, token: int, *, at: datetime) -> int:
    """Create the profiling runs that the pool's waiting jobs need; return the number of new runs.

    At most one run of each job type waits or runs. A tenant has at most `RUNS_MOST` runs, not
    counting those that have waited for `KEPT`. A run that has waited for `KEPT` is withdrawn if no
    job waits for it any more, or if the operator has ended profiling. Runs that have started
    continue.
    """
    runs = Job.objects.filter(pool=pool, profiling_s__gt=0, state__in=Job.ACTIVE_STATES)
    with engine_scope(pool.pk):
        if not pool.profiling_s and not runs.exists():
            return 0
        fence = lock_fence(pool.pk, token)
        if fence.last_at is None:
            return 0
        # Create runs only for jobs that a round left waiting: running jobs report their own speeds.
        wishes = _wishes(pool, fence.last_at, at) if pool.profiling_s else {}
        active = list(runs)
        _withdraw(active, wishes, at)
        made = _make(pool, list(wishes.values()), active, at)
        fault_point("profiling.before_commit")
    return made


def _wishes(pool: Pool, seen_at: datetime, at: datetime) -> dict[int, _Wish]:
    """Return the needed measurements by job type, in the order of the jobs' submission."""
    waiting = _waiting(pool, seen_at)
    profiles = {job.profile_id: job.profile for job in waiting if job.profile}
    if not profiles:
        return {}
    types = read_job_types([profile_value(row) for row in profiles.values()], since=at - FRESH)
    past = _past_sizes(profiles.values(), at)
    wishes: dict[int, _Wish] = {}
    for job in waiting:
        profile = job.profile_id or 0
        size = types.size(profile, job.gpus, tuple(job.gpu_types))
        if profile in wishes or past[profile] is None or (size and size.is_profiled):
            continue
        known = types.measured_gpus(profile) | (past[profile] or set())
        wanted = next((gpus for gpus in SIZES if gpus not in known), None)
        if wanted is not None:
            wishes[profile] = _Wish(job, wanted)
    return wishes


def _waiting(pool: Pool, seen_at: datetime) -> list[Job]:
    """Return jobs that never ran and need more GPUs than a run, the first of each type and size."""
    jobs = Job.objects.filter(
        pool=pool, state=Job.State.PENDING, terms=0, profiling_s=0, gpus__gt=RUN_GPUS,
        profile__isnull=False, quarantine="", holds=[], submitted_at__lt=seen_at,
    )  # fmt: skip # rows of what belongs together
    first = jobs.order_by("profile_id", "gpus", "submitted_at", "id").distinct("profile_id", "gpus")
    rows = list(first.select_related("profile"))
    return sorted(rows, key=lambda job: (job.submitted_at, job.pk))


def _past_sizes(profiles: Collection[Profile], at: datetime) -> dict[int, set[int] | None]:
    """Return the recently profiled sizes of each job type, or None if no run is useful.

    None means that a run reported nothing, or was cancelled before its first report. Then no more
    runs are created until the job type is declared again.
    """
    ids = [row.pk for row in profiles]
    sizes: dict[int, set[int] | None] = {one: set() for one in ids}
    over = Job.objects.filter(profile__in=ids, profiling_s__gt=0)
    over = over.exclude(state__in=Job.ACTIVE_STATES)
    # A withdrawn run says nothing about its job type. Any measurements from it are counted
    # separately.
    over = over.exclude(profiled_for__isnull=True, state=Job.State.CANCELLED)
    seen = _seen(ids)
    before = {row.pk: row.past_run for row in profiles}
    for run in over.order_by("id"):
        profile = run.profile_id or 0
        if run.pk <= before[profile]:
            continue
        measured_at = seen.get((profile, run.gpus))
        known = sizes[profile]
        if (
            run.first_started_at is None
            or measured_at is None
            or measured_at < run.first_started_at
        ):
            sizes[profile] = None
        elif known is not None and run.ended_at is not None and run.ended_at >= at - FRESH:
            known.add(run.gpus)
    return sizes


def _seen(profiles: Sequence[int]) -> Mapping[tuple[int, int], datetime]:
    """Return the last reports of iterations, by job type and number of GPUs."""
    rows = Measurement.objects.filter(profile__in=profiles, kind=Measurement.Kind.ITERATION)
    last = rows.order_by().values_list("profile_id", "gpus").annotate(last=Max("seen_at"))
    return {(profile, gpus): at for profile, gpus, at in last}


def _withdraw(active: Sequence[Job], wishes: Collection[int], at: datetime) -> None:
    """Cancel runs that have waited long and that no job needs any more; this round ends them."""
    idle = [run.pk for run in active if run.profile_id not in wishes and _has_waited_long(run, at)]
    if idle:
        rows = Job.objects.filter(pk__in=idle, state=Job.State.PENDING)
        rows.update(profiled_for=None, cancel_asked_at=at)
        log.info("profiling.withdrawn", jobs=idle)


def _has_waited_long(run: Job, at: datetime) -> bool:
    """Return whether a run was created at least `KEPT` ago and waits, in quarantine or not."""
    return run.state == Job.State.PENDING and run.submitted_at <= at - KEPT


def _make(pool: Pool, wishes: Sequence[_Wish], active: Sequence[Job], at: datetime) -> int:
    """Create the missing runs, within the limit of each tenant."""
    busy = {run.profile_id for run in active}
    # A run that gets no GPUs, or is in quarantine, must not delay other job types.
    of_tenant = Counter(
        run.tenant_id for run in active if not (run.quarantine or _has_waited_long(run, at))
    )
    runs: list[Job] = []
    for wish in wishes:
        tenant = wish.job.tenant_id
        if wish.job.profile_id in busy or of_tenant[tenant] >= RUNS_MOST:
            continue
        of_tenant[tenant] += 1
        runs.append(_run(pool, wish, at))
    Job.objects.bulk_create(runs)
    if executor_traits(pool.executor).simulates:
        VirtualWork.objects.bulk_create(
            VirtualWork(job=run, duration_us=run.profiling_s * SECOND_US) for run in runs
        )
    if runs:
        log.info("profiling.made", jobs=[run.pk for run in runs])
    return len(runs)


def _run(pool: Pool, wish: _Wish, at: datetime) -> Job:
    """Return a profiling run on these GPUs. It uses the tenant's own GPUs, or costs nothing."""
    job, gpus = wish
    name = job.profile.name if job.profile else ""
    lasts_s = max(1, pool.profiling_s // len(SIZES))
    return Job(
        pool=pool, tenant_id=job.tenant_id, profile=job.profile,
        submitted_by_id=job.submitted_by_id, name=f"profiling-{name}-{gpus}",
        submitted_at=at, source=SOURCE,
        command=job.command, environment=job.environment, gpu_types=job.gpu_types,
        gpus=gpus,
        cpus=-(-job.cpus * gpus // job.gpus), memory_mb=-(-job.memory_mb * gpus // job.gpus),
        max_price=Decimal(0), estimate_s=lasts_s, estimate_source=SOURCE,
        profiling_s=lasts_s, profiled_for=job,
    )  # fmt: skip # rows of what belongs together
