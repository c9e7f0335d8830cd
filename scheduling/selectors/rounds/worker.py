"""The activity of the worker that runs rounds, from the fences that it takes and releases."""

from datetime import timedelta

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func

from scheduling.models import PoolFence


def round_activity() -> tuple[list[str], float | None]:
    """Return the pools with a running round, and the seconds since the last round ended.

    Wall time; the seconds are None if no round ever ended. A single query.
    """
    now = Func(function="clock_timestamp", output_field=DateTimeField())
    age = ExpressionWrapper(now - F("until"), output_field=DurationField())
    fences = PoolFence.objects.filter(token__gt=0).order_by("pool_id").annotate(age=age)
    rows = list(fences.values_list("pool__name", "holder", "age"))
    # While a round runs, its fence has a holder, and its time is in the future. The end of the
    # round clears the holder and sets the time to now. If a clock was set back, the time of a
    # finished round may also be in the future.
    running = [name for name, holder, since in rows if holder and since < timedelta(0)]
    ended = [max(0.0, since.total_seconds()) for name, _, since in rows if name not in running]
    return running, min(ended, default=None)
