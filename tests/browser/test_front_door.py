"""Test the front page in a real browser: it loads, and its policy allows all of its parts."""

from typing import TYPE_CHECKING

from tests.browser.complaints import complaints_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class TestFrontPage:
    def test_loads_without_browser_errors(self, site: str, browser: "Browser") -> None:
        page = browser.new_page()
        complaints = complaints_of(page)
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        answer = page.goto(site)
        assert answer is not None
        assert answer.status == 200
        assert page.title()
        assert complaints == []
        page.close()

    def test_makes_no_external_requests(self, site: str, browser: "Browser") -> None:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(site)
        assert [url for url in asked if not url.startswith((site, "data:"))] == []
        page.close()
