"""Test a user's own tokens: made with the password, shown once, revoked, and audited.

The page and REST do, refuse and record the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client
from django.utils import timezone

from tenants.models import ApiToken, AuditRecord, User
from tenants.tokens import PER_PERSON, Scope, create_token
from tests.functional.visitors import Town, town

PASSWORD = "correct horse battery"
PAGE = "/account/tokens/"
FORM = {"name": "workstation", "days": "7", "scopes": ["read"], "old_password": PASSWORD}


@cache
def hashed() -> str:
    """Return the stored password, hashed once because hashing is slow on purpose."""
    return make_password(PASSWORD)


@pytest.fixture
def there(db: None) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    made = town()
    for name, client in (("ada", made.owner), ("eve", made.operator)):
        user = User.objects.get(username=name)
        user.password = hashed()
        user.save()
        client.force_login(user)
    return made


def secret_in(answer: Any) -> str:
    assert answer.status_code == 200, answer.content.decode()
    found = re.search(r"es_[\w-]{40,}", answer.content.decode())
    assert found is not None
    return found[0]


def api(secret: str, path: str = "pools") -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().get(f"/api/v1/{path}", headers=headers).status_code


class TestTokenPage:
    def test_new_secret_is_shown_once_and_limited_to_scopes(self, there: Town) -> None:
        answer = there.owner.post(PAGE, FORM)
        secret = secret_in(answer)
        assert 'class="cmd val"' in answer.content.decode()  # no "$", because it is no command
        assert "no-store" in answer["Cache-Control"]
        assert (api(secret), api(secret, "jobs")) == (200, 403)
        assert secret not in there.owner.get(PAGE).content.decode()
        record = AuditRecord.objects.get(action="token.created")
        assert record.after == {"name": "workstation", "scopes": ["read"], "days": 7}
        assert secret not in str(record.__dict__)
        assert "created an API token" in there.operator.get("/operate/audit/").content.decode()

    def test_revoked_token_stops_working(self, there: Town) -> None:
        secret = secret_in(there.owner.post(PAGE, FORM))
        token = ApiToken.objects.get()
        page = there.owner.get(PAGE).content.decode()
        assert f'action="{PAGE}{token.uid}/revoke/"' in page
        assert f'popovertarget="revoke-{token.uid}"' in page
        assert there.owner.post(f"{PAGE}{token.uid}/revoke/").status_code == 302
        assert api(secret) == 401
        assert AuditRecord.objects.filter(action="token.revoked").count() == 1
        assert "workstation" not in there.owner.get(PAGE).content.decode()

    def test_revocation_is_idempotent_and_limited_to_owner(self, there: Town) -> None:
        path = f"{PAGE}{some_token('ada').uid}/revoke/"
        invented = f"{PAGE}{uuid4()}/revoke/"
        assert "Token revoked" in there.owner.post(path, follow=True).content.decode()
        answer = there.owner.post(path, follow=True)
        assert answer.redirect_chain == [(PAGE, 302)]
        assert "This token was already revoked." in answer.content.decode()
        assert "Token revoked" not in answer.content.decode()
        for client in (there.mate, there.operator):
            assert client.post(path).status_code == client.post(invented).status_code == 404
        assert there.owner.post(invented).status_code == 404
        assert recorded() == [("token.revoked", "ada", {})]

    def test_token_of_another_user_looks_missing(self, there: Town) -> None:
        secret = secret_in(there.owner.post(PAGE, FORM))
        token = ApiToken.objects.get()
        assert there.mate.post(f"{PAGE}{token.uid}/revoke/").status_code == 404
        assert "workstation" not in there.mate.get(PAGE).content.decode()
        assert api(secret) == 200

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"old_password": "wrong password"}, "This is not your current password."),
            ({"old_password": ""}, "Enter your current password."),
            ({"name": ""}, "Give it a name"),
            ({"days": "91"}, "a whole number from 1 to 90"),
            ({"days": "-1"}, "a whole number from 1 to 90"),
            ({"scopes": []}, "Choose at least one"),
            ({"scopes": ["everything"]}, "Choose at least one"),
            ({"scopes": ["operate"]}, "for operators"),
        ],
    )
    def test_invalid_form_shows_error_and_creates_no_token(
        self, there: Town, change: dict[str, Any], complaint: str
    ) -> None:
        answer = there.owner.post(PAGE, FORM | change)
        assert answer.status_code == 422
        assert complaint in answer.content.decode()
        assert not ApiToken.objects.exists()

    def test_rejected_form_keeps_input(self, there: Town) -> None:
        name, days = "x" * 64, "9000"
        page = there.owner.post(PAGE, FORM | {"name": name, "days": days}).content.decode()
        for typed in (name, days):
            assert f'value="{typed}"' in page

    def test_operate_scope_is_offered_only_to_operators(self, there: Town) -> None:
        assert 'value="operate"' not in there.owner.get(PAGE).content.decode()
        assert 'value="operate"' in there.operator.get(PAGE).content.decode()
        secret = secret_in(there.operator.post(PAGE, FORM | {"scopes": ["operate", "read"]}))
        assert api(secret, "operate/tenants") == 200

    def test_requires_csrf_token(self, there: Town) -> None:
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="ada"))
        assert strict.post(PAGE, FORM).status_code == 403
        assert there.owner.get(PAGE).status_code == 200
        assert not ApiToken.objects.exists()


def by_page(there: Town, who: str, **change: Any) -> int:
    client = there.operator if who == "eve" else there.owner
    return client.post(PAGE, FORM | change).status_code


def by_rest(there: Town, who: str, **change: Any) -> int:  # noqa: ARG001 - as the page's
    body = FORM | {"days": 7} | change
    body |= {"username": who, "password": body.pop("old_password")}
    return Client().post("/api/v1/tokens", body, content_type="application/json").status_code


def revoke_by_page(client: Client, uid: object) -> int:
    return client.post(f"{PAGE}{uid}/revoke/").status_code


def revoke_by_rest(client: Client, uid: object) -> int:
    return client.delete(f"/api/v1/tokens/{uid}").status_code


def recorded() -> list[tuple[str, str, dict[str, Any]]]:
    rows = AuditRecord.objects.order_by("id")
    return [(row.action, row.actor.username, row.after) for row in rows]


def some_token(name: str) -> ApiToken:
    user = User.objects.get(username=name)
    scopes, now = (Scope.READ,), timezone.now()
    return create_token(user=user, name="t", scopes=scopes, days=1, now=now)[0]


READ = {"name": "workstation", "scopes": ["read"], "days": 7}
OPERATE = {**READ, "scopes": ["operate", "read"]}
# For each case: the requester, changes to the form, page and REST statuses, and the audit record.
MADE: list[tuple[str, dict[str, Any], tuple[int, int], list[Any]]] = [
    ("ada", {}, (200, 201), [("token.created", "ada", READ)]),
    ("eve", {"scopes": ["operate", "read"]}, (200, 201), [("token.created", "eve", OPERATE)]),
    (
        "ada", {"scopes": ["read", "operate"]}, (422, 403),
        [("access.refused", "ada", {"scopes": "read, operate"})],
    ),
    ("ada", {"scopes": ["everything"]}, (422, 400), []),
    ("ada", {"scopes": []}, (422, 400), []),
    ("ada", {"days": 91}, (422, 400), []),
    ("ada", {"days": 0}, (422, 400), []),
    ("ada", {"name": ""}, (422, 400), []),
    ("ada", {"name": "x" * 64}, (422, 400), []),
    ("ada", {"name": "two\nlines"}, (422, 400), []),
    ("ada", {"old_password": "wrong password"}, (422, 401), []),
]  # fmt: skip


class TestPageAndRest:
    """Regression: the page did not record a refused scope, and REST did not record a new token."""

    @pytest.mark.parametrize(("who", "change", "answers", "records"), MADE)
    def test_create_tokens_with_same_result_and_audit_records(
        self,
        there: Town,
        who: str,
        change: dict[str, Any],
        answers: tuple[int, int],
        records: list[Any],
    ) -> None:
        page, rest = answers
        assert by_page(there, who, **change) == page
        assert recorded() == records
        # Refusals of one kind are recorded per URL.
        assert by_rest(there, who, **change) == rest
        assert recorded() == records * 2
        assert ApiToken.objects.count() == 2 * (page == 200)

    def test_enforce_token_limit_per_user(self, there: Town) -> None:
        for _ in range(PER_PERSON):
            some_token("ada")
        assert (by_page(there, "ada"), by_rest(there, "ada")) == (422, 409)
        assert ApiToken.objects.count() == PER_PERSON
        assert not recorded()

    @pytest.mark.parametrize(
        ("revoke", "done", "again"),
        [(revoke_by_page, 302, 302), (revoke_by_rest, 204, 404)],
        ids=["page", "rest"],
    )
    def test_revoke_tokens_with_same_result_and_audit_records(
        self, there: Town, revoke: Callable[[Client, object], int], done: int, again: int
    ) -> None:
        own, others = some_token("ada"), some_token("bea")
        assert revoke(there.owner, own.uid) == done
        assert revoke(there.owner, own.uid) == again
        assert recorded() == [("token.revoked", "ada", {})]
        assert revoke(there.owner, others.uid) == 404
        assert recorded()[1:] == [("access.refused", "ada", {})]
        assert [token.uid for token in ApiToken.objects.all()] == [others.uid]
