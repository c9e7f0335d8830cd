"""Speeds and throughputs as figures and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from evenshare_core.units import ONE_MILLI
from portal.charts.figures import thousands
from portal.charts.svg import Markup
from portal.charts.throughputchart import SpeedPoint, Switch, throughput_chart
from scheduling.selectors.throughput import ThroughputPoint


def moments_chart(
    moments: Sequence[ThroughputPoint], now: datetime, *, label: str, width: int
) -> Markup:
    """The chart of some rounds, with a line where the policy became another."""
    points = [SpeedPoint(row.at, row.milli / ONE_MILLI) for row in moments]
    switches = [
        Switch(after.at, after.policy)
        for before, after in pairwise(moments)
        if before.policy != after.policy
    ]
    return throughput_chart(points, switches, now, label=label, width=width)


def value_text(milli: int, places: int = 1) -> str:
    """Thousandths as a figure."""
    return thousands(milli / ONE_MILLI, places)


def profile_texts(profiles: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """Job types with their speeds in words, slowest GPU type first, by name."""
    return [
        (
            name,
            ", ".join(
                f"{kind} \N{MULTIPLICATION SIGN}{value_text(speed, 2)}"
                for kind, speed in sorted(speeds.items(), key=lambda item: (item[1], item[0]))
            ),
        )
        for name, speeds in sorted(profiles.items())
    ]
