"""From one page to the next: a test goes on when the new one is whole and its scripts have run.

A click alone returns when the new page begins to arrive. On a busy machine what a test then types
may come before the script that listens to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def follow(page: Page, selector: str) -> None:
    """Click what leads to another page, and wait until that one has loaded."""
    with page.expect_navigation():
        page.click(selector)
