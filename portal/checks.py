"""Start-up checks: a production with unsafe settings does not start."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import Error, register


@register()
def safe_for_production(**_: Any) -> list[Error]:
    return list(_problems()) if settings.PRODUCTION else []


def _problems() -> Iterator[Error]:
    if settings.DEBUG:
        yield Error("DEBUG is on in production.", id="portal.E001")
    if len(settings.SECRET_KEY) < 32:
        yield Error("SECRET_KEY has fewer than 32 characters.", id="portal.E002")
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        yield Error("ALLOWED_HOSTS must name the hosts that are served.", id="portal.E003")
    if settings.APP_DB_ROLE in ("", "postgres"):
        yield Error("DATABASE_URL must name a role that is no superuser.", id="portal.E004")
    broker = urlsplit(settings.REDIS_URL)
    if broker.scheme != "unix" and not broker.password:
        yield Error("REDIS_URL has no password.", id="portal.E005")
