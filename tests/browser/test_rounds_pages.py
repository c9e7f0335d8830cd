"""Test a round's page in a real browser: its links, and its layout on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.test_pools_pages import page
from tests.functional.pool_stage import Stage, stage
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["page"]  # pytest finds the fixture by this name


def explained_stage() -> Stage:
    return stage(policy="ltgf")  # the page explains the order of ltgf by rho


copy = copied(explained_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


class TestRoundPage:
    def test_links_to_next_and_previous_round(self, there: Stage, page: Page) -> None:
        page.goto(there.url("rounds/1/"))
        page.locator(".crumb a[rel=next]").click()
        page.wait_for_url("**/rounds/2/")
        page.locator(".crumb a[rel=prev]").click()
        page.wait_for_url("**/rounds/1/")

    def test_grant_opens_numbers_of_its_decision(self, there: Stage, page: Page) -> None:
        page.goto(there.url("rounds/2/"))
        page.locator("#d-grants > summary").click()
        page.locator("#t-grants tbody button.x").first.click()
        assert "rho at that point" in page.locator("#t-grants tbody [popover]").first.inner_text()
