"""Asks the executor what there is, and records what is new."""

from __future__ import annotations

from datetime import datetime

import structlog

from scheduling.domain.instants import to_us
from scheduling.engine.executors import Executor, ExecutorError
from scheduling.engine.observe import observe
from scheduling.models import Pool
from tenants.faults import fault_point

log = structlog.get_logger(__name__)


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
    executor.forget(ended)
    return len(ended)
