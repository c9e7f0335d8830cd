"""Test the pages of the API in a real browser, under the site's strict policy."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.browser.axe import on_a_phone, serious


class TestApiPages:
    def test_lead_from_a_search_to_an_example_and_pass_axe(
        self, site: str, browser: Browser
    ) -> None:
        page = browser.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{site}/api/v1/docs")
        assert not serious(page)
        page.get_by_label("Search").fill("cancel job")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="POST /api/v1/jobs/{uid}/cancel").click()
        assert page.url == f"{site}/api/v1/docs/jobs#job_cancel"
        assert "evenshare job cancel" in page.locator("#job_cancel .cmd").first.inner_text()
        assert '"state"' in page.locator("#a-job_cancel").inner_text()
        assert not serious(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert not on_a_phone(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not [url for url in asked if not url.startswith((site, "data:"))]
        assert not said
        page.close()
