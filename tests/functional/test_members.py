"""Test a tenant's members: invited, joined, changed and removed by its managers only."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.test import Client
from django.utils import timezone

from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, Invitation, Membership, Tenant, User
from tenants.rate import Rate
from tenants.requests import NO_LOGIN, InvitationRequest, MembershipRequest
from tenants.services import invitations
from tenants.services.invitations import InvitationGoneError, accept_invitation, invite
from tenants.services.people import remove_member, set_member_role
from tenants.tokens import Scope, create_token, digest_of
from tests.functional.addresses import bearer
from tests.functional.visitors import Town, town, visitor

Role = Membership.Role
PAGE = "/t/north/members/"
API = "/api/v1/tenants/north"
FEW = Rate(per_s=1e-9, full=2)
PASSWORD = "correct horse 47 battery"


@pytest.fixture
def there(db: None) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    return town()


@pytest.fixture
def boss(there: Town) -> Client:
    return visitor("max", there.tenant, Role.MANAGER)


def link_of(boss: Client, role: str = "member", username: str = "") -> str:
    """Invite a person; return the path of the link."""
    body = {"do": "invite", "role": role, "username": username, "note": "a guest"}
    shown = boss.post(PAGE, body)
    assert shown.status_code == 200
    match = re.search(r"/join/\?invitation=ei_[\w-]+", shown.content.decode())
    assert match is not None
    assert 'class="cmd val"' in shown.content.decode()  # no prompt of a shell
    return match[0]


def accept(client: Client, link: str, **form: str) -> Any:
    return client.post("/join/", {"invitation": link.partition("=")[2], **form})


def newcomer(name: str, **more: str) -> dict[str, str]:
    passwords = {"new_password": PASSWORD, "new_password_again": PASSWORD}
    return {"username": name, **passwords, **more}


def role_of(name: str, slug: str = "north") -> str | None:
    rows = Membership.objects.filter(user__username=name, tenant__slug=slug)
    return rows.values_list("role", flat=True).first()


class TestInvitation:
    def test_link_creates_a_person_who_is_signed_in(self, there: Town, boss: Client) -> None:
        link = link_of(boss)
        assert "Create an account" in there.nobody.get(link).content.decode()
        assert accept(there.nobody, link, **newcomer("zoe")).headers["Location"] == "/t/north/"
        assert role_of("zoe") == "member"
        assert there.nobody.get("/t/north/jobs/new/").status_code == 200
        zoe = User.objects.get(username="zoe")
        assert (zoe.site_role, zoe.is_staff, zoe.is_superuser) == ("", False, False)

    def test_link_works_once(self, there: Town, boss: Client) -> None:
        link = link_of(boss)
        assert accept(there.neighbour, link).status_code == 302
        assert accept(there.outsider, link).status_code == 404
        assert accept(there.nobody, link, **newcomer("zoe")).status_code == 404
        assert there.nobody.get(link).status_code == 404
        assert role_of("dag") is None
        assert not User.objects.filter(username="zoe").exists()
        # after the removal it does not work again for the same person
        assert boss.post(PAGE, {"do": "remove", "username": "cem"}).status_code == 302
        assert accept(there.neighbour, link).status_code == 404

    def test_expires(self, there: Town, boss: Client) -> None:
        link = link_of(boss)
        made = Invitation.objects.get()
        assert made.expires_at - made.made_at == timedelta(hours=72)
        Invitation.objects.update(expires_at=timezone.now())
        assert accept(there.outsider, link).status_code == 404

    def test_secret_is_stored_only_as_hash_and_shown_once(self, boss: Client) -> None:
        secret = link_of(boss).partition("=")[2]
        made = Invitation.objects.get()
        assert made.digest == digest_of(secret)
        assert secret not in boss.get(PAGE).content.decode()
        assert secret not in str([*AuditRecord.objects.values()])

    def test_revoked_link_ends(self, there: Town, boss: Client) -> None:
        link = link_of(boss)
        body = {"do": "revoke", "id": str(Invitation.objects.get().uid)}
        assert there.owner.post(PAGE, body).status_code == 403
        assert boss.post(PAGE, body).status_code == 302
        assert accept(there.outsider, link).status_code == 404

    @pytest.mark.parametrize("loss", ["removed", "demoted", "deactivated"])
    def test_ends_with_the_rights_of_its_maker(self, there: Town, boss: Client, loss: str) -> None:
        """Otherwise a removed manager comes back by a link made before."""
        visitor("two", there.tenant, Role.MANAGER)
        link = link_of(boss, "manager")
        seats = Membership.objects.filter(user__username="max")
        if loss == "removed":
            seats.delete()
        elif loss == "demoted":
            seats.update(role=Role.MEMBER)
        else:
            User.objects.filter(username="max").update(is_active=False)
        assert accept(there.outsider, link).status_code == 404
        assert role_of("dag") is None

    def test_of_a_known_person_is_only_for_them(self, there: Town, boss: Client) -> None:
        link = link_of(boss, "viewer", "cem")
        assert role_of("cem") is None  # only they can accept
        assert "It is for the person" in there.outsider.get(link).content.decode()
        assert accept(there.outsider, link).status_code == 404
        assert accept(there.nobody, link, **newcomer("zoe")).status_code == 404
        uid = str(Invitation.objects.get().uid)
        assert there.outsider.post("/join/", {"id": uid}).status_code == 404
        assert uid in there.neighbour.get("/account/").content.decode()
        assert there.neighbour.post("/join/", {"id": uid}).status_code == 302
        assert role_of("cem") == "viewer"

    def test_id_of_an_open_link_is_no_key(self, there: Town, boss: Client) -> None:
        link_of(boss)
        body = {"id": str(Invitation.objects.get().uid)}
        assert there.outsider.post("/join/", body).status_code == 404

    def test_members_cannot_raise_their_role_by_a_link(self, there: Town, boss: Client) -> None:
        link = link_of(boss, "manager")
        assert accept(there.mate, link).status_code == 422
        assert role_of("bea") == "viewer"
        assert accept(there.outsider, link).status_code == 302  # it stays open

    @pytest.mark.parametrize(
        "form",
        [
            newcomer("ADA"),
            newcomer("a b"),
            newcomer("\u0430da"),  # a Cyrillic a
            newcomer("zoe", new_password="short", new_password_again="short"),
            newcomer("zoe", new_password_again="another long text"),
        ],
        ids=["taken", "no name", "look-alike", "short", "different"],
    )
    def test_invalid_account_changes_nothing(
        self, there: Town, boss: Client, form: dict[str, str]
    ) -> None:
        link, people = link_of(boss), User.objects.count()
        assert accept(there.nobody, link, **form).status_code == 422
        assert User.objects.count() == people
        assert accept(there.nobody, link, **newcomer("zoe")).status_code == 302

    def test_newcomer_cannot_give_themselves_a_site_role(self, there: Town, boss: Client) -> None:
        accept(there.nobody, link_of(boss), **newcomer("zoe", site_role="operator", role="manager"))
        assert User.objects.get(username="zoe").site_role == ""
        assert role_of("zoe") == "member"

    def test_is_limited_in_number(self, there: Town, boss: Client) -> None:
        actor = Actor(User.objects.get(username="max"))
        now = timezone.now()
        request = InvitationRequest(role="viewer")
        for _ in range(50):
            invite(actor=actor, tenant=there.tenant, request=request, now=now)
        with pytest.raises(InvalidInputError):
            invite(actor=actor, tenant=there.tenant, request=request, now=now)
        assert boss.get(PAGE).status_code == 200

    def test_names_of_people_are_limited_and_misses_audited(
        self, there: Town, boss: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(invitations, "NAMES_OF_MANAGER", FEW)
        body = {"do": "invite", "role": "viewer", "username": "no-such"}
        assert NO_LOGIN in boss.post(PAGE, body).content.decode()
        assert boss.post(PAGE, {**body, "username": "cem"}).status_code == 200
        for name in ("no-such", "dag"):
            answer = boss.post(PAGE, {**body, "username": name})
            assert answer.status_code == 422
            assert "Too many login names" in answer.content.decode()
        assert boss.post(PAGE, {**body, "username": ""}).status_code == 200
        misses = AuditRecord.objects.filter(action="member.unknown")
        assert [row.after["member"] for row in misses] == ["no-such"]
        assert there.operator.post(PAGE, {**body, "username": "dag"}).status_code == 200

    def test_names_of_newcomers_are_limited_and_cost_no_hash(
        self, there: Town, boss: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(invitations, "NAMES_OF_LINK", FEW)
        monkeypatch.setattr(invitations, "make_password", None)
        links = [link_of(boss), link_of(boss)]
        for complaint in ("is taken", "is taken", "Too many login names"):
            answer = accept(there.nobody, links[0], **newcomer("ADA"))
            assert (answer.status_code, complaint in answer.content.decode()) == (422, True)
        assert "Too many" in accept(there.nobody, links[0], **newcomer("zoe")).content.decode()
        assert "is taken" in accept(there.nobody, links[1], **newcomer("ADA")).content.decode()

    def test_is_audited(self, there: Town, boss: Client) -> None:
        accept(there.outsider, link_of(boss))
        rows = AuditRecord.objects.order_by("id").values_list("actor__username", "action")
        assert [*rows] == [("max", "member.invited"), ("dag", "member.joined")]

    def test_is_in_the_audit_log_in_words(self, there: Town, boss: Client) -> None:
        Tenant.objects.filter(slug="north").update(name="The North")
        job = there.submit()
        for action in ("hold", "release"):
            sent = {"action": action, "job": str(job.uid), "query": ""}
            assert boss.post("/t/north/jobs/act/", sent).status_code == 200
        link_of(boss)
        shown = there.operator.get("/operate/audit/").content.decode()
        for text in ("put on hold: ", "ended the hold: ", "The North", "anyone with the link"):
            assert text in shown, text
        assert "job.unheld" not in shown
        assert f">{job.uid}</code>" in shown


class TestRoles:
    @pytest.mark.parametrize(
        "body",
        [
            {"do": "invite", "role": "manager"},
            {"do": "role", "username": "ada", "role": "manager"},
            {"do": "remove", "username": "max"},
            {"do": "revoke", "id": "00000000-0000-0000-0000-000000000000"},
            {"do": "none"},
        ],
        ids=lambda body: body["do"],
    )
    @pytest.mark.usefixtures("boss")
    def test_only_managers_change(self, there: Town, body: dict[str, str]) -> None:
        expected = {"owner": 403, "mate": 403, "neighbour": 404, "outsider": 404, "nobody": 302}
        for name, status in expected.items():
            assert (name, getattr(there, name).post(PAGE, body).status_code) == (name, status)
        assert not Invitation.objects.exists()
        assert [role_of(name) for name in ("ada", "bea", "max")] == ["member", "viewer", "manager"]
        assert {*AuditRecord.objects.values_list("action", flat=True)} == {"access.refused"}

    def test_manager_of_another_tenant_has_no_reach(self, there: Town, boss: Client) -> None:
        link_of(boss)
        uid = str(Invitation.objects.get().uid)
        body = {"do": "revoke", "id": uid}
        assert there.neighbour.post("/t/south/members/", body).status_code == 302
        assert Invitation.objects.get().revoked_at is None
        body = {"do": "role", "username": "ada", "role": "viewer"}
        assert there.neighbour.post("/t/south/members/", body).status_code == 422
        assert role_of("ada") == "member"

    def test_last_active_manager_stays(self, there: Town, boss: Client) -> None:
        visitor("two", there.tenant, Role.MANAGER)
        User.objects.filter(username="two").update(is_active=False)
        for body in ({"do": "role", "role": "viewer"}, {"do": "remove"}):
            assert boss.post(PAGE, {**body, "username": "max"}).status_code == 422
        assert role_of("max") == "manager"

    def test_member_may_leave(self, there: Town) -> None:
        assert there.owner.post(PAGE, {"do": "remove", "username": "ada"}).status_code == 302
        assert role_of("ada") is None

    def test_rights_end_with_the_next_request(self, there: Town, boss: Client) -> None:
        ada = User.objects.get(username="ada")
        now = datetime.now(UTC)
        token = bearer(create_token(user=ada, name="t", scopes=Scope, days=1, now=now)[1])
        assert token.get(f"{API}/members").status_code == 200
        boss.post(PAGE, {"do": "remove", "username": "ada"})
        assert there.owner.get("/t/north/").status_code == 404
        assert token.get(f"{API}/members").status_code == 404

    def test_operator_changes_members_too(self, there: Town) -> None:
        body = {"do": "role", "username": "bea", "role": "manager"}
        assert there.operator.post(PAGE, body).status_code == 302
        assert role_of("bea") == "manager"

    def test_page_shows_forms_only_to_managers(self, there: Town, boss: Client) -> None:
        assert 'value="invite"' in boss.get(PAGE).content.decode()
        shown = there.owner.get(PAGE).content.decode()
        assert 'value="invite"' not in shown
        assert shown.count('value="remove"') == 1  # their own row: leave
        assert 'href="/t/north/members/"' in there.owner.get("/t/north/").content.decode()


class TestRest:
    def test_manages_members_by_token(self, there: Town, boss: Client) -> None:
        assert boss.get("/account/").status_code == 200
        client = token_of("max", Scope.READ, Scope.MEMBERS_WRITE)
        made = client.post(f"{API}/invitations", {"role": "viewer"}, "application/json")
        assert made.status_code == 201
        accept(there.outsider, made.json()["path"])
        changed = client.patch(f"{API}/members/dag", {"role": "member"}, "application/json")
        assert changed.json() == {
            "username": "dag", "name": "", "role": "member", "is_active": True,
        }  # fmt: skip # a row
        assert client.delete(f"{API}/members/dag").status_code == 204
        assert client.delete(f"{API}/members/dag").status_code == 400
        names = [row["username"] for row in client.get(f"{API}/members").json()["results"]]
        assert names == ["ada", "bea", "max"]

    def test_lists_and_revokes_invitations_without_secret(self, boss: Client) -> None:
        secret = link_of(boss).partition("=")[2]
        client = token_of("max", Scope.READ, Scope.MEMBERS_WRITE)
        answer = client.get(f"{API}/invitations")
        [row] = answer.json()["results"]
        assert (row["note"], row["made_by"]) == ("a guest", "max")
        assert secret not in answer.content.decode()
        assert client.delete(f"{API}/invitations/{row['id']}").status_code == 204
        assert client.delete(f"{API}/invitations/{row['id']}").status_code == 404

    def test_needs_its_own_scope(self, boss: Client) -> None:
        assert boss.get("/account/").status_code == 200
        client = token_of("max", *{*Scope} - {Scope.MEMBERS_WRITE})
        made = client.post(f"{API}/invitations", {"role": "viewer"}, "application/json")
        assert (made.status_code, made.json()["reason_code"]) == (403, "scope")

    @pytest.mark.usefixtures("there")
    def test_of_operators_needs_their_scope_too(self, boss: Client) -> None:
        link_of(boss)
        usual = token_of("eve", Scope.READ, Scope.MEMBERS_WRITE)
        [row] = usual.get(f"{API}/invitations").json()["results"]
        places: tuple[tuple[str, str, dict[str, str]], ...] = (
            ("post", f"{API}/invitations", {"role": "manager"}),
            ("patch", f"{API}/members/bea", {"role": "manager"}),
            ("delete", f"{API}/members/bea", {}),
            ("delete", f"{API}/invitations/{row['id']}", {}),
        )
        for method, url, body in places:
            answer = getattr(usual, method)(url, body, "application/json")
            assert (answer.status_code, answer.json()["reason_code"]) == (403, "scope")
        assert role_of("bea") == "viewer"
        full = token_of("eve", Scope.READ, Scope.MEMBERS_WRITE, Scope.OPERATE)
        body = {"role": "manager"}
        assert full.patch(f"{API}/members/bea", body, "application/json").status_code == 200


def token_of(name: str, *scopes: Scope) -> Client:
    user = User.objects.get(username=name)
    now = datetime.now(UTC)
    return bearer(create_token(user=user, name="t", scopes=scopes, days=1, now=now)[1])


class TestRaces:
    """Two requests at the same time."""

    @pytest.fixture
    def north(self, committed_db: str) -> Tenant:
        assert committed_db
        tenant = Tenant.objects.create(slug="north", name="North", initials="NO")
        for name in ("max", "two"):
            user = User.objects.create(username=name)
            Membership.objects.create(user=user, tenant=tenant, role=Role.MANAGER)
        return tenant

    def test_managers_who_demote_each_other(self, north: Tenant) -> None:
        def demote(name: str, other: str) -> None:
            request = MembershipRequest(username=other, role="viewer")
            set_member_role(actor=actor(name), tenant=north, request=request)

        assert at_once(demote, ("max", "two"), ("two", "max")) == ["PermissionDenied", "done"]
        assert Membership.objects.filter(role=Role.MANAGER).count() == 1

    def test_managers_who_both_leave(self, north: Tenant) -> None:
        def leave(name: str) -> None:
            remove_member(actor=actor(name), tenant=north, username=name)

        assert at_once(leave, ("max",), ("two",)) == ["InvalidInputError", "done"]
        assert Membership.objects.filter(role=Role.MANAGER).count() == 1

    def test_people_who_use_one_link(self, north: Tenant) -> None:
        for name in ("zoe", "yan"):
            User.objects.create(username=name)
        request = InvitationRequest(role="member")
        now = timezone.now()
        _, secret = invite(actor=actor("max"), tenant=north, request=request, now=now)

        def join(name: str) -> None:
            accept_invitation(actor=actor(name), key=secret, now=now)

        assert at_once(join, ("zoe",), ("yan",)) == ["InvitationGoneError", "done"]
        assert Membership.objects.filter(role=Role.MEMBER).count() == 1


def actor(name: str) -> Actor:
    return Actor(User.objects.get(username=name))


def at_once(act: Callable[..., None], *calls: tuple[str, ...]) -> list[str]:
    barrier = Barrier(len(calls))

    def attempt(names: tuple[str, ...]) -> str:
        try:
            connections["default"].ensure_connection()
            barrier.wait()
            act(*names)
        except (PermissionDenied, InvalidInputError, InvitationGoneError) as error:
            return type(error).__name__
        finally:
            connections.close_all()
        return "done"

    with ThreadPoolExecutor(len(calls)) as threads:
        return sorted(threads.map(attempt, calls))
