"""Texts and a chart of the accuracy of a pool's start estimates."""

from typing import Any

from django.utils.translation import gettext as _

from portal.charts.explore.coverage import coverage_chart
from portal.charts.figures import percent, plural
from portal.common.clocks import Clocks
from portal.common.starts import correction_rows
from scheduling.selectors.jobs.start_estimates import Calibration, no_estimate_text

FEW = 20


def calibration_context(past: Calibration, clocks: Clocks, pool: str) -> dict[str, Any]:
    """Return the data of templates/pools/starts.html."""
    newest = past.newest
    return {
        "past": past,
        "headline": headline(past),
        "times": clocks,
        "rows": [step for step in reversed(past.steps) if step.estimates or step.of_p50],
        "chart": coverage_chart(past, pool=pool),
        "newest": newest,
        "newest_at": clocks.instant(newest.at) if newest else None,
        "corrected": [f"{what}: {how}." for what, how in correction_rows(newest.facts)]
        if newest
        else [],
        "none": _reasons(newest.facts.get("none", {}) if newest else {}),
    }


def headline(past: Calibration) -> str:
    """Return the share of starts before p90."""
    whole = past.whole
    if whole.p90 is None:
        return _("No start estimate came due in this period.")
    # With few starts, a percentage would look too exact.
    held = str(whole.by_p90) if whole.estimates < FEW else percent(whole.p90)
    return _("{held} of {estimates} held (start before p90).").format(
        held=held, estimates=plural(whole.estimates, "estimate")
    )


def _reasons(counts: dict[str, int]) -> list[tuple[int, str]]:
    return [(count, no_estimate_text(reason)) for reason, count in counts.items()]
