"""Sets the priority of a job among the jobs of its tenant."""

from collections.abc import Mapping

from django.utils.translation import gettext as _

from scheduling.models import Job
from scheduling.requests.job_queue import PRIORITY_MAX
from scheduling.selectors.jobs.changes import PRIORITY, job_subject
from scheduling.services.holds import may_order
from scheduling.services.wake import wake_pool_after_commit
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, FieldErrors, invalid
from tenants.language import gettext_noop
from tenants.models import Membership, Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope
from tenants.selectors.access import Access

BOUNDED = gettext_noop("must be from {least} to {most}")
MANAGERS = gettext_noop("Only managers of the tenant give priorities above 0.")
ENDED = gettext_noop("It has ended.")


def may_boost(access: Access, tenant_id: int) -> bool:
    """Return whether a person may give the tenant's jobs priorities above 0."""
    return may_in_tenant(access, Action.SHARE, tenant_id)


def may_set_priority(access: Access, job: Job) -> bool:
    """Return whether a person may change the job's priority at all; operators may not."""
    return may_order(access, job)


def set_priority(*, job: Job, actor: Actor, access: Access, priority: int) -> bool:
    """Set a job's priority within its tenant; return whether it changed.

    Raises:
        InvalidInputError: `priority` is out of the person's bounds; `state`, if the job has ended.
    """
    most = PRIORITY_MAX if may_boost(access, job.tenant_id) else 0
    if not -PRIORITY_MAX <= priority <= most:
        raise invalid(
            "priority",
            _(BOUNDED).format(least=-PRIORITY_MAX, most=most),
            "" if most else _(MANAGERS),
        )
    with tenant_scope(job.tenant_id):
        rows = Job.objects.select_for_update(no_key=True, of=("self",)).select_related("pool")
        row = rows.get(pk=job.pk)
        if not row.is_active:
            raise invalid("state", _(ENDED), code=CONFLICT)
        before = row.priority
        if before == priority:
            return False
        row.priority, row.version = priority, row.version + 1
        row.save(update_fields=["priority", "version"])
        write_audit(
            actor, PRIORITY, job_subject(job),
            before={"priority": before}, after={"priority": priority},
        )  # fmt: skip # rows of what belongs together
        wake_pool_after_commit(row.pool)
    return True


def check_priorities(tenant: Tenant, user: User | None, asked: Mapping[str, int]) -> None:
    """Check the priorities of new jobs; the keys of `asked` are prefixes of the fields in errors.

    Raises:
        InvalidInputError: one is above 0, and the submitter does not manage the tenant.
    """
    boosted = [place for place, priority in asked.items() if priority > 0]
    if not boosted:
        return
    managers = Membership.objects.filter(tenant=tenant, user=user, role=Membership.Role.MANAGER)
    if user is not None and managers.exists():
        return
    errors = FieldErrors()
    for place in boosted:
        name = f"{place}.priority" if place else "priority"
        errors.add(
            name, _(BOUNDED).format(least=-PRIORITY_MAX, most=0), _(MANAGERS), "out_of_range"
        )
    errors.raise_any()
