"""Tokens below the API: storage, lookup, use and deletion."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.models import ApiToken, Membership, User
from tenants.selectors.access import access_of
from tenants.services.tenants import create_tenant
from tenants.tokens import (
    DAYS_MAX,
    PER_PERSON,
    SCOPES_USUAL,
    USED_EVERY_S,
    Scope,
    TooManyTokensError,
    create_token,
    drop_token,
    find_token,
    scope_is_open,
    token_exists,
)

pytestmark = pytest.mark.django_db
NOW = timezone.now()
NAMES = {"first_name": "Ada", "last_name": "Lovelace", "site_role": "auditor"}


def make(user: User, *scopes: Scope, days: int = 1, **more: Any) -> tuple[ApiToken, str]:
    return create_token(user=user, name="laptop", scopes=scopes, days=days, **{"now": NOW} | more)


@pytest.fixture
def ada() -> User:
    user = User.objects.create(username="ada", **NAMES)
    for slug, role in (("north", "member"), ("east", "viewer")):
        tenant = create_tenant(slug=slug, name=slug.title(), initials="X", swatch=0, book="main")
        Membership.objects.create(user=user, tenant=tenant, role=role)
    return user


class TestNewToken:
    def test_is_stored_without_secret(self, ada: User) -> None:
        token, secret = make(ada, Scope.READ, Scope.JOBS_READ, Scope.READ, days=30)
        kept = ApiToken.objects.values().get(pk=token.pk)
        assert secret.startswith("es_")
        assert len(secret) == len("es_") + 43
        assert kept["digest"] == sha256(secret.encode()).hexdigest()
        assert secret[3:] not in str(kept)
        assert (kept["name"], kept["scopes"]) == ("laptop", ["jobs:read", "read"])
        assert (kept["user_id"], kept["expires_at"]) == (ada.pk, NOW + timedelta(days=30))
        assert make(ada)[1] != secret

    def test_lifetime_is_capped(self, ada: User) -> None:
        token, _ = make(ada, days=DAYS_MAX + 1)
        assert token.expires_at == NOW + timedelta(days=90)

    def test_is_limited_to_fifty_active_tokens_per_user(self, ada: User) -> None:
        bob = User.objects.create(username="bob")
        gone, _ = make(ada, now=NOW - timedelta(days=1))  # this token expires now
        others, _ = make(bob, now=NOW - timedelta(days=9))
        for _ in range(PER_PERSON):
            make(ada)
        with pytest.raises(TooManyTokensError):
            make(ada)
        assert not token_exists(gone.uid)
        assert token_exists(others.uid)
        assert ApiToken.objects.filter(user=ada).count() == 50
        make(bob)


class TestBearer:
    def test_resolves_to_user_with_current_access(self, ada: User) -> None:
        token, secret = make(ada, Scope.READ)
        found = find_token(secret)
        assert found
        assert (found.token, found.token.uid) == (token, token.uid)
        assert (found.token.name, found.token.scopes) == ("laptop", ["read"])
        assert found.token.user_id == ada.pk
        assert found.user == ada
        assert found.user.is_active
        # Deferred fields are loaded on access.
        assert (found.user.date_joined, found.token.digest) == (ada.date_joined, token.digest)
        assert {name: getattr(found.user, name) for name in NAMES} == NAMES
        assert found.access == access_of(ada)
        assert [row.slug for row in found.access.memberships] == ["east", "north"]
        assert found.access.name == "Ada Lovelace"

    def test_without_full_name_uses_username(self) -> None:
        bob = User.objects.create(username="bob")
        found = find_token(make(bob)[1])
        assert found
        assert (found.access.name, found.access.memberships) == ("bob", ())

    def test_rejects_invalid_secrets(self, ada: User) -> None:
        _, secret = make(ada)
        texts = ["", "es_", secret[:-1], secret[3:], secret + "x", secret + "é", "es_" + "x" * 98]
        assert [text for text in texts if find_token(text)] == []
        # A long text is not even looked up, whatever is stored.
        ApiToken.objects.update(digest=sha256(("es_" + "x" * 97).encode()).hexdigest())
        assert find_token("es_" + "x" * 97)
        ApiToken.objects.update(digest=sha256(("es_" + "x" * 98).encode()).hexdigest())
        assert not find_token("es_" + "x" * 98)
        ApiToken.objects.update(digest=sha256(b"ex_1").hexdigest())
        assert not find_token("ex_1")
        ApiToken.objects.update(digest=sha256("es_é".encode()).hexdigest())
        assert not find_token("es_é")

    def test_rejects_expired_tokens_and_inactive_users(self, ada: User) -> None:
        _, secret = make(ada)
        User.objects.update(is_active=False)
        assert not find_token(secret)
        User.objects.update(is_active=True)
        assert find_token(secret)
        ApiToken.objects.update(expires_at=NOW)
        assert not find_token(secret)

    def test_updates_last_use_occasionally_in_one_query(self, ada: User) -> None:
        token, secret = make(ada)
        other, _ = make(ada)

        def used() -> Any:
            find_token(secret)
            token.refresh_from_db()
            other.refresh_from_db()
            assert other.used_at is None
            return token.used_at

        first = used()
        assert first
        recent = timezone.now() - timedelta(seconds=USED_EVERY_S - 60)
        ApiToken.objects.filter(pk=token.pk).update(used_at=recent)
        assert used() == recent
        ApiToken.objects.filter(pk=token.pk).update(used_at=recent - timedelta(seconds=120))
        assert used() >= first
        with CaptureQueriesContext(connection) as asked:
            find_token(secret)
        assert len([row for row in asked if "FROM tenants_" in row["sql"]]) == 1


class TestRevocation:
    def test_deletes_only_own_token(self, ada: User) -> None:
        bob = User.objects.create(username="bob")
        token, other = make(ada)[0], make(ada)[0]
        assert not drop_token(user=bob, uid=token.uid)
        assert not drop_token(user=ada, uid=uuid4())
        assert token_exists(token.uid)
        assert drop_token(user=ada, uid=token.uid)
        assert not drop_token(user=ada, uid=token.uid)
        assert not token_exists(token.uid)
        assert token_exists(other.uid)


def test_scopes_match_stored_names() -> None:
    assert [scope.value for scope in Scope] == [
        *("read", "jobs:read", "jobs:write", "credit:write", "members:write", "operate")
    ]
    on_request = {Scope.OPERATE, Scope.CREDIT_WRITE, Scope.MEMBERS_WRITE}
    assert {*SCOPES_USUAL} == {*Scope} - on_request


@pytest.mark.parametrize("site_role", User.SiteRole.values)
@pytest.mark.parametrize("scope", Scope)
def test_operate_scope_is_open_to_operators_and_finance(scope: Scope, site_role: str) -> None:
    expected = scope is not Scope.OPERATE or site_role in ("operator", "finance")
    assert scope_is_open(User(site_role=site_role), scope) is expected
