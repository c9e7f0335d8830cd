"""Holds on waiting jobs: they keep a job out of rounds until the last one is removed.

Callers open the transaction and the scope, and request a round afterwards. Jobs are locked in order
of their ids, so two callers cannot wait for each other. A round that decided before a hold leaves
out its grant (`scheduling.engine.grants`).
"""

from collections.abc import Iterable
from datetime import datetime

from evenshare_core.domain.held_jobs import HoldCode, first_hold
from evenshare_core.policies.shared.held_jobs import REASONS
from scheduling.models import Job, Lease

_CHANGED = ("holds", "eligible_at", "place_at", "reason_code", "reason_round", "version")


def add_hold(jobs: Iterable[int], code: Job.Hold) -> list[int]:
    """Hold waiting jobs in the running transaction; return the jobs that were not held so before.

    Jobs that run, ended or are being cancelled are left unchanged, and so are profiling runs and
    jobs whose GPUs are still being released.
    """
    rows = _locked(jobs)
    busy = Lease.objects.filter(job__in=rows).exclude(state=Lease.State.ENDED)
    releasing = set(busy.values_list("job_id", flat=True))
    changed = [
        row
        for row in rows
        if row.state == Job.State.PENDING
        and row.cancel_asked_at is None
        and not row.profiling_s
        and code.value not in row.holds
        and row.pk not in releasing
    ]
    for row in changed:
        row.holds = [*row.holds, code.value]
        _explain(row, REASONS[first_hold(row.holds)].value)
    return _stored(changed)


def remove_hold(jobs: Iterable[int], code: Job.Hold, at: datetime) -> list[int]:
    """Remove a hold from jobs at a pool time, in the running transaction; return the changed jobs.

    A job without another hold arrives in the queue now, or at its earliest start if that is
    later.
    """
    changed = [
        row for row in _locked(jobs) if row.state == Job.State.PENDING and code.value in row.holds
    ]
    for row in changed:
        row.holds = [one for one in row.holds if one != code.value]
        if row.holds:
            _explain(row, REASONS[first_hold(row.holds)].value)
            continue
        row.eligible_at, row.place_at = max(at, row.submitted_at, row.not_before or at), None
        waits = row.not_before is not None and row.not_before > at
        _explain(row, REASONS[HoldCode.NOT_BEFORE].value if waits else "")
    return _stored(changed)


def _locked(jobs: Iterable[int]) -> list[Job]:
    rows = Job.objects.select_for_update(no_key=True, of=("self",))
    return list(rows.filter(pk__in=list(jobs)).order_by("pk"))


def _explain(row: Job, reason: str) -> None:
    row.reason_code, row.reason_round = reason, None
    row.version += 1


def _stored(rows: list[Job]) -> list[int]:
    if rows:
        Job.objects.bulk_update(rows, _CHANGED)
    return [row.pk for row in rows]
