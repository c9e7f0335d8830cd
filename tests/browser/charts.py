"""Wait for interactive charts in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def drawn(page: Page, key: str, times: int = 1) -> Locator:
    """Wait until a chart has been drawn at least `times` times; open what it is folded in."""
    chart = page.locator(f"#{key}")
    chart.evaluate("one => { const fold = one.closest('details'); if (fold) fold.open = true; }")
    chart.locator(".chart-draw").scroll_into_view_if_needed()
    # A function and not an expression, because the policy blocks the evaluation of expressions.
    page.wait_for_function(
        "([plot, times]) => Number(document.querySelector(plot)?.dataset.drawn) >= times",
        arg=[f"#{key} .chart-plot", times],
    )
    return chart
