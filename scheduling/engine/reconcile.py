"""Asks the executor what there is, and records what is new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.executors import (
    Executor,
    ExecutorError,
    Report,
    ReportState,
    Stop,
    lease_token,
    token_job,
)
from scheduling.engine.observe import observe
from scheduling.models import Lease, Pool
from tenants.faults import fault_point

log = structlog.get_logger(__name__)


def _stop_orphans(
    pool: Pool, executor: Executor, reports: Sequence[Report], installation: str, at: datetime
) -> list[str]:
    """Stop processes that run on although their lease has ended; return those that did.

    It happens where the end was recorded, and the crash came before the executor was asked to stop.
    """
    live = Lease.objects.filter(pool=pool).exclude(state=Lease.State.ENDED)
    known = {
        lease_token(job, number, installation)
        for job, number in live.values_list("job_id", "number")
    }
    orphans = [
        Stop(report.token, token_job(report.token), to_us(at), pool.grace_s * SECOND_US)
        for report in reports
        if report.state is ReportState.RUNNING and report.token not in known
    ]
    if not orphans:
        return []
    log.warning("executor.orphans", pool=pool.name, tokens=[stop.token for stop in orphans])
    try:
        stopped = executor.stop(orphans)
    except ExecutorError as error:
        log.warning("executor.refused", pool=pool.name, error=str(error))
        return []
    return [report.token for report in stopped if report.state is not ReportState.RUNNING]


def reconcile(
    pool: Pool, executor: Executor, token: int, *, installation: str, at: datetime
) -> int:
    """Record what the executor says as of `at`; return how many processes have ended.

    An executor that cannot be asked changes nothing: nothing is declared lost for it.

    Raises:
        FencedError: the pool was taken by another holder since.
    """
    try:
        reports = executor.list(pool.pk, to_us(at))
    except ExecutorError as error:
        log.warning("executor.silent", pool=pool.name, error=str(error))
        return 0
    fault_point("reconcile.after_list")
    ended = observe(pool.pk, token, reports, installation=installation, at=at)
    fault_point("reconcile.after_observe")
    ended += _stop_orphans(pool, executor, reports, installation, at)
    executor.forget(ended)
    return len(ended)
