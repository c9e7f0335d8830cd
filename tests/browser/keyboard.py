"""A page by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

# More stops than twice any page has: what comes before a target may change while one goes there.
MOST_STOPS = 200


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is on what the selector names."""
    for _ in range(MOST_STOPS):
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the keyboard does not reach {selector}")
