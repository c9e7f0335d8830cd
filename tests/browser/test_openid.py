"""Sign in through an OpenID Connect provider of another site, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import LazySettings

from tenants.models import User
from tests.browser.complaints import complaints_of
from tests.openid_provider import running_provider, trust

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_person_signs_in(site: str, browser: Browser, settings: LazySettings) -> None:
    with running_provider() as provider:
        # To a browser, `localhost` is another site than 127.0.0.1.
        issuer = provider.issuer.replace("127.0.0.1", "localhost")
        trust(settings, issuer, site)
        provider.add("17", preferred_username="ines", given_name="Ines", family_name="Ito")
        page = browser.new_page()
        # The provider's pages name a stylesheet of another host.
        page.route("https://*/**", lambda route: route.fulfill(content_type="text/css"))
        complaints = complaints_of(page)
        page.goto(f"{site}/login/?next=/account/")
        page.get_by_role("link", name="Example University").click()
        page.locator("[name=sub]").fill("17")
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url(f"{site}/account/")
        assert page.get_by_text("Ines Ito").first.is_visible()
        assert User.objects.get().identity == f"{issuer} 17"
        assert complaints == []
        page.close()
