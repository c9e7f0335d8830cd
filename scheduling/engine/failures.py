"""Makes a pool whose rounds fail visible: one row per pool, gone with the next good round."""

from __future__ import annotations

import structlog
from django.db import Error
from django.db.models import F
from django.db.models.functions import Now

from scheduling.models import RoundFailure
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


def record_failure(pool_id: int, error: Exception) -> None:
    """Note that a round of the pool failed, and why; never fails itself."""
    log.error("round.failed", pool=pool_id, error=type(error).__name__)
    reason = f"{type(error).__name__}: {error}"[:400]
    try:
        with engine_scope(pool_id):
            _, made = RoundFailure.objects.get_or_create(
                pool_id=pool_id, defaults={"error": reason}
            )
            if not made:
                RoundFailure.objects.filter(pool_id=pool_id).update(
                    error=reason, at=Now(), count=F("count") + 1
                )
    except Error:
        # The database is what failed; the error itself is raised by the caller.
        log.warning("round.failure_not_noted", pool=pool_id, exc_info=True)


def clear_failure(pool_id: int) -> None:
    """The pool's rounds go on: what failed before is over."""
    with engine_scope(pool_id):
        RoundFailure.objects.filter(pool_id=pool_id).delete()
