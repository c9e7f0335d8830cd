"""Speeds and throughputs as figures and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from portal.marks.figures import thousands
from portal.marks.svg import Markup
from portal.marks.throughputchart import SpeedPoint, Switch, throughput_chart
from scheduling.domain.profiles import PLAIN_MILLI
from scheduling.selectors.throughput import Moment


def moments_chart(moments: Sequence[Moment], now: datetime, *, label: str, width: int) -> Markup:
    """The chart of some rounds, with a line where the policy became another."""
    points = [SpeedPoint(row.at, row.milli / PLAIN_MILLI) for row in moments]
    switches = [
        Switch(after.at, after.policy)
        for before, after in pairwise(moments)
        if before.policy != after.policy
    ]
    return throughput_chart(points, switches, now, label=label, width=width)


def value_text(milli: int, places: int = 1) -> str:
    """Thousandths as a figure."""
    return thousands(milli / PLAIN_MILLI, places)
