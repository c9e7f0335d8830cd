"""Test certificates and the counterfactual in a browser: red, green, grey; axe; phones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.arrival import follow
from tests.browser.axe import on_a_phone, visited
from tests.browser.test_pools_pages import page
from tests.functional.certificate_stage import plant, unfair
from tests.functional.mixed_stage import mixed_stage
from tests.functional.pool_stage import Stage
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["page"]  # pytest finds the fixture by this name


copy = copied(mixed_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


class TestCertificatePage:
    def test_marks_results_by_word_and_shape(self, there: Stage, page: Page) -> None:
        red = plant(there, unfair).number
        for path in (f"rounds/{red - 1}/", f"rounds/{red}/", f"rounds/{red - 1}/counterfactual/"):
            page.set_viewport_size({"width": 1440, "height": 900})
            assert visited(page, there.url(path)) == []
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{path} at {width}"
            assert on_a_phone(page) == []
        page.goto(there.url(f"rounds/{red}/"))
        first = page.locator(".cert .crow").first
        assert first.locator("h3").inner_text() == "Envy-freeness"
        assert first.locator(".v").inner_text().startswith("violated")
        assert first.locator("p").first.is_visible()
        assert page.locator("#verify-command").is_visible()
        assert first.locator("svg").count() == 1
        # The third broken promise: an injected round does not follow from the previous round.
        assert "3 promises are broken." in page.locator(".cert.broken").inner_text()
        page.goto(there.url(f"rounds/{red - 1}/"))
        assert page.locator(".cert.broken, .crow.violated").count() == 0
        assert page.locator(".crow.holds").count() >= 5
        grey = page.locator(".crow.grey .v").first
        assert not grey.is_visible()
        page.locator("#unpromised > summary").click()
        assert grey.inner_text().startswith("not promised")
        assert not page.locator("#verify-command").is_visible()
        page.emulate_media(media="print")
        assert page.locator("#verify-command").is_visible()

    def test_links_to_what_if_reports_and_accepts_custom_report(
        self, there: Stage, page: Page
    ) -> None:
        page.goto(there.url("rounds/1/"))
        follow(page, "a >> text=What-if reports")
        page.get_by_label("v100").fill("3.5")
        page.get_by_label("v100").press("Enter")
        page.wait_for_url("**speed-v100=3.5**")
        row = page.locator("#t-reports tbody tr").nth(1)
        assert "Your own report" in row.inner_text()
        assert "reports 1, 3.5" in row.inner_text()
