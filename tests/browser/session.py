"""Create sessions for a browser without the login page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from django.test import Client
    from playwright.sync_api import BrowserContext


def give_session(context: BrowserContext, client: Client, site: str) -> None:
    """Sign a browser in at `site` as the user of a test client."""
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])
