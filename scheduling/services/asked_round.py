"""A preview of the pool's next round with one more job, decided as the engine would."""

from typing import NamedTuple, TypeVar

import msgspec
import structlog
from django.utils.translation import gettext as _

from evenshare_core.deadlines.declared import dated_steps
from evenshare_core.domain.cluster import Resources
from evenshare_core.domain.deadlines import Deadline, DeadlineClass
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.job_ranks import JobRank
from evenshare_core.domain.jobs import Job as JobValue
from evenshare_core.domain.offers import lower_limit
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot, with_schema
from evenshare_core.domain.utilities import Utility, stated_utility
from evenshare_core.estimation.jobs import JobClaims
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import policy
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.estimates import estimated_job
from scheduling.engine.snapshot_rows import RankedJob, job_ranks, keeps_place, read_profiles
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import Job
from scheduling.models import Profile as ProfileRow
from scheduling.requests.job_deadline import deadline_at, parsed_steps
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.jobs.estimates import read_job_types
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.selectors.sharing.settings import equal_tenants, price_limit_of
from tenants.language import gettext_noop
from tenants.models import User
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)
RowT = TypeVar("RowT")
FAILED = gettext_noop("The next round cannot be decided with this job, so there is no answer.")
# The columns that rounds read, as requested; the request names tenant and job type instead.
_AS_ASKED = {*JobValue.__struct_fields__} & {*JobRequest.__struct_fields__} - {"tenant", "profile"}
NO_QUOTA = gettext_noop("Its tenant has no quota in the pool now, so the next round has no answer.")


class AskedJob(NamedTuple):
    """A job that was not submitted, with the values that a round would read for it."""

    job: JobValue
    deadline: Deadline | None = None
    estimate: JobEstimate | None = None
    utility: Utility | None = None
    resources: Resources | None = None
    profiles: tuple[Profile, ...] = ()
    ranks: tuple[JobRank, ...] = ()  # those of all jobs of its tenant


class AskedRound(NamedTuple):
    """A round with the job in its snapshot. If `decision` is None, `text` explains why."""

    number: int
    snapshot: Snapshot
    job: JobValue | None = None
    decision: Decision | None = None
    text: str = ""


def ask_round(
    *, tenant_id: int, user: User | None, request: JobRequest, offer: PoolOffer, now: PoolNow
) -> AskedRound:
    """Return the next round, decided as if the user submitted the job now.

    Raises:
        RuntimeError: it is called inside a transaction.
    """
    with site_scope():
        number, at = next_number(offer.id), next_instant(offer.id, now)
        profiles = _profiles(tenant_id, request, offer)
        types = read_job_types(profiles)
        limit_micro = price_limit_of(offer.id, tenant_id)
    snapshot = read_snapshot(offer.id, number=number, at=at)
    if tenant_id not in {tenant.id for tenant in snapshot.tenants}:
        return AskedRound(number, snapshot, text=_(NO_QUOTA))
    due = deadline_at(request.deadline, now.pool_at) if request.deadline else None
    own_micro = None if request.max_price is None else to_micro(request.max_price)
    job = JobValue(
        _next_id(snapshot),
        tenant_id,
        # Not after the round's time: a later submission would belong to the next round.
        submitted_us=min(max(to_us(now.pool_at), snapshot.service.at_us), snapshot.at_us),
        max_price_micro=lower_limit(own_micro, limit_micro),
        deadline_us=None if due is None else to_us(due),
        estimate_us=None if request.estimate_s is None else request.estimate_s * SECOND_US,
        profile=profiles[0].id if profiles else 0,
        **{name: getattr(request, name) for name in _AS_ASKED},
    )
    claims = JobClaims(request.iterations, bool(request.stop_when), job.estimate_us)
    job, estimate = estimated_job(types, job, claims)
    asked = AskedJob(
        job,
        deadline=None if due is None else _deadline(job, to_us(due), request),
        estimate=estimate,
        utility=stated_utility(job.id, request.utility),
        resources=_resources(job, request, snapshot),
        profiles=profiles,
        ranks=_ranks(snapshot, job, request, user),
    )
    snapshot = with_job(snapshot, asked)
    try:
        decision = decide_round(snapshot)
    except Exception:
        log.warning("asked_round.failed", pool=offer.id, exc_info=True)
        return AskedRound(number, snapshot, job, text=_(FAILED))
    return AskedRound(number, snapshot, job, decision)


def with_job(snapshot: Snapshot, asked: AskedJob) -> Snapshot:
    """Return the snapshot with one more job, which gets the highest id. Pure."""
    job = asked.job
    others = {one.id for one in snapshot.jobs if one.tenant != job.tenant}
    came = Change(
        job.submitted_us, ChangeKind.ACTIVE, job.tenant, job.id, job.gpus, job.gpu_types, job.weight
    )
    known = {profile.id: profile for profile in (*snapshot.profiles, *asked.profiles)}
    wider = msgspec.structs.replace(
        snapshot,
        jobs=(*snapshot.jobs, job),
        changes=tuple(sorted((*snapshot.changes, came), key=lambda change: change.at_us)),
        deadlines=_and(snapshot.deadlines, asked.deadline),
        estimates=_and(snapshot.estimates, asked.estimate),
        utilities=_and(snapshot.utilities, asked.utility),
        job_resources=_and(snapshot.job_resources, asked.resources),
        ranks=(*(row for row in snapshot.ranks if row.job in others), *asked.ranks),
        profiles=tuple(known[id_] for id_ in sorted(known)),
    )
    return with_schema(wider)


def _and(rows: tuple[RowT, ...], more: RowT | None) -> tuple[RowT, ...]:
    return rows if more is None else (*rows, more)


def _ranks(
    snapshot: Snapshot, job: JobValue, request: JobRequest, user: User | None
) -> tuple[JobRank, ...]:
    """Return the ranks of the tenant's jobs with the asked one, as the engine would."""
    if policy(snapshot.policy).traits.reads_arrivals:
        return ()
    known = [one.id for one in snapshot.jobs if one.tenant == job.tenant]
    with site_scope():
        rows = Job.objects.filter(pk__in=known).order_by("pk")
        ranked = [
            RankedJob(id_, job.tenant, priority, person, keeps_place(own_price, utility))
            for id_, priority, person, own_price, utility in rows.values_list(
                "pk", "priority", "submitted_by", "max_price", "utility"
            )
        ]
        sharing = equal_tenants(snapshot.pool)
    keeps = keeps_place(request.max_price, request.utility or None)
    person = None if user is None else user.pk
    ranked.append(RankedJob(job.id, job.tenant, request.priority, person, keeps))
    return job_ranks(ranked, sharing)


def _profiles(tenant_id: int, request: JobRequest, offer: PoolOffer) -> tuple[Profile, ...]:
    rows = ProfileRow.objects.filter(tenant_id=tenant_id, pool_id=offer.id, name=request.profile)
    return read_profiles(rows.values_list("pk", flat=True)) if request.profile else ()


def _next_id(snapshot: Snapshot) -> int:
    known = [job.id for job in snapshot.jobs] + [job.job for job in snapshot.service.jobs]
    known += [change.job for change in snapshot.changes]
    return max(known, default=0) + 1


def _deadline(job: JobValue, due_us: int, request: JobRequest) -> Deadline:
    kind, declared = DeadlineClass(request.job_class), parsed_steps(request.deadline_steps)
    return Deadline(job.id, kind, dated_steps(job.submitted_us, due_us, kind, declared))


def _resources(job: JobValue, request: JobRequest, snapshot: Snapshot) -> Resources | None:
    """Return the job's CPUs and memory if any node reports its own, like the engine."""
    cpus, memory_mb = request.cpus or 0, request.memory_mb or 0
    if not snapshot.node_resources or not (cpus or memory_mb):
        return None
    return Resources(job.id, cpus, memory_mb)
