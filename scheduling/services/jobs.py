"""Cancels jobs, and releases them from quarantine."""

from scheduling.engine.clock import PoolNow
from scheduling.engine.turns import release_due
from scheduling.models import Job, Pool
from scheduling.services.wake import wake_pool_after_commit
from tenants.audit import Actor, write_audit
from tenants.operator_transaction import operation
from tenants.scopes import tenant_scope

State = Job.State


def cancel_job(*, job: Job, now: PoolNow, releases_others: bool = True) -> Job:
    """Cancel a job and return it with its new state.

    A waiting job is cancelled at once. For a job that holds GPUs, `cancel_asked_at` is set: the
    engine stops its lease, and the executor gives the job time to write a checkpoint. Repeated
    calls, and calls for an ended job, change nothing. Without `releases_others`, the caller
    releases the jobs whose turn has come (`release_turns`).
    """
    with tenant_scope(job.tenant_id):
        # The lock decides a race with a round: either the round finds the job cancelled, or this
        # function finds it running. A round locks jobs last, so there is no deadlock.
        rows = Job.objects.select_for_update(no_key=True, of=("self",)).select_related("pool")
        locked = rows.get(pk=job.pk)
        changed = ["cancel_asked_at", "version"]
        if locked.state == State.PENDING:
            locked.state = State.CANCELLED
            locked.ended_at = max(now.pool_at, locked.submitted_at)
            locked.reason_code = ""
            changed += ["state", "ended_at", "reason_code"]
        elif not locked.is_active or locked.cancel_asked_at is not None:
            return _copied(job, locked)
        locked.cancel_asked_at = locked.cancel_asked_at or now.pool_at
        locked.version += 1
        locked.save(update_fields=changed)
        if locked.state == State.CANCELLED and releases_others:
            release_due(locked.pool_id, at=now.pool_at, tenant_id=locked.tenant_id)
        wake_pool_after_commit(locked.pool)
    return _copied(job, locked)


def release_turns(*, pool: Pool, tenant_id: int, now: PoolNow) -> None:
    """Release a tenant's held jobs whose turn has come, after others were cancelled."""
    with tenant_scope(tenant_id):
        if release_due(pool.pk, at=now.pool_at, tenant_id=tenant_id):
            wake_pool_after_commit(pool)


def release_job(*, actor: Actor, job: Job) -> None:
    """Release a job from quarantine, so that rounds consider it again."""
    with operation(actor):
        locked = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if not locked.quarantine:
            return
        before = {"quarantine": locked.quarantine}
        locked.quarantine, locked.reason_code = "", ""
        locked.version += 1
        locked.save(update_fields=["quarantine", "reason_code", "version"])
        write_audit(actor, "job.released", f"job {job.uid}", before=before)


def _copied(job: Job, locked: Job) -> Job:
    """Update the caller's copy, and keep the relations that it has loaded."""
    for name in ("state", "cancel_asked_at", "ended_at", "reason_code", "version", "exit_code"):
        setattr(job, name, getattr(locked, name))
    return job
