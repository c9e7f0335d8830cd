"""The time that charts show: seven days, the last one finely."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict

DAY, WEEK = timedelta(days=1), timedelta(days=7)


class OlderDays(TypedDict):
    """What selectors of histories take for the days before the last one."""

    since: datetime
    until: datetime
    points: int


def older_days(now: datetime, points: int) -> OlderDays:
    """The six days before the last one, thinned to so many points as a page can carry."""
    return {"since": now - WEEK, "until": now - DAY, "points": points}
