"""Page changes: a test continues when the new page is complete and its scripts have run.

A click returns when the new page starts to arrive. On a busy machine, a test may then type before
the page's script listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def follow(page: Page, selector: str) -> None:
    """Click a link to another page, and wait until the page has loaded."""
    with page.expect_navigation():
        page.click(selector)
