"""Requests for rounds between two grid instants, and for sealing.

The tick repeats requests that were lost.
"""

from functools import partial

import structlog
from celery import current_app
from django.db import transaction

from scheduling.models import Pool
from scheduling.selectors.pools.offers import PoolOffer

log = structlog.get_logger(__name__)

# Not retried, because the tick requests the sealing of unsealed rounds every second.
SEAL_EXPIRES_S = 30
WAKE_EXPIRES_S = 15


def wake_pool_after_commit(pool: Pool | PoolOffer) -> None:
    """Request a round as soon as the running transaction is committed, if the pool allows it."""
    if pool.on_demand:
        transaction.on_commit(partial(wake_pool, pool.id), robust=True)


def wake_sealing(pool_id: int) -> None:
    """Request the sealing of a pool's rounds; if the message is lost, the tick repeats it."""
    try:
        current_app.send_task("scheduling.seal", args=[pool_id], expires=SEAL_EXPIRES_S)
    except Exception:
        log.warning("wake.failed", pool=pool_id, exc_info=True)


def wake_pool(pool_id: int) -> None:
    """Request a round of a pool now; if the broker cannot be reached, the round comes later."""
    try:
        current_app.send_task("scheduling.rounds", args=[pool_id], expires=WAKE_EXPIRES_S)
    except Exception:
        log.warning("wake.failed", pool=pool_id, exc_info=True)
