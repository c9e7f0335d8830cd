"""The accuracy of start estimates over time: the share of starts before p90 and before p50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.charts.explore.chart import Label, PageChart, Series, apart
from portal.charts.explore.looks import QUOTA, Look, line_look
from portal.charts.figures import percent

P90, P50 = 90, 50
Y = (0.0, 105.0)


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """A part of the window, at its middle: shares from 0 to 1, or None if it has no estimates."""

    at: datetime
    by_p90: float | None
    by_p50: float | None


def coverage_chart(
    points: Sequence[CoveragePoint], since: datetime, until: datetime, *, pool: str
) -> PageChart:
    """Draw both shares as lines; dashed lines show the shares that exact estimates would have."""
    keys = [point.at for point in points]
    shares = {
        "before p90": [point.by_p90 for point in points],
        "before p50": [point.by_p50 for point in points],
    }
    lines = [
        Series(
            name,
            f"{name}, % of estimates",
            keys,
            [None if share is None else 100 * share for share in values],
            line_look(place),
            steps=False,
            places=1,
            dots=True,
        )
        for place, (name, values) in enumerate(shares.items())
    ]
    exact = [
        Series(f"{level} %", f"exact, {level} %", [since, until], [level, level], _EXACT)
        for level in (P90, P50)
    ]
    labels = [
        Label(f"{name} {percent(last)}", 100 * last)
        for name, values in shares.items()
        if (last := next((one for one in reversed(values) if one is not None), None)) is not None
    ]
    return PageChart(
        key="coverage",
        title="Share of starts before p90 and before p50",
        text="Dashed: 90 % and 50 %, where exact estimates would be.",
        series=(*lines, *exact),
        y=Y,
        unit="% of estimates",
        file=f"start-estimates-{pool}",
        labels=apart(labels, Y),
    )


_EXACT = Look(QUOTA.color, "dot", width=1)
