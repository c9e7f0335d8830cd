"""Tokens: secrets that act for a person through the API, for a while and within scopes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now

from tenants.models import ApiToken, User
from tenants.scopes import site_scope

PREFIX = "es_"
SECRET_BYTES = 32
DAYS, DAYS_MAX, PER_PERSON = 30, 90, 50
# Its last use is written at most so often: reads stay reads.
USED_EVERY = timedelta(minutes=5)


class Scope(StrEnum):
    """What a token may be used for, within what its person may do anyway."""

    READ = "read"  # pools, queues, quotas, prices, rounds and usage
    JOBS_READ = "jobs:read"  # jobs, why they wait, their logs
    JOBS_WRITE = "jobs:write"  # submit, dry run and cancel; drop other tokens


class TooManyTokensError(Exception):
    """The person has `PER_PERSON` tokens; one must be dropped first."""


def token_create(
    *, user: User, name: str, scopes: Iterable[Scope], days: int, now: datetime
) -> tuple[ApiToken, str]:
    """Make a token; return it with its secret, which is not kept and never shown again.

    Raises:
        TooManyTokensError: expired ones do not count, they are dropped here.
    """
    with site_scope():
        ApiToken.objects.filter(user=user, expires_at__lte=now).delete()
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        if ApiToken.objects.filter(user=user).count() >= PER_PERSON:
            raise TooManyTokensError
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        token = ApiToken.objects.create(
            user=user,
            name=name,
            digest=digest_of(secret),
            scopes=sorted({scope.value for scope in scopes}),
            expires_at=now + timedelta(days=min(days, DAYS_MAX)),
        )
    return token, secret


def token_find(secret: str) -> ApiToken | None:
    """Return the living token of a secret, with its person; None for every other text."""
    if not secret.startswith(PREFIX) or not secret.isascii() or len(secret) > 100:
        return None
    with site_scope():
        stale = Q(used_at__isnull=True) | Q(used_at__lt=Now() - USED_EVERY)
        token = (
            ApiToken.objects.select_related("user")
            .annotate(stale=ExpressionWrapper(stale, BooleanField()))
            .filter(digest=digest_of(secret), user__is_active=True, expires_at__gt=Now())
            .first()
        )
        if token is not None and token.stale:
            ApiToken.objects.filter(pk=token.pk).update(used_at=Now())
    return token


def token_drop(*, user: User, uid: UUID) -> bool:
    """Drop one of a person's tokens; return whether there was one."""
    with site_scope():
        count, _ = ApiToken.objects.filter(user=user, uid=uid).delete()
    return bool(count)


def digest_of(secret: str) -> str:
    """Return what is kept of a secret: its SHA-256 as hex. 256 random bits need no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()
