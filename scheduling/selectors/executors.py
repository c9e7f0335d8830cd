"""What people see of a pool's executor."""

from __future__ import annotations

from datetime import datetime

from scheduling.models import ExecutorHealth


def executor_silent_since(pool_id: int) -> datetime | None:
    """Return since when (wall time) a pool's executor is not asked any more, for it failed; else
    None."""
    rows = ExecutorHealth.objects.filter(pool=pool_id, open_until__isnull=False)
    return rows.values_list("failing_since", flat=True).first()
