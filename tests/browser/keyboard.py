"""Navigate a page by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Twice the tab stops of any page, because stops before the target may change meanwhile.
MOST_STOPS = 200


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is on the selector's element."""
    for _ in range(MOST_STOPS):
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the keyboard does not reach {selector}")
