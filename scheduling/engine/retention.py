"""Drops files of old rounds that no open billing period needs any more.

Billing passes the first round that it still needs (`cited_from`). The row of a round with its
hashes, its record in the pool's log and its proofs are kept for ever.
"""

from datetime import date, timedelta

import structlog

from scheduling.engine.clock import wall_now
from scheduling.models import RoundArchive
from scheduling.selectors.rounds import files as round_files
from scheduling.selectors.rounds.files import round_storage
from tenants.faults import fault_point
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

KEEP_DAYS_LEAST = 90


def drop_files(pool_id: int, *, cited_from: int, keep_days: int) -> int:
    """Drop a pool's files that are older than `keep_days` and before `cited_from`; return how many.

    Files are first marked, so that no reader uses them any more, and then deleted. If a crash or a
    storage error leaves marked files behind, the next call deletes them.
    """
    keep_days = max(keep_days, KEEP_DAYS_LEAST)
    with site_scope():
        oldest = _today() - timedelta(days=keep_days)
        old = RoundArchive.objects.filter(pool_id=pool_id, day__lt=oldest, last__lt=cited_from)
        marked = old.filter(dropped_at=None).update(dropped_at=wall_now())
    if marked:
        fault_point("retention.after_mark")
        round_files.forget()
    return delete_dropped(pool_id)


def delete_dropped(pool_id: int) -> int:
    """Delete the marked files of a pool; return how many."""
    rows = RoundArchive.objects.filter(pool_id=pool_id, deleted_at=None)
    deleted = 0
    for row in rows.exclude(dropped_at=None).order_by("id"):
        # The file may be missing, because an earlier call was interrupted.
        round_storage().delete(row.name)
        with site_scope():
            RoundArchive.objects.filter(pk=row.pk).update(deleted_at=wall_now())
        log.info("rounds.file_dropped", file=row.name, bytes=row.bytes)
        deleted += 1
    return deleted


def _today() -> date:
    return wall_now().date()
