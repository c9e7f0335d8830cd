"""Tokens: secrets with which a program acts for a person in the API, limited in time and scope."""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now

from tenants.models import ApiToken, User
from tenants.scopes import site_scope
from tenants.selectors.access import Access, MembershipFacts

PREFIX = "es_"
SECRET_BYTES = 32
DAYS, DAYS_MAX, PER_PERSON = 30, 90, 50
# The last use is updated at most this often, so that most requests only read.
USED_EVERY_S = 300


class Scope(StrEnum):
    """The permitted uses of a token, within the rights of its person."""

    READ = "read"  # pools, queues, quotas, prices, rounds and usage
    JOBS_READ = "jobs:read"  # jobs, reasons to wait, logs
    JOBS_WRITE = "jobs:write"  # submit, dry run and cancel; revoke other tokens
    CREDIT_WRITE = "credit:write"  # request transfers of credits; not in the default
    MEMBERS_WRITE = "members:write"  # invite and remove members, set roles; not in the default
    OPERATE = "operate"  # change pools, quotas, nodes, tenants and credit; not in the default


# The default scopes of a token.
SCOPES_USUAL = (Scope.READ, Scope.JOBS_READ, Scope.JOBS_WRITE)


def scope_is_open(user: User, scope: Scope) -> bool:
    """Return whether a person may request a scope.

    The actions in it are checked again at each request.
    """
    keepers = (User.SiteRole.OPERATOR, User.SiteRole.FINANCE)
    return scope is not Scope.OPERATE or user.site_role in keepers


class TooManyTokensError(Exception):
    """The person has `PER_PERSON` tokens; one must be revoked first."""


def create_token(
    *, user: User, name: str, scopes: Iterable[Scope], days: int, now: datetime
) -> tuple[ApiToken, str]:
    """Make a token; return it with its secret, which is not stored and never shown again.

    Raises:
        TooManyTokensError: the person has too many, after expired ones are deleted.
    """
    with site_scope():
        ApiToken.objects.filter(user=user, expires_at__lte=now).delete()
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        if ApiToken.objects.filter(user=user).count() >= PER_PERSON:
            raise TooManyTokensError(f"You have {PER_PERSON} tokens; revoke one first.")
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        token = ApiToken.objects.create(
            user=user,
            name=name,
            digest=digest_of(secret),
            scopes=sorted({scope.value for scope in scopes}),
            expires_at=now + timedelta(days=min(days, DAYS_MAX)),
        )
    return token, secret


_FIND = """
SELECT t.id, t.uid, t.user_id, t.name, t.scopes,
       t.used_at IS NULL OR t.used_at < statement_timestamp() - make_interval(secs => %s),
       u.username, u.first_name, u.last_name, u.is_active, u.site_role,
       coalesce((
           SELECT jsonb_agg(jsonb_build_array(m.tenant_id, n.slug, n.name, m.role) ORDER BY n.slug)
           FROM tenants_membership m JOIN tenants_tenant n ON n.id = m.tenant_id
           WHERE m.user_id = u.id
       ), '[]')::text
FROM tenants_apitoken t JOIN tenants_user u ON u.id = t.user_id
WHERE t.digest = %s AND u.is_active AND t.expires_at > statement_timestamp()
"""


@dataclass(frozen=True, slots=True)
class TokenBearer:
    """A valid token, its person, and their present access.

    Other columns of the person are loaded when they are read.
    """

    token: ApiToken
    user: User
    access: Access


def find_token(secret: str) -> TokenBearer | None:
    """Return the bearer of a secret, or None if it is no valid token, with one query."""
    if not secret.startswith(PREFIX) or not secret.isascii() or len(secret) > 100:
        return None
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(_FIND, [USED_EVERY_S, digest_of(secret)])
        row = cursor.fetchone()
        if row is None:
            return None
        token_id, uid, user_id, name, scopes, use_is_old, *person, memberships = row
        if use_is_old:
            ApiToken.objects.filter(pk=token_id).update(used_at=Now())
    user = User.from_db("default", _USER, [user_id, *person])
    token = ApiToken.from_db("default", _TOKEN, [token_id, uid, user_id, name, scopes])
    full_name = user.get_full_name() or user.get_username()
    memberships = tuple(MembershipFacts(*membership) for membership in json.loads(memberships))
    return TokenBearer(token, user, Access(user.pk, full_name, user.site_role, memberships))


# The columns are in the order of the models' fields, as `from_db` requires.
_TOKEN = ["id", "uid", "user_id", "name", "scopes"]
_USER = ["id", "username", "first_name", "last_name", "is_active", "site_role"]


def drop_token(*, user: User, uid: UUID) -> bool:
    """Delete one of a person's tokens; return whether it existed."""
    with site_scope():
        count, _ = ApiToken.objects.filter(user=user, uid=uid).delete()
    return bool(count)


def token_exists(uid: UUID) -> bool:
    with site_scope():
        return ApiToken.objects.filter(uid=uid).exists()


def digest_of(secret: str) -> str:
    """Return the stored form of a secret: its SHA-256 as hex. 256 random bits need no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()
