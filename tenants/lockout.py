"""Login throttling: too many wrong passwords lock for a while.

They are counted per account and client together, per client, and per account. A client is an IPv4
address or the /64 of an IPv6 address. Counts are in Postgres, so that flushing a cache unlocks
nothing.
"""

from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q
from django.db.models.functions import Now
from django.http import HttpRequest

from tenants.addresses import client_prefix
from tenants.language import gettext_noop
from tenants.models import LoginAttempt, User
from tenants.scopes import site_scope

WINDOW = timedelta(minutes=15)
LOCKED_TEXT = gettext_noop("Too many wrong passwords: try again in 15 minutes.")
log = structlog.get_logger(__name__)


class Failures(NamedTuple):
    """Numbers of wrong passwords within the window, by pair, client and account."""

    pair: int
    client: int
    account: int


# The limits take into account that people mistype, that an office shares one client, and that
# attackers use many clients.
LIMITS = Failures(pair=10, client=100, account=100)


class LockedOutError(PermissionDenied):
    """Too many wrong passwords: until the window has passed, the right password is refused, too."""


class GuardedBackend(ModelBackend):
    """Checks passwords, at most `LIMITS` wrong ones per `WINDOW`."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Return the person, or raise; no other backend is tried after this one."""
        if username is None or password is None:
            return None
        pair = _pair(username, request)
        attempt = _begin(pair)
        # Postgres cannot store NUL, so no name or password contains it.
        person = None
        if "\x00" not in username:
            person = super().authenticate(request, username, password, **kwargs)
        if not isinstance(person, User):
            raise PermissionDenied
        with site_scope():
            LoginAttempt.objects.filter(**pair, pk__lte=attempt.pk).delete()
        return person


def _begin(pair: dict[str, str]) -> LoginAttempt:
    """Note an attempt before its password is checked, so that concurrent attempts count too.

    Raises:
        LockedOutError: pair, client or account is locked; the refused attempt is not counted.
    """
    with site_scope():
        attempt = LoginAttempt.objects.create(**pair)
        locked = _over(_failures(pair), spare=0)
        if locked:
            attempt.delete()
    if locked:
        log.warning("login.locked", by=locked, **pair)
        raise LockedOutError
    return attempt


def is_locked(username: str, request: HttpRequest) -> bool:
    """Return whether the next attempt of this account by this client would be refused."""
    with site_scope():
        return bool(_over(_failures(_pair(username, request)), spare=1))


def drop_attempts() -> int:
    """Delete expired attempts; return how many. For the hourly housekeeping."""
    count, _ = LoginAttempt.objects.filter(at__lt=Now() - WINDOW).delete()
    return count


def _pair(username: str, request: HttpRequest | None) -> dict[str, str]:
    address = str(request.META.get("REMOTE_ADDR", "")) if request is not None else ""
    return {"username": username[:150].replace("\x00", ""), "address": client_prefix(address)}


def _failures(pair: dict[str, str]) -> Failures:
    of_account, of_client = Q(username=pair["username"]), Q(address=pair["address"])
    counted = LoginAttempt.objects.filter(of_account | of_client, at__gt=Now() - WINDOW).aggregate(
        pair=Count("id", filter=of_account & of_client),
        client=Count("id", filter=of_client),
        account=Count("id", filter=of_account),
    )
    return Failures(**counted)


def _over(failures: Failures, *, spare: int) -> str:
    """Return the first limit that `spare` more attempts would exceed, or an empty text."""
    for name, count, limit in zip(Failures._fields, failures, LIMITS, strict=True):
        if count + spare > limit:
            return name
    return ""
