"""Submits sweeps, cancels them, and runs their failed jobs again."""

import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from msgspec.structs import replace

from scheduling.engine.bulk import run
from scheduling.engine.clock import Clocks, PoolNow
from scheduling.engine.turns import release_due
from scheduling.models import Job, PoolFence, Sweep
from scheduling.requests.sweeps import SweepRequest
from scheduling.selectors.jobs.sweeps import MATRIX_ORDER, stored_request
from scheduling.selectors.pools.offers import pool_offer
from scheduling.services.job_requests import named_pool, read_completed
from scheduling.services.submit import BULK, Accepted, Submitter, admit, hold_new, take_rate
from scheduling.services.sweep_jobs import jobs_of_sweep
from scheduling.services.wake import wake_pool_after_commit
from tenants.idempotency import KeyedRequest, Made, begin_reply
from tenants.input.errors import CONFLICT, invalid
from tenants.input.requests import request_fields
from tenants.models import Tenant, User
from tenants.scopes import tenant_scope

# A sweep that runs failed jobs again does not wait for others again: its jobs were free already.
_NOT_AGAIN = ("after_ok", "after_any")


def submit_sweep(
    *,
    tenant: Tenant,
    user: User | None,
    spec: Mapping[str, object],
    now: Clocks,
    key: str | None = None,
    source: str = "api",
) -> Made[Sweep]:
    """Submit a sweep (`scheduling.requests.sweeps.SweepRequest`) with all its jobs, or nothing.

    Each job is checked and stored as any other. With an idempotency `key`, the same request of the
    same user returns the first sweep.

    Raises:
        tenants.rate.RateError, InvalidInputError, PendingLimitError, and those of
            `tenants.idempotency`: as for `scheduling.services.submit.submit_job`.
    """
    take_rate(tenant, BULK)
    asked = KeyedRequest.of(tenant, user, "sweeps", key, spec)
    return _submit(Submitter(tenant, user, source, now), spec, asked)


def resubmit_failed(
    *, sweep: Sweep, user: User | None, now: Clocks, key: str | None = None, source: str = "api"
) -> Made[Sweep]:
    """Submit a sweep's failed jobs again, as a new sweep with the same limit.

    Raises:
        InvalidInputError: no job has failed, or the request is not valid any more.
        tenants.rate.RateError, PendingLimitError, and those of `tenants.idempotency`: as for
            `submit_sweep`.
    """
    take_rate(sweep.tenant, BULK)
    asked = KeyedRequest.of(sweep.tenant, user, "sweeps/resubmit", key, str(sweep.uid))
    stored = stored_request(sweep)
    spec = {name: value for name, value in stored.items() if name not in _NOT_AGAIN}
    return _submit(Submitter(sweep.tenant, user, source, now), spec, asked, origin=sweep)


def _submit(
    by: Submitter,
    spec: Mapping[str, object],
    asked: KeyedRequest | None,
    origin: Sweep | None = None,
) -> Made[Sweep]:
    with tenant_scope(by.tenant.pk):
        uid = uuid.uuid4()
        before = begin_reply(asked, [str(uid)]) if asked else None
        if before is not None:
            stored = Sweep.objects.select_related("tenant", "pool", "submitted_by", "origin")
            return Made(stored.get(uid=before[0], tenant=by.tenant), is_replay=True)
        offer = pool_offer(named_pool(spec), by.tenant.pk)
        request = read_completed(SweepRequest, spec, offer)
        assert offer is not None  # noqa: S101 - else there were errors
        request = replace(request, name=request.name or f"sweep-{uid.hex[:8]}")
        at_once, children = jobs_of_sweep(request)
        if origin is not None:
            failed = _failed_jobs(origin)
            children = [one for one in children if one.parameters in failed]
        admitted = admit(by, [Accepted(request, offer, "")], jobs_each=len(children))
        reading = admitted.readings[offer.id]
        sweep = Sweep(
            uid=uid, tenant=by.tenant, pool_id=offer.id, name=request.name, submitted_by=by.user,
            submitted_at=reading.pool_at, created_at=reading.wall, spec=_plain(request),
            at_once=at_once, origin=origin,
        )  # fmt: skip # rows of what belongs together
        sweep.save(force_insert=True)
        read = [Accepted(child.request, offer, "") for child in children]
        jobs = [admitted.job(one, uuid.uuid4()) for one in read]
        for turn, (job, child) in enumerate(zip(jobs, children, strict=True)):
            job.sweep, job.sweep_index = sweep, child.place
            job.parameters = dict(child.parameters)
            if at_once is not None and turn >= at_once:
                hold_new(job, Job.Hold.SWEEP)
        admitted.insert(jobs, read)
    return Made(sweep, is_replay=False)


def _plain(request: SweepRequest) -> dict[str, Any]:
    """Return a request as JSON, without fields at their defaults."""
    values = {
        name: getattr(request, field.attribute)
        for name, field in request_fields(SweepRequest).items()
        if getattr(request, field.attribute) != field.default
    }
    # The database sorts the keys of an object, but their order is the order of the jobs.
    order = {MATRIX_ORDER: list(request.matrix)} if request.matrix else {}
    return order | {
        name: format(value, "f") if isinstance(value, Decimal) else value
        for name, value in values.items()
    }


def _failed_jobs(sweep: Sweep) -> list[dict[str, str]]:
    """Return the parameters of a sweep's failed jobs."""
    failed = Job.objects.filter(sweep=sweep, state=Job.State.FAILED)
    parameters = [row or {} for row in failed.values_list("parameters", flat=True)]
    if not parameters:
        raise invalid("", _("No job of this sweep has failed"), code=CONFLICT)
    return parameters


# A round may have started a job since it was selected, so the state is read again.
_CANCEL = """
UPDATE scheduling_job SET cancel_asked_at = %(at)s, version = version + 1,
    ended_at = CASE WHEN state = 'pending' THEN greatest(%(at)s, submitted_at) ELSE ended_at END,
    reason_code = CASE WHEN state = 'pending' THEN '' ELSE reason_code END,
    state = CASE WHEN state = 'pending' THEN 'cancelled' ELSE state END
WHERE id = ANY(%(jobs)s)
"""


def cancel_sweep(*, sweep: Sweep, now: PoolNow) -> Sweep:
    """Cancel all jobs of a sweep that have not ended; return it.

    Waiting jobs are cancelled at once, the others as by `scheduling.services.jobs.cancel_job`.
    Repeating it changes nothing.
    """
    with tenant_scope(sweep.tenant_id):
        # Rounds write many jobs in one statement, in any order. They lock the fence first, so none
        # runs into these locks half-way.
        PoolFence.objects.select_for_update().get(pool_id=sweep.pool_id)
        active = Job.objects.filter(sweep=sweep, state__in=Job.ACTIVE_STATES)
        rows = active.filter(cancel_asked_at=None).order_by("pk")
        jobs = list(rows.select_for_update(no_key=True).values_list("pk", flat=True))
        if jobs:
            run(_CANCEL, {"at": now.pool_at, "jobs": jobs})
            release_due(sweep.pool_id, at=now.pool_at, tenant_id=sweep.tenant_id)
            Sweep.objects.filter(pk=sweep.pk, cancel_asked_at=None).update(
                cancel_asked_at=now.pool_at
            )
        sweep.refresh_from_db(fields=["cancel_asked_at"])
        if jobs:
            wake_pool_after_commit(sweep.pool)
    return sweep
