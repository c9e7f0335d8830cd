"""The time range of charts: seven days, the last day in full resolution."""

from datetime import datetime, timedelta
from typing import TypedDict

DAY, WEEK = timedelta(days=1), timedelta(days=7)


class OlderDays(TypedDict):
    """The arguments of history selectors for the days before the last one."""

    since: datetime
    until: datetime
    points: int


def older_days(now: datetime, points: int) -> OlderDays:
    """Return the six days before the last one, thinned to `points` points."""
    return {"since": now - WEEK, "until": now - DAY, "points": points}
