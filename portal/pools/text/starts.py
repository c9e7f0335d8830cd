"""Texts and a chart of the accuracy of a pool's start estimates."""

from __future__ import annotations

from typing import Any, NamedTuple

from portal.charts.explore.chart import PageChart
from portal.charts.explore.coverage import CoveragePoint, coverage_chart
from portal.charts.figures import percent, plural
from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from portal.common.starts import correction_rows
from scheduling.selectors.jobs.start_estimates import NO_ESTIMATE, Calibration

FEW = 20


class CoverageRow(NamedTuple):
    """A part of the window in the table; shares are None if it has no estimates."""

    since: Instant | None
    estimates: int
    by_p90: int
    of_p50: int
    by_p50: int
    p90: float | None
    p50: float | None


def calibration_context(past: Calibration, clocks: Clocks, pool: str) -> dict[str, Any]:
    """Return the data of templates/pools/starts.html."""
    rows = [
        CoverageRow(
            clocks.instant(step.since),
            step.estimates,
            step.by_p90,
            step.of_p50,
            step.by_p50,
            _share(step.by_p90, step.estimates),
            _share(step.by_p50, step.of_p50),
        )
        for step in past.steps
    ]
    newest = past.newest
    return {
        "past": past,
        "headline": headline(past),
        "rows": [row for row in reversed(rows) if row.estimates or row.of_p50],
        "p90": _share(past.by_p90, past.estimates),
        "p50": _share(past.by_p50, past.of_p50),
        "chart": chart(past, pool),
        "newest": newest,
        "newest_at": clocks.instant(newest.at) if newest else None,
        "corrected": [f"{what}: {how}." for what, how in correction_rows(newest.facts)]
        if newest
        else [],
        "none": _reasons(newest.facts.get("none", {}) if newest else {}),
    }


def headline(past: Calibration) -> str:
    """Return the share of starts before p90."""
    if not past.estimates:
        return "No start estimate came due in this period."
    held = percent(past.by_p90 / past.estimates)
    if past.estimates < FEW:
        held = str(past.by_p90)  # with few starts, a percentage would look too exact
    return f"{held} of {plural(past.estimates, 'estimate')} held (start before p90)."


def chart(past: Calibration, pool: str) -> PageChart:
    """Draw the shares over the window, with a dot per part that has estimates."""
    width = (past.until - past.since) / len(past.steps)
    points = [
        CoveragePoint(
            step.since + width / 2,
            _share(step.by_p90, step.estimates),
            _share(step.by_p50, step.of_p50),
        )
        for step in past.steps
    ]
    return coverage_chart(points, past.since, past.until, pool=pool)


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


def _reasons(counts: dict[str, int]) -> list[tuple[int, str]]:
    return [(count, NO_ESTIMATE.get(reason, reason)) for reason, count in counts.items()]
