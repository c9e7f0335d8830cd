"""Test that a manager offers idle quota and revokes it, in a real browser and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tenants.models import IdleOffer, Membership, SharingSetting
from tests.browser.axe import visited
from tests.browser.complaints import complaints_of
from tests.browser.keyboard import tab_to
from tests.browser.test_operator import opened
from tests.functional.visitors import Town, town, visitor
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATH = "/t/north/sharing/"
WIDTHS = (1440, 390)


def busy_town() -> Town:
    made = town()
    for _ in range(6):
        made.submit(tenant="south", duration_s=100_000)
    made.play(1)
    return made


copy = copied(busy_town)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Town]) -> Town:
    return copy.made


@pytest.fixture
def page(there: Town, site: str, browser: Browser) -> Iterator[Page]:
    shown = opened(browser, site, visitor("nia", there.tenant, Membership.Role.MANAGER))
    complaints = complaints_of(shown)
    yield shown
    shown.context.close()
    assert complaints == []


class TestManager:
    def test_offers_and_revokes_by_keyboard(self, page: Page) -> None:
        page.goto(PATH)
        tab_to(page, "#f-v100 summary")
        page.keyboard.press("Enter")
        tab_to(page, "#s-v100-by_offer")
        page.keyboard.press("ArrowDown")
        tab_to(page, "button[value=set]")
        page.keyboard.press("Enter")
        page.wait_for_selector(".toast >> text=Saved for v100.")
        assert SharingSetting.objects.get().by_offer
        tab_to(page, "#o-gpus")
        page.keyboard.type("2")
        tab_to(page, "#o-floor_price")
        page.keyboard.type("0.75")
        page.keyboard.press("Enter")
        page.wait_for_selector("#t-offers")
        said = page.inner_text("#t-offers")
        assert "its floor is 0.750000 credits, and the posted price is 0.681793" in said
        assert "Nothing is lent" in page.inner_text("h1")
        tab_to(page, "button[value=revoke]")
        page.keyboard.press("Enter")
        page.wait_for_selector(".toast >> text=Offer revoked.")
        assert "2 GPUs of this type are borrowed in the whole pool now" in page.inner_text(".toast")
        assert IdleOffer.objects.get().revoked_at is not None

    def test_page_fits_window_and_is_accessible(self, page: Page) -> None:
        page.goto(PATH)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wider <= 0, width
        assert visited(page, PATH) == []
