"""Holds and releases waiting jobs for people: a tenant's members, its managers, and operators."""

from enum import StrEnum

from django.utils.translation import gettext as _

from scheduling.engine.clock import PoolNow
from scheduling.engine.job_holds import add_hold, remove_hold
from scheduling.models import Job, Lease
from scheduling.selectors.jobs.changes import HELD, RELEASED, job_subject
from scheduling.services.wake import wake_pool_after_commit
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, invalid
from tenants.language import gettext_noop
from tenants.permissions import Action, may_in_tenant, may_on_site
from tenants.scopes import tenant_scope
from tenants.selectors.access import Access

RUNS = gettext_noop(
    "It has GPUs: a running job cannot be held. Cancel it, or wait until its lease ends."
)
RELEASING = gettext_noop("Its last GPUs are still being released: try again in a moment.")
PROFILES = gettext_noop("A profiling run cannot be held: it ends by itself. Cancel it instead.")
OVER = gettext_noop("It has ended or is being cancelled.")
BY_OPERATOR = gettext_noop("An operator holds it: only an operator can release it.")
BY_ITSELF = gettext_noop("It waits for another job, and is released when that job ends.")
TIMED = gettext_noop("Its submission names its earliest start, so there is no hold to release.")


class Side(StrEnum):
    """The side of a person who holds a job; a tenant's people cannot release an operator's hold."""

    TENANT = "tenant"
    OPERATOR = "operator"


def side_of(access: Access, job: Job) -> Side | None:
    """Return the side on which a person may hold and release a job; None if they may not.

    Members may do so with the jobs that they submitted, managers with all jobs of their tenant.
    """
    if may_order(access, job):
        return Side.TENANT
    return Side.OPERATOR if may_on_site(access.site_role, Action.OPERATE) else None


def may_order(access: Access, job: Job) -> bool:
    """Return whether a person is the submitter and still a member, or a manager of the tenant."""
    is_own = access.user_id is not None and job.submitted_by_id == access.user_id
    action = Action.SUBMIT if is_own else Action.SHARE
    return may_in_tenant(access, action, job.tenant_id)


def hold_job(*, job: Job, actor: Actor, side: Side) -> bool:
    """Hold a waiting job; return whether it was not held by this side before.

    Raises:
        InvalidInputError: `state`, if the job does not wait.
    """
    code = Job.Hold(side.value)
    with tenant_scope(job.tenant_id):
        if add_hold([job.pk], code):
            write_audit(actor, HELD, job_subject(job), after={"hold": code.value})
            return True
        row = Job.objects.get(pk=job.pk)
        if code.value in row.holds:
            return False
        raise invalid("state", _(_why_not_held(row)), code=CONFLICT)


def release_hold(*, job: Job, actor: Actor, side: Side, now: PoolNow) -> bool:
    """Release a held job; return whether a hold was removed.

    An operator releases an operator's hold, or the tenant's if there is no other.

    Raises:
        InvalidInputError: `state`, if it is held in another way, which this side cannot release.
    """
    with tenant_scope(job.tenant_id):
        row = Job.objects.select_for_update(no_key=True, of=("self",)).get(pk=job.pk)
        code = _released_by(row, side)
        if code is None or not remove_hold([job.pk], code, now.pool_at):
            return False
        write_audit(actor, RELEASED, job_subject(job), after={"hold": code.value})
        pool = Job.objects.select_related("pool").get(pk=job.pk).pool
        wake_pool_after_commit(pool)
    return True


def _released_by(row: Job, side: Side) -> Job.Hold | None:
    if side is Side.OPERATOR and Job.Hold.OPERATOR in row.holds:
        return Job.Hold.OPERATOR
    if Job.Hold.TENANT in row.holds:
        return Job.Hold.TENANT
    if Job.Hold.IDLE in row.holds:
        return Job.Hold.IDLE
    if Job.Hold.OPERATOR in row.holds:
        raise invalid("state", _(BY_OPERATOR), code=CONFLICT)
    if row.holds:
        raise invalid("state", _(BY_ITSELF), code=CONFLICT)
    if row.is_held:
        raise invalid("state", _(TIMED), code=CONFLICT)
    return None


def _why_not_held(row: Job) -> str:
    if not row.is_active or row.cancel_asked_at is not None:
        return OVER
    if row.profiling_s:
        return PROFILES
    if row.state != Job.State.PENDING:
        return RUNS
    live = Lease.objects.filter(job=row).exclude(state=Lease.State.ENDED)
    return RELEASING if live.exists() else OVER
