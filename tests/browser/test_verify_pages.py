"""Test the verification panels in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from billing.models import Transfer
from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.pool_stage import Stage, settled_stage
from tests.functional.test_verify_pages import say, statement

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

DAYS = "from=2030-01-01&to=2030-01-02"


@pytest.fixture
def there(committed_db: str) -> Stage:
    assert committed_db
    made = settled_stage()
    made.lab.seal()
    say(made, "owner", "alpha", findings=2)
    say(made, "owner", "alpha", **statement())
    say(made, "neighbour", "beta")
    return made


@pytest.fixture
def windows(there: Stage, site: str, browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """Yield a signed-in window of a member and of the operator."""
    opened = {}
    for who in ("owner", "operator"):
        context = browser.new_context(base_url=site)
        give_session(context, there.client(who), site)
        opened[who] = context
    yield opened
    for context in opened.values():
        context.close()


def paths(there: Stage) -> list[tuple[str, str, str]]:
    """Return each viewer's paths, and the selector of the verification panel."""
    transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour")[0]
    return [
        ("owner", f"/t/alpha/ledger/statement/?{DAYS}", ".verify"),
        ("owner", "/t/alpha/ledger/contribution/", ".verify"),
        ("owner", f"/t/alpha/ledger/{transfer.pk}/", ".verify"),
        ("owner", there.url("rounds/3/"), ".verify"),
        ("operator", "/t/beta/ledger/contribution/line/", ".verify"),
        ("operator", f"/operate/pools/{there.pool}/health/", "#t-verified"),
    ]


class TestVerificationPanel:
    def test_fits_window_and_has_copy_button(
        self, there: Stage, windows: dict[str, BrowserContext]
    ) -> None:
        for who, path, place in paths(there):
            page = windows[who].new_page()
            complaints = complaints_of(page)
            page.goto(path)
            for link in page.get_by_role("link", name="How to verify", exact=True).all():
                link.click()
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 900})
                part = page.locator(place).first
                part.scroll_into_view_if_needed()
                box = part.bounding_box()
                assert box is not None, path
                assert box["x"] >= 0, path
                assert box["x"] + box["width"] <= width, (path, width)
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, width, wide)
                if place == ".verify":
                    assert part.locator(".cmd button").is_visible(), path
                    assert "verified" in part.inner_text()
            assert complaints == [], path
            page.close()
