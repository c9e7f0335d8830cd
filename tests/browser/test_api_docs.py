"""Test the API's page in a real browser, rendered from our files under the site's strict policy."""

from __future__ import annotations

from playwright.sync_api import Browser

from portal.site.api import document


class TestApiPage:
    def test_renders_every_operation_without_external_requests(
        self, site: str, browser: Browser
    ) -> None:
        page = browser.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{site}/api/v1/docs")
        page.wait_for_selector(".opblock")
        operations = sum(len(methods) for methods in document()["paths"].values())
        assert page.locator(".opblock").count() == operations
        assert not [url for url in asked if not url.startswith((site, "data:"))]
        assert not said
        page.close()
