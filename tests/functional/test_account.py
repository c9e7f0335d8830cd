"""Test a user's own password, and deactivation by an operator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.test import Client
from django.utils import timezone

from tenants.audit import Actor
from tenants.models import ApiToken, AuditRecord, Membership, User
from tenants.services.accounts import deactivate_person, reactivate_person
from tenants.tokens import Scope, create_token
from tests.functional.visitors import Town, town

OLD, NEW = "correct horse battery", " another long enough one "
FORM = {"old_password": OLD, "new_password": NEW, "new_password_again": NEW}


@pytest.fixture
def there(db: None) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    made = town()
    ada = User.objects.get(username="ada")
    ada.set_password(OLD)
    ada.save()
    made.owner.force_login(ada)
    return made


def signed_in(password: str, name: str = "ada") -> Client:
    """Return a client that signed in by the form."""
    client = Client()
    answer = client.post("/login/", {"username": name, "password": password})
    assert answer.status_code == 302
    return client


def secret_of(name: str) -> str:
    user = User.objects.get(username=name)
    return create_token(user=user, name="t", scopes=Scope, days=1, now=timezone.now())[1]


def is_open(client: Client, path: str = "/account/") -> bool:
    """Return whether a session is still valid."""
    return client.get(path).status_code == 200


def api(secret: str) -> int:
    return Client().get("/api/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code


def refusal(answer: Any) -> str:
    assert answer.status_code == 422
    return " ".join(answer.content.decode().split())


class TestPasswordChange:
    def test_ends_other_sessions_and_keeps_tokens(self, there: Town) -> None:
        here, elsewhere, secret = there.owner, signed_in(OLD), secret_of("ada")
        answer = here.post("/account/", FORM)
        assert (answer.status_code, answer["Location"]) == (302, "/account/")
        assert is_open(here)
        assert not is_open(elsewhere)
        assert api(secret) == 200
        assert is_open(signed_in(NEW))
        assert not Client().login(username="ada", password=OLD)
        assert not Client().login(username="ada", password=NEW.strip())

    def test_revokes_own_tokens_on_request(self, there: Town) -> None:
        secret, other = secret_of("ada"), secret_of("bea")
        assert "Revoke my 1 API token too" in there.owner.get("/account/").content.decode()
        there.owner.post("/account/", {**FORM, "drop_tokens": "yes"})
        assert (api(secret), api(other)) == (401, 200)

    def test_is_audited_without_the_password(self, there: Town) -> None:
        there.owner.post("/account/", FORM)
        record = AuditRecord.objects.get()
        assert (record.actor.username, record.action) == ("ada", "person.password_changed")
        assert (record.subject, bool(record.request_id)) == ("person ada", True)
        shown = there.operator.get("/operate/audit/").content.decode()
        assert "changed the password" in shown
        assert NEW.strip() not in shown

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            ({"old_password": ""}, "Enter your current password."),
            ({"old_password": "not this"}, "This is not your current password."),
            ({"old_password": "x" * 2000}, "Enter your current password."),
            ({"new_password_again": "else"}, "The two passwords differ"),
            ({"new_password": "short", "new_password_again": "short"}, "at least 12 characters"),
            ({"new_password": "password1234", "new_password_again": "password1234"}, "too common"),
            ({"new_password": OLD, "new_password_again": OLD}, "choose another"),
            ({"new_password": "x" * 2000, "new_password_again": "x" * 2000}, "at most 1,024"),
            ({"new_password": "", "new_password_again": ""}, "at least 12 characters"),
        ],
    )
    def test_invalid_form_changes_nothing(
        self, there: Town, typed: dict[str, str], words: str
    ) -> None:
        elsewhere = signed_in(OLD)
        shown = refusal(there.owner.post("/account/", {**FORM, **typed}))
        assert words in shown
        assert not any(value in shown for value in (NEW.strip(), OLD, "x" * 200))
        assert is_open(elsewhere)
        assert User.objects.get(username="ada").check_password(OLD)
        assert not AuditRecord.objects.exists()

    def test_locks_after_ten_wrong_old_passwords(self, there: Town) -> None:
        for _ in range(10):
            refusal(there.owner.post("/account/", {**FORM, "old_password": "a guess"}))
        shown = refusal(there.owner.post("/account/", FORM))
        assert "Too many wrong passwords: try again in 15 minutes." in shown
        assert User.objects.get(username="ada").check_password(OLD)

    def test_cannot_target_another_user(self, there: Town) -> None:
        there.mate.post("/account/", {**FORM, "username": "ada", "user": "ada"})
        assert User.objects.get(username="ada").check_password(OLD)

    def test_is_linked_from_dashboard(self, there: Town) -> None:
        assert there.owner.get("/t/north/").content.decode().count('href="/account/"') == 1


def switch(client: Client, name: str, do: str = "deactivate") -> Any:
    return client.post("/operate/people/", {"do": do, "username": name})


class TestDeactivation:
    def test_ends_sessions_tokens_and_logins(self, there: Town) -> None:
        session, secret = signed_in(OLD), secret_of("ada")
        assert switch(there.operator, "ada")["Location"] == "/operate/people/"
        assert not is_open(session)
        assert not is_open(session, "/t/north/")
        assert session.get("/api/v1/jobs").status_code == 401
        assert api(secret) == 401
        wrong = Client().post("/login/", {"username": "ada", "password": OLD})
        assert "Wrong name or password" in wrong.content.decode()
        asked = {"username": "ada", "password": OLD}
        answer = Client().post("/api/v1/tokens", asked, content_type="application/json")
        assert answer.status_code == 401
        assert is_open(there.mate)

    def test_reactivation_restores_only_password_and_membership(self, there: Town) -> None:
        session, secret = signed_in(OLD), secret_of("ada")
        switch(there.operator, "ada")
        assert "(deactivated)" in there.operator.get("/operate/people/").content.decode()
        switch(there.operator, "ada", "reactivate")
        assert not is_open(session)
        assert api(secret) == 401
        again = signed_in(OLD)
        assert is_open(again, "/t/north/")
        assert Membership.objects.filter(user__username="ada").count() == 1

    def test_blocks_sessions_and_tokens_created_concurrently(self, there: Town) -> None:
        """A log-in and a token request run while the account is deactivated."""
        session = signed_in(OLD)
        beside = Session.objects.get(pk=session.cookies[settings.SESSION_COOKIE_NAME].value)
        switch(there.operator, "ada")
        secret = secret_of("ada")
        beside.save(force_insert=True)
        assert not is_open(session)
        assert api(secret) == 401
        switch(there.operator, "ada", "reactivate")
        assert not is_open(session)
        assert api(secret) == 401

    def test_audit_records_ended_sessions_and_tokens(self, there: Town) -> None:
        secret_of("ada")
        before = Session.objects.count()
        switch(there.operator, "ada")
        ended = before - Session.objects.count()
        switch(there.operator, "ada")
        switch(there.operator, "ada", "reactivate")
        off, on = AuditRecord.objects.order_by("id")
        assert (off.action, on.action) == ("person.deactivated", "person.reactivated")
        assert off.actor.username == "eve"
        assert off.after == {"is_active": False, "sessions_ended": ended, "tokens_dropped": 1}
        assert on.before == {"is_active": False}
        assert on.after == {"is_active": True, "sessions_ended": 0, "tokens_dropped": 0}
        assert ended > 0
        assert not ApiToken.objects.exists()

    @pytest.mark.parametrize(
        ("name", "do", "words"),
        [
            ("eve", "deactivate", "You cannot deactivate your own account"),
            ("nobody", "deactivate", "There is no person with this login name."),
            ("", "deactivate", "There is no person with this login name."),
            ("nobody", "reactivate", "There is no person with this login name."),
            ("ada", "delete", "Unknown action."),
        ],
    )
    def test_rejects_invalid_targets(self, there: Town, name: str, do: str, words: str) -> None:
        assert words in refusal(switch(there.operator, name, do))
        assert not User.objects.filter(is_active=False).exists()
        assert is_open(there.operator, "/operate/people/")

    def test_button_is_hidden_for_self_and_from_auditors(self, there: Town) -> None:
        User.objects.filter(username="bea").update(site_role="auditor")
        shown = there.operator.get("/operate/people/").content.decode()
        assert 'Deactivate<span class="sr"> ada</span>' in " ".join(shown.split())
        assert '<span class="sr"> eve</span>' not in shown
        assert "Deactivate" not in there.mate.get("/operate/people/").content.decode()
        assert switch(there.mate, "ada").status_code == 403


def test_mutual_deactivation_leaves_one_operator_active(committed_db: str) -> None:
    """Both act at the same time.

    The first locks both rows, after which the second is no longer an operator.
    """
    assert committed_db
    names = ("otto", "olga")
    for name in names:
        User.objects.create(username=name, site_role=User.SiteRole.OPERATOR)
    barrier = Barrier(2)

    def attempt(name: str, other: str) -> str:
        actor = Actor(User.objects.get(username=name))
        barrier.wait()
        try:
            deactivate_person(actor=actor, username=other)
        except PermissionDenied:
            return "refused"
        finally:
            connections.close_all()
        return "done"

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(attempt, names, reversed(names)))
    assert sorted(outcomes) == ["done", "refused"]
    assert User.objects.filter(is_active=True).count() == 1


@pytest.mark.usefixtures("there")
def test_deactivated_operator_cannot_reactivate_others() -> None:
    eve = User.objects.get(username="eve")
    User.objects.filter(username__in=("eve", "ada")).update(is_active=False)
    with pytest.raises(PermissionDenied):
        reactivate_person(actor=Actor(eve), username="ada")
