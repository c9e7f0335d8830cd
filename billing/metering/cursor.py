"""The lock on a pool's cursor row, which serializes all metering and settling of the pool."""

from billing.models import MeterCursor


def lock_cursor(pool_id: int) -> MeterCursor | None:
    """Lock the pool's cursor; return None if another worker has locked it to do the same work."""
    MeterCursor.objects.bulk_create([MeterCursor(pool_id=pool_id)], ignore_conflicts=True)
    return MeterCursor.objects.select_for_update(skip_locked=True).filter(pk=pool_id).first()
