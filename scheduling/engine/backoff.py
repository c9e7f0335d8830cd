"""The back-off of a job whose process was lost: a longer wait after each loss, then failure.

`scheduling.engine.observe` calls it for leases that ended, within its transaction. The rule is
`evenshare_core.domain.backoff`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from evenshare_core.domain.backoff import is_given_up, losses_after, wait_us
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.reasons import EndReason
from scheduling.engine.executors.base import Report, ReportState, token_job
from scheduling.models import Job, Lease


class AfterLoss(NamedTuple):
    """A job's consecutive losses after a lease ended, and the time until which the job waits."""

    losses: int = 0
    until: datetime | None = None
    is_given_up: bool = False


def losses_so_far(reports: Sequence[Report]) -> dict[int, int]:
    """Return the number of consecutive losses by job, for the jobs whose stop is reported."""
    stopped = [token_job(r.token) for r in reports if r.state is ReportState.STOPPED]
    if not stopped:
        return {}
    return dict(Job.objects.filter(pk__in=stopped, losses__gt=0).values_list("pk", "losses"))


def after_end(lease: Lease, reason: EndReason, losses: int) -> AfterLoss:
    """Return the back-off after a lease's end.

    `losses`: the job's consecutive losses before this end.
    """
    if reason is not EndReason.LOST or lease.ended_at is None:
        return AfterLoss()
    ended_us = to_us(lease.ended_at)
    losses = losses_after(losses, ended_us - to_us(lease.since))
    until = from_us(ended_us + wait_us(losses)) if losses else None
    return AfterLoss(losses, until, is_given_up(losses))
