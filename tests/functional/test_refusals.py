"""Test that refused actions are recorded in the audit log, and cannot flood it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from tenants.audit import Actor
from tenants.models import ApiToken, AuditRecord, User
from tenants.operator_transaction import operation
from tenants.refusals import MOST, record_refusal
from tenants.tokens import Scope, create_token
from tests.functional import page_text
from tests.functional.access_table import KEPT, TABLE, Route
from tests.functional.addresses import UNSAFE, bearer, fill, is_api, send, template_of
from tests.functional.visitors import Town, town, visitor

OF_THE_SITE = ("operate/", "api/v1/operate/")
PASSWORD = "correct horse battery"
# Roles that may not see the console, and roles that may only read it.
ROLES = {"ada": "none", "cem": "none", "fin": "finance", "aud": "auditor"}


@pytest.fixture
def there(db: None) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    made = town()
    for name, role in (("fin", User.SiteRole.FINANCE), ("aud", User.SiteRole.AUDITOR)):
        visitor(name, site_role=role)
    return made


def changes() -> Iterator[tuple[str, str, Route]]:
    """Yield every change of the URL table that only an operator may make."""
    for address, route in TABLE.items():
        if address.startswith(OF_THE_SITE):
            yield from ((method, address, route) for method in UNSAFE if method in route.methods)


def words(there: Town) -> dict[str, str]:
    """Return values for placeholders of URLs; requests are refused before objects are looked up."""
    names = dict.fromkeys(("simulation", "window", "round"), "1")
    names |= dict.fromkeys(("node", "gpu_type", "profile", "username"), "any")
    uid = str(there.submit().uid)
    names |= dict.fromkeys(("job", "token", "quota_request"), uid)
    return {**names, "slug": "north", "pool": there.cluster.pool.name}


def client_of(name: str, secret: str, address: str) -> Client:
    if is_api(address):
        return bearer(secret)
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def secret_of(name: str, *scopes: Scope) -> str:
    user = User.objects.get(username=name)
    return create_token(user=user, name="t", scopes=scopes, days=1, now=timezone.now())[1]


def records() -> list[AuditRecord]:
    return list(AuditRecord.objects.filter(action="access.refused").order_by("id"))


class TestRejectedChanges:
    def test_are_recorded_for_every_role_and_url(self, there: Town) -> None:
        known, wrong, tried = words(there), [], 0
        for name, role in ROLES.items():
            secret = secret_of(name, *Scope)
            for method, address, route in changes():
                if role == "finance" and address in KEPT:
                    continue  # finance users may make this change
                tried += 1
                client = client_of(name, secret, address)
                with transaction.atomic():
                    answer = send(client, method, address, route, known)
                    records = [
                        (r.actor.username, r.subject, r.reason) for r in AuditRecord.objects.all()
                    ]
                    transaction.set_rollback(True)
                subject = f"{method} {fill(template_of(address, route), known)}".partition("?")[0]
                expected = [(name, subject, f"Site role: {role}.")]
                if answer.status_code not in (403, 404) or records != expected:
                    wrong.append(f"{answer.status_code} {records}, not {expected}")
        assert not wrong, "\n".join(wrong)
        assert tried > 80

    def test_are_recorded_for_token_without_scope(self, there: Town) -> None:
        secret, known = secret_of("eve", Scope.READ), words(there)
        for method, address, route in changes():
            if is_api(address):
                with transaction.atomic():
                    answer = send(bearer(secret), method, address, route, known)
                    (record,) = records()
                    transaction.set_rollback(True)
                assert answer.status_code == 403
                assert record.reason == "The token lacks the scope operate."

    def test_reads_are_not_recorded(self, there: Town) -> None:
        for path in ("/operate/", "/operate/people/", "/operate/audit/"):
            assert there.owner.get(path).status_code == 404
        assert there.nobody.post("/operate/people/", {}).status_code == 302
        assert not records()


class TestRecord:
    def test_contains_user_and_request_without_secrets(self, there: Town) -> None:
        typed = {"username": "ada", "site_role": "operator", "password": PASSWORD, "x": "y"}
        there.owner.post("/operate/people/", typed)
        (record,) = records()
        assert record.after == {"username": "ada", "site_role": "operator"}
        assert record.request_id
        shown = there.operator.get("/operate/audit/?action=access.").content.decode()
        assert "was refused: POST /operate/people/" in page_text.words(shown)
        assert PASSWORD not in shown

    def test_contains_requested_tenant_role(self, there: Town) -> None:
        asked = {"do": "role", "username": "ada", "role": "manager"}
        assert there.owner.post("/operate/tenants/north/", asked).status_code == 404
        assert records()[0].after == asked

    def test_is_written_if_role_is_removed_meanwhile(
        self, there: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The role still allows the page, but the change's transaction no longer does."""

        def late(actor: Actor) -> Any:
            User.objects.filter(username="eve").update(site_role="")
            return operation(actor)

        monkeypatch.setattr("tenants.services.accounts.operation", late)
        answer = there.operator.post("/operate/people/", {"do": "deactivate", "username": "ada"})
        assert answer.status_code == 403
        assert records()[0].reason == "The site role was removed meanwhile."


class TestTokens:
    @pytest.fixture(autouse=True)
    def password(self, there: Town) -> None:
        ada = User.objects.get(username="ada")
        ada.set_password(PASSWORD)
        ada.save()
        there.owner.force_login(ada)

    def make(self, *scopes: str) -> int:
        asked = {"username": "ada", "password": PASSWORD, "scopes": list(scopes)}
        return Client().post("/api/v1/tokens", asked, content_type="application/json").status_code

    def test_scope_above_role_is_rejected_and_recorded(self) -> None:
        assert self.make("read", "operate") == 403
        (record,) = records()
        assert (record.actor.username, record.subject) == ("ada", "POST /api/v1/tokens")
        assert record.reason == "The scope operate is for operators."
        assert record.after == {"scopes": "read, operate"}

    def test_revoking_token_of_another_user_is_recorded(self, there: Town) -> None:
        secret_of("bea", Scope.READ)
        uid = ApiToken.objects.get(user__username="bea").uid
        assert there.owner.delete(f"/api/v1/tokens/{uid}").status_code == 404
        (record,) = records()
        assert record.reason == "The token belongs to another person."
        missing = "00000000-0000-4000-8000-000000000000"
        assert there.owner.delete(f"/api/v1/tokens/{missing}").status_code == 404
        assert len(records()) == 1

    def test_revoking_another_token_without_permission_is_recorded(self) -> None:
        secret = secret_of("ada", Scope.READ)
        secret_of("ada", *Scope)
        other = ApiToken.objects.filter(user__username="ada").order_by("-id")[0].uid
        assert bearer(secret).delete(f"/api/v1/tokens/{other}").status_code == 403
        assert records()[0].reason == "The token may only revoke itself."


class TestFlood:
    def test_same_url_creates_one_record(self, there: Town) -> None:
        for role in ("operator", "auditor") * 20:
            there.owner.post("/operate/people/", {"site_role": role})
        (record,) = records()
        assert record.after == {"site_role": "operator"}

    def test_many_urls_are_capped_with_a_note(self, there: Town) -> None:
        for number in range(MOST + 10):
            there.owner.post(f"/operate/tenants/no-{number}/", {"do": "add"})
        found = records()
        assert len(found) == MOST
        assert "only in the process's log" in found[-1].reason
        assert "only in the process's log" not in found[-2].reason

    def test_cap_applies_per_user(self, there: Town) -> None:
        for number in range(MOST + 1):
            there.owner.post(f"/operate/tenants/no-{number}/")
        there.mate.post("/operate/people/", {"site_role": "operator"})
        assert records()[-1].actor.username == "bea"

    @pytest.mark.usefixtures("there")
    def test_known_refusal_takes_no_lock(self, django_assert_num_queries: Any) -> None:
        actor = Actor(User.objects.get(username="ada"))
        assert record_refusal(actor, "POST /x", "why")
        # Queries: two for a savepoint, two for an inner scope, and one read.
        with django_assert_num_queries(5):
            assert not record_refusal(actor, "POST /x", "why")
