"""What the worker of rounds does, by the fences that it takes and lets go."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func

from scheduling.models import PoolFence


def round_activity() -> tuple[list[str], float | None]:
    """Return the pools of which a round runs, and how many seconds ago the last round ended.

    Wall time; None if no round ever ended. One query.
    """
    now = Func(function="clock_timestamp", output_field=DateTimeField())
    age = ExpressionWrapper(now - F("until"), output_field=DurationField())
    fences = PoolFence.objects.filter(token__gt=0).order_by("pool_id").annotate(age=age)
    rows = list(fences.values_list("pool__name", "holder", "age"))
    # A round that runs has its holder and an instant to come. Its end takes the one away and sets
    # the other to now, which a clock that was set back shows as to come.
    running = [name for name, holder, since in rows if holder and since < timedelta(0)]
    ended = [max(0.0, since.total_seconds()) for name, _, since in rows if name not in running]
    return running, min(ended, default=None)
