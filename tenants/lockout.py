"""Slows down who guesses passwords: ten failures lock (username, address) for a while.

Kept in Postgres, so that a flushed cache frees nobody.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Now
from django.http import HttpRequest

from tenants.models import LoginAttempt, User
from tenants.scopes import site_scope

FAILURES, WINDOW = 10, timedelta(minutes=15)
log = structlog.get_logger(__name__)


class LockedOutError(PermissionDenied):
    """Too many wrong passwords; the right one is refused too until the window has passed."""


class GuardedBackend(ModelBackend):
    """Checks passwords, at most `FAILURES` wrong ones per `WINDOW`, username and address."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Return the person, or raise; no other backend is asked after this one."""
        if username is None or password is None:
            return None
        pair = {"username": username[:150], "address": _address(request)}
        attempt = _begin(pair)
        # Postgres has no NUL in texts; neither has any name or password.
        person = None
        if "\x00" not in username:
            person = super().authenticate(request, username, password, **kwargs)
        if not isinstance(person, User):
            raise PermissionDenied
        with site_scope():
            LoginAttempt.objects.filter(**pair, pk__lte=attempt.pk).delete()
        return person


def _begin(pair: dict[str, str]) -> LoginAttempt:
    """Note an attempt before its password is looked at, so that many at once count too.

    Raises:
        LockedOutError: the pair is locked; what is refused is not counted.
    """
    pair["username"] = pair["username"].replace("\x00", "")
    with site_scope():
        attempt = LoginAttempt.objects.create(**pair)
        recent = LoginAttempt.objects.filter(**pair, at__gt=Now() - WINDOW)
        if recent.count() > FAILURES:
            attempt.delete()
            locked = True
        else:
            locked = False
    if locked:
        log.warning("login.locked", **pair)
        raise LockedOutError
    return attempt


def is_locked(username: str, request: HttpRequest) -> bool:
    """Whether the pair is locked now."""
    pair = {"username": username[:150].replace("\x00", ""), "address": _address(request)}
    with site_scope():
        return LoginAttempt.objects.filter(**pair, at__gt=Now() - WINDOW).count() >= FAILURES


def drop_attempts() -> int:
    """Forget attempts that count no more; return how many. For the hourly housekeeping."""
    count, _ = LoginAttempt.objects.filter(at__lt=Now() - WINDOW).delete()
    return count


def _address(request: HttpRequest | None) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))[:45] if request is not None else ""
