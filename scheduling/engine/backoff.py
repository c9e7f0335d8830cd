"""What the loss of a process means for its job: it waits longer each time, or is failed.

Part of the one writer: `scheduling.engine.observe` asks it of leases that ended. The rule is
`evenshare_core.domain.backoff`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from evenshare_core.domain.backoff import is_given_up, losses_after, wait_us
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.reasons import EndReason
from scheduling.engine.executors import Report, ReportState, token_job
from scheduling.models import Job, Lease


class AfterLoss(NamedTuple):
    """What becomes of a job whose lease has ended: the losses in a row, and until when it waits."""

    losses: int = 0
    until: datetime | None = None
    is_given_up: bool = False


def losses_so_far(reports: Sequence[Report]) -> dict[int, int]:
    """Return how often in a row processes of jobs were lost whose stop is reported."""
    stopped = [token_job(r.token) for r in reports if r.state is ReportState.STOPPED]
    if not stopped:
        return {}
    return dict(Job.objects.filter(pk__in=stopped, losses__gt=0).values_list("pk", "losses"))


def after_end(lease: Lease, reason: EndReason, losses: int) -> AfterLoss:
    """Return what comes after the end of a lease; `losses`: of its job, before it."""
    if reason is not EndReason.LOST or lease.ended_at is None:
        return AfterLoss()
    ended_us = to_us(lease.ended_at)
    losses = losses_after(losses, ended_us - to_us(lease.started_at or lease.granted_at))
    until = from_us(ended_us + wait_us(losses)) if losses else None
    return AfterLoss(losses, until, is_given_up(losses))
