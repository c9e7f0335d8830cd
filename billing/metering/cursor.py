"""The pool's cursor: its row is the lock of all metering and settling."""

from __future__ import annotations

from billing.models import MeterCursor


def lock_cursor(pool_id: int) -> MeterCursor | None:
    """Lock the pool's cursor; return None if another worker has it (it does the same work)."""
    MeterCursor.objects.bulk_create([MeterCursor(pool_id=pool_id)], ignore_conflicts=True)
    return MeterCursor.objects.select_for_update(skip_locked=True).filter(pk=pool_id).first()
