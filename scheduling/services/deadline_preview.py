"""What the next round would answer to a job with a deadline: it is decided with it, not written."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import structlog

from evenshare_core.deadlines.declared import dated_steps
from evenshare_core.domain.deadlines import Deadline, DeadlineClass
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.jobs import Job as JobValue
from evenshare_core.domain.offers import lower_price
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot, schema_of
from evenshare_core.estimation.jobs import JobClaims
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.estimates import estimated_job
from scheduling.engine.snapshot_rows import read_profiles
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import Profile as ProfileRow
from scheduling.requests.job_deadline import deadline_at, parsed_steps
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.answers import AnswerView, view_of
from scheduling.selectors.deadline_texts import unanswered_text
from scheduling.selectors.job_estimates import read_job_types
from scheduling.selectors.offers import PoolOffer
from scheduling.selectors.sharing import price_limit_of
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)
FAILED = "The next round could not be decided with it, so that nothing can be said of its deadline."

NO_QUOTA = "Its tenant has no quota in the pool now, so that the next round has no answer for it."


@dataclass(frozen=True, slots=True)
class DeadlinePreview:
    """What round `number` would answer; None with a `text` that says why nothing is known."""

    number: int = 0
    answer: AnswerView | None = None
    text: str = ""


def preview_deadline(
    *, tenant_id: int, request: JobRequest, offer: PoolOffer, now: PoolNow
) -> DeadlinePreview:
    """Return what the next round would answer to a job that was submitted now.

    Of the decision nothing but this job's own answer leaves: what it says of others is in the
    limits that it names. Nothing is written.

    Raises:
        RuntimeError: it is called inside a transaction.
    """
    if offer.policy not in registry.POLICIES or not registry.traits(offer.policy).answers_deadlines:
        return DeadlinePreview(text=unanswered_text(offer.policy))
    with site_scope():
        number, at = next_number(offer.id), next_instant(offer.id, now)
        profiles = _profiles(tenant_id, request, offer)
        types = read_job_types(profiles)
        limit_micro = price_limit_of(offer.id, tenant_id)
    snapshot = read_snapshot(offer.id, number=number, at=at)
    if tenant_id not in {tenant.id for tenant in snapshot.tenants}:
        return DeadlinePreview(number, text=NO_QUOTA)
    due = deadline_at(request.deadline, now.pool_at)
    assert due is not None  # noqa: S101 - its reader has seen to it
    own_micro = None if request.max_price is None else to_micro(request.max_price)
    job = JobValue(
        _next_id(snapshot),
        tenant_id,
        request.gpus,
        # Within the round that is looked at: what is submitted after it is the next one's.
        min(max(to_us(now.pool_at), snapshot.service.at_us), snapshot.at_us),
        tuple(request.gpu_types),
        request.weight,
        max_price_micro=lower_price(own_micro, limit_micro),
        deadline_us=to_us(due),
        estimate_us=None if request.estimate_s is None else request.estimate_s * SECOND_US,
        profile=profiles[0].id if profiles else 0,
    )
    deadline = _deadline(job, to_us(due), request)
    claims = JobClaims(request.iterations, bool(request.stop_when), job.estimate_us)
    job, estimate = estimated_job(types, job, claims)
    try:
        decision = decide_round(with_job(snapshot, job, deadline, profiles, estimate))
    except Exception:
        log.warning("deadline_preview.failed", pool=offer.id, exc_info=True)
        return DeadlinePreview(number, text=FAILED)
    answers = {answer.job: answer for answer in decision.answers}
    if job.id not in answers:
        return DeadlinePreview(number, text="The next round would not answer it yet.")
    return DeadlinePreview(number, view_of(answers[job.id], number=number, at=at))


def _profiles(tenant_id: int, request: JobRequest, offer: PoolOffer) -> tuple[Profile, ...]:
    """The job type that it names; empty: none."""
    rows = ProfileRow.objects.filter(tenant_id=tenant_id, pool_id=offer.id, name=request.profile)
    return read_profiles(rows.values_list("pk", flat=True)) if request.profile else ()


def _next_id(snapshot: Snapshot) -> int:
    """An id above those of all jobs that the round knows."""
    known = [job.id for job in snapshot.jobs] + [job.job for job in snapshot.service.jobs]
    known += [change.job for change in snapshot.changes]
    return max(known, default=0) + 1


def _deadline(job: JobValue, due_us: int, request: JobRequest) -> Deadline:
    kind, declared = DeadlineClass(request.job_class), parsed_steps(request.deadline_steps)
    return Deadline(job.id, kind, dated_steps(job.submitted_us, due_us, kind, declared))


def with_job(
    snapshot: Snapshot,
    job: JobValue,
    deadline: Deadline,
    profiles: tuple[Profile, ...] = (),
    estimate: JobEstimate | None = None,
) -> Snapshot:
    """Return the snapshot as it would be read with one job more, whose id is the highest. Pure.

    `profiles`: its job type; `estimate`: how sure its work is, where that is known.
    """
    came = Change(
        job.submitted_us, ChangeKind.ACTIVE, job.tenant, job.id, job.gpus, job.gpu_types, job.weight
    )
    deadlines = (*snapshot.deadlines, deadline)
    known = {profile.id: profile for profile in (*snapshot.profiles, *profiles)}
    return msgspec.structs.replace(
        snapshot,
        schema=schema_of(
            (), deadlines=deadlines, profilers=snapshot.profilers, measured=snapshot.measured
        ),
        jobs=(*snapshot.jobs, job),
        changes=tuple(sorted((*snapshot.changes, came), key=lambda change: change.at_us)),
        deadlines=deadlines,
        estimates=snapshot.estimates if estimate is None else (*snapshot.estimates, estimate),
        profiles=tuple(known[id_] for id_ in sorted(known)),
    )
