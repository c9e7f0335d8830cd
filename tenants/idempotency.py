"""Idempotency: a repeated request gets the result of the first request, even if its reply was lost.

The row of a key (tenant, user, route, key) is written in the same transaction as the work. So
either both exist, or neither. A concurrent request with the same key waits for that row for a few
seconds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Generic, NamedTuple, TypeVar

from django.db import connection
from django.db.models.functions import Now
from django.db.utils import OperationalError
from psycopg.errors import LockNotAvailable

from tenants.models import IdempotentReply, Tenant, User
from tenants.scopes import site_scope

T = TypeVar("T")
KEY_MAX = 255
KEEP = timedelta(days=7)
WAIT = "5s"


class Made(NamedTuple, Generic[T]):
    """The object of a request, and whether an earlier request with the same key made it."""

    row: T
    is_replay: bool


class MismatchError(Exception):
    """The key was used before, with another request."""


class InFlightError(Exception):
    """The first request with this key is not finished yet."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request under a key; `digest` is the SHA-256 of its body."""

    tenant_id: int
    user_id: int
    route: str
    key: str
    digest: str

    @classmethod
    def of(
        cls, tenant: Tenant, user: User | None, route: str, key: str | None, body: object
    ) -> KeyedRequest | None:
        """Return the request with its key, or None without a key or a user."""
        if not key or user is None:
            return None
        # Escaped to ASCII, so that every text of a body can be hashed.
        canonical = json.dumps(body, sort_keys=True, default=str).encode()
        digest = hashlib.sha256(canonical).hexdigest()
        return cls(tenant.pk, user.pk, route, key, digest)


_BEGIN = """
SELECT set_config('lock_timeout', %s, true);
INSERT INTO tenants_idempotentreply
    (tenant_id, user_id, route, key, digest, made, created_at)
VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp())
ON CONFLICT (tenant_id, user_id, route, key) DO NOTHING RETURNING id
"""


def begin_reply(request: KeyedRequest, made: list[str]) -> list[str] | None:
    """Claim the key for the objects in `made`; return an earlier request's objects, or None.

    Call it inside the transaction of the work. If a concurrent request holds the key, this returns
    after its commit, or claims the key after its rollback.

    Raises:
        MismatchError: the key belongs to another request.
        InFlightError: the concurrent request took too long.
    """
    try:
        with connection.cursor() as cursor:
            # Two statements in one round trip; the timeout applies to the insert and to the next
            # statement.
            cursor.execute(_BEGIN, [WAIT, *astuple(request), json.dumps(made)])
            cursor.nextset()
            if cursor.fetchone() is not None:
                return None
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise InFlightError from error
        raise
    known = IdempotentReply.objects.get(
        tenant_id=request.tenant_id,
        user_id=request.user_id,
        route=request.route,
        key=request.key,
    )
    if known.digest != request.digest:
        raise MismatchError
    return list(known.made)


def drop_replies() -> int:
    """Delete keys older than `KEEP`; return how many. For the hourly housekeeping."""
    with site_scope():
        count, _ = IdempotentReply.objects.filter(created_at__lt=Now() - KEEP).delete()
    return count
