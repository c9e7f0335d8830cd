"""Test the pool page in a real browser: no errors, no horizontal scroll, rows mark their GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.pool_stage import Stage, stage
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1440, 390)


copy = copied(stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


@pytest.fixture
def page(there: Stage, site: str, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(base_url=site)
    give_session(context, there.client("owner"), site)
    opened = context.new_page()
    yield opened
    context.close()


class TestPoolPages:
    def test_fit_window_without_errors_or_duplicate_ids(self, there: Stage, page: Page) -> None:
        complaints = complaints_of(page)
        paths = [
            there.url(one)
            for one in ("", "history/", "prices/", "rounds/", "rounds/1/", "rounds/2/")
        ]
        for path in (*paths, "/t/alpha/ledger/"):
            page.goto(path)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{path}: {wide}"
            twice = page.evaluate(
                "[...document.querySelectorAll('[id]')].map(e => e.id)"
                ".filter((id, n, all) => all.indexOf(id) !== n)"
            )
            assert twice == [], path
        assert complaints == []


class TestNodeMap:
    def test_hovering_row_dims_other_leases(self, there: Stage, page: Page) -> None:
        page.goto(there.url())
        row = page.locator("#t-claims tr.here")
        mark = row.get_attribute("data-t")
        row.hover()
        opacity = "e => getComputedStyle(e).opacity"
        mine = page.locator(f".nodes g.{mark}").first.evaluate(opacity)
        other = page.locator(f".nodes g:not(.{mark})").first.evaluate(opacity)
        assert float(mine) == 1
        assert float(other) < 0.5

    def test_links_only_own_jobs(self, there: Stage, page: Page) -> None:
        page.goto(there.url())
        links = page.locator(".nodes a[href^='/jobs/']")
        # The gang of 4 on one node and the single GPU on the other.
        assert links.count() == 2


class TestHeadline:
    def test_number_opens_its_breakdown(self, there: Stage, page: Page) -> None:
        page.goto(there.url())
        page.locator("h1 button.x").first.click()
        note = page.locator("h1 [popover]").first
        assert note.is_visible()
        assert "within own quota" in note.inner_text()
