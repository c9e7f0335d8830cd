"""Records failing pools: one row per pool, deleted by the next successful round."""

import structlog
from django.db import Error
from django.db.models import F
from django.db.models.functions import Now

from scheduling.models import RoundFailure
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


def record_failure(pool_id: int, error: Exception) -> None:
    """Record that a round of the pool failed, and the reason; raise no error."""
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
        # The database itself failed; the caller raises the error.
        log.warning("round.failure_not_noted", pool=pool_id, exc_info=True)


def clear_failure(pool_id: int) -> None:
    """Delete the pool's failure, since its rounds succeed again."""
    with engine_scope(pool_id):
        RoundFailure.objects.filter(pool_id=pool_id).delete()
