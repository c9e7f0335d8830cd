"""The second half of the one writer: what the executor reports becomes rows and events.

Kept beside `apply` for size; both lock the pool's fence first and write nothing without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection

from billing.money import to_micro
from scheduling.domain.instants import from_us
from scheduling.domain.reasons import EndReason
from scheduling.engine.events import EventLog, money
from scheduling.engine.executors import Report, ReportState, lease_token
from scheduling.engine.fence import fence_lock
from scheduling.engine.slots import waiting_ready
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot, PoolFence
from tenants.scopes import engine_scope

Kind = LeaseEvent.Kind


def observe(
    pool_id: int, token: int, reports: Sequence[Report], *, installation: str, at: datetime
) -> list[str]:
    """Record what the executor reports; let waiting leases have the GPUs that were released.

    Reports that say nothing new change nothing, so they may come twice and in any order.
    Returns the tokens of processes whose end is recorded: the executor may forget them.

    Raises:
        FencedError: the pool was taken by another holder since.
    """
    with engine_scope(pool_id):
        fence = fence_lock(pool_id, token)
        live = Lease.objects.filter(pool_id=pool_id).exclude(state=Lease.State.ENDED)
        by_token = {
            lease_token(lease.job_id, lease.number, installation): lease
            for lease in live.select_related("job", "gpu_type")
        }
        events = EventLog(pool_id, fence.next_round - 1)
        ended: list[str] = []
        for report in sorted(reports, key=_moment):
            lease = by_token.get(report.token)
            if lease is None or report.state is ReportState.RUNNING:
                if lease is not None:
                    _started(events, lease, report)
                elif report.state is not ReportState.RUNNING:
                    ended.append(report.token)  # recorded before: it may be forgotten
                continue
            _ended(events, lease, report)
            ended.append(report.token)
        _activate(pool_id, at)
        if events.drafts:
            _write(events, fence)
    return ended


def _moment(report: Report) -> tuple[int, str]:
    return (report.started_us if report.ended_us is None else report.ended_us, report.token)


def _write(events: EventLog, fence: PoolFence) -> None:
    events.write(fence)
    fence.save(update_fields=["next_event"])


def _started(events: EventLog, lease: Lease, report: Report) -> None:
    """The process runs: from now on the lease holds, and is charged."""
    if lease.started_at is not None:
        return
    lease.started_at = from_us(report.started_us)
    if lease.state == Lease.State.LAUNCHING:
        lease.state = Lease.State.RUNNING
    lease.save(update_fields=["started_at", "state"])
    if lease.job.first_started_at is None:
        lease.job.first_started_at = lease.started_at
        lease.job.save(update_fields=["first_started_at"])
    events.add(
        Kind.STARTED,
        lease.started_at,
        {
            "own": lease.own,
            "borrowed": lease.borrowed,
            "price": money(to_micro(lease.price)),
            "gpu_type": lease.gpu_type.name,
        },
        lease=lease.pk,
        job=lease.job_id,
        tenant=lease.tenant_id,
        term=lease.term,
    )


def _ended(events: EventLog, lease: Lease, report: Report) -> None:
    """The process is gone: the lease ends, its GPUs are free, its job is done or waits."""
    if report.ended_us is None:
        raise ValueError(f"{report.token} is reported {report.state.value} without an end")
    if report.state is ReportState.FINISHED:
        _started(events, lease, report)
        reason = EndReason.FINISHED if report.exit_code == 0 else EndReason.FAILED
        state = Job.State.SUCCEEDED if report.exit_code == 0 else Job.State.FAILED
    else:
        reason = EndReason(lease.end_reason or EndReason.LOST)
        state = Job.State.PENDING
    ended_at = from_us(report.ended_us)
    _close(events, lease, max(ended_at, lease.started_at or ended_at), reason, report.exit_code)
    waiting = Lease.objects.filter(job_id=lease.job_id, state=Lease.State.WAITING)
    if state is Job.State.PENDING:
        if not waiting.exists():  # otherwise it was moved, and its next lease waits already
            _job_state(lease.job_id, state, None, None)
        return
    _job_state(lease.job_id, state, lease.ended_at, report.exit_code)
    for successor in waiting.select_related("gpu_type"):
        # It finished while it was being moved: its next lease has nothing to run.
        _close(events, successor, max(ended_at, successor.granted_at), reason, None)


def _close(
    events: EventLog, lease: Lease, at: datetime, reason: EndReason, exit_code: int | None
) -> None:
    """End a lease: its slots are free, what it asked of the executor is void."""
    lease.state, lease.ended_at, lease.end_reason = Lease.State.ENDED, at, reason.value
    lease.save(update_fields=["state", "ended_at", "end_reason"])
    LeaseSlot.objects.filter(lease=lease).update(holding=False, planned=False)
    Intent.objects.filter(lease=lease, state=Intent.State.OPEN).update(state=Intent.State.DONE)
    events.add(
        Kind.ENDED,
        at,
        {
            "reason": reason.value,
            "exit_code": exit_code,
            "started": lease.started_at is not None,
            "gpu_type": lease.gpu_type.name,
        },
        lease=lease.pk,
        job=lease.job_id,
        tenant=lease.tenant_id,
        term=lease.term,
    )


def _job_state(
    job_id: int, state: Job.State, ended_at: datetime | None, exit_code: int | None
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scheduling_job SET state = %s, ended_at = %s, exit_code = %s,"
            " reason_code = '', version = version + 1"
            " WHERE id = %s AND state IN ('running', 'stopping')",
            [state.value, ended_at, exit_code, job_id],
        )


def _activate(pool_id: int, at: datetime) -> None:
    """Waiting leases whose GPUs are all released take them and are launched."""
    ready = waiting_ready(pool_id)
    ids = [lease for lease, _, _ in ready]
    Lease.objects.filter(id__in=ids).update(state=Lease.State.LAUNCHING)
    LeaseSlot.objects.filter(lease_id__in=ids).update(holding=True, planned=False)
    Intent.objects.bulk_create(
        [
            Intent(pool_id=pool_id, lease_id=lease, kind=Intent.Kind.LAUNCH, term=1, at=at)
            for lease in ids
        ],
        ignore_conflicts=True,
    )
