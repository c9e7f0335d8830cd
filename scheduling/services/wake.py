"""Wakes a pool's round between two grid instants, and who seals rounds. A wake-up may be lost: the
tick comes anyway."""

from __future__ import annotations

from functools import partial

import structlog
from celery import current_app
from django.db import transaction

log = structlog.get_logger(__name__)

# The tick asks every second for what is not sealed yet.
SEAL_EXPIRES_S = 30
WAKE_EXPIRES_S = 15


def wake_pool_after_commit(pool_id: int) -> None:
    """Once the running transaction is committed, ask for a round of the pool."""
    transaction.on_commit(partial(wake_pool, pool_id), robust=True)


def wake_sealing(pool_id: int) -> None:
    """Ask that the rounds of a pool be sealed; should the message be lost, the tick asks again."""
    try:
        current_app.send_task("scheduling.seal", args=[pool_id], expires=SEAL_EXPIRES_S)
    except Exception:
        log.warning("wake.failed", pool=pool_id, exc_info=True)


def wake_pool(pool_id: int) -> None:
    """Ask for a round of a pool now; a broker that cannot be reached only makes it later."""
    try:
        current_app.send_task("scheduling.rounds", args=[pool_id], expires=WAKE_EXPIRES_S)
    except Exception:
        log.warning("wake.failed", pool=pool_id, exc_info=True)
