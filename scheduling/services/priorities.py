"""Sets the priority of a job among the jobs of its tenant."""

from scheduling.models import Job
from scheduling.services.holds import may_order
from scheduling.services.wake import wake_pool_after_commit
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, invalid
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope
from tenants.selectors.access import Access

PRIORITY_MAX = 100
BOUNDED = f"must be from -{PRIORITY_MAX} to {{most}}"
MANAGERS = "Only managers of the tenant give priorities above 0."
ENDED = "It has ended."


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
        raise invalid("priority", BOUNDED.format(most=most), "" if most else MANAGERS)
    with tenant_scope(job.tenant_id):
        rows = Job.objects.select_for_update(no_key=True, of=("self",)).select_related("pool")
        row = rows.get(pk=job.pk)
        if not row.is_active:
            raise invalid("state", ENDED, code=CONFLICT)
        before = row.priority
        if before == priority:
            return False
        row.priority, row.version = priority, row.version + 1
        row.save(update_fields=["priority", "version"])
        write_audit(
            actor, "job.priority", f"job {job.uid}",
            before={"priority": before}, after={"priority": priority},
        )  # fmt: skip # rows of what belongs together
        if row.pool.on_demand:
            wake_pool_after_commit(row.pool_id)
    return True
