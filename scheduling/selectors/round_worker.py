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
    ages = dict(fences.values_list("pool__name", "age"))
    # A round that runs holds its fence until an instant to come. Its end sets that to now.
    running = [name for name, since in ages.items() if since < timedelta(0)]
    ended = (since.total_seconds() for since in ages.values() if since >= timedelta(0))
    return running, min(ended, default=None)
