"""Test subscriptions: made, changed, tested, paused, confirmed and ended, by page, REST and mail.

A person sees and changes only their own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import resolve
from django.utils import timezone
from pytest_django import Settings

from scheduling.models import Message, Subscription
from scheduling.outbox.bodies import CONFIRM, OFF, Outgoing, secret_of, token_of
from scheduling.outbox.post import Receipt
from scheduling.services.subscriptions import PER_PERSON
from tenants.models import AuditRecord, Membership
from tenants.tokens import SCOPES_USUAL, Scope
from tests.functional.api_stage import ApiStage, api_stage
from tests.integration.outbox_stage import Post

PAGE = "/account/notifications/"
ADDRESS = "https://hooks.example.org/in?key=s3cret"
HOOK: dict[str, Any] = {"tenant": "aa", "channel": "webhook", "address": ADDRESS}

MAIL = {"tenant": "aa", "channel": "mail", "address": "friend@example.org"}


@pytest.fixture
def there(db: None) -> ApiStage:  # noqa: ARG001 - the fixture is what is wanted of it
    return api_stage()


def visit(stage: ApiStage, name: str = "ada") -> Client:
    client = Client()
    client.force_login(stage.people[name])
    return client


def send_all(**more: Any) -> Post:
    post = Post(timezone.now() + timedelta(seconds=1), **more)
    post.run()
    return post


class TestRest:
    def test_makes_changes_lists_and_deletes_a_subscription(self, there: ApiStage) -> None:
        made = there.post("subscriptions", HOOK)
        assert made.status_code == 201
        body = made.json()
        assert body["secret"] == secret_of(UUID(body["id"]))
        assert body["address"] == "https://hooks.example.org/...cret"
        assert (body["kinds"], body["jobs"]) == (["job_ended", "job_failed", "job_idle"], "mine")
        changed = there.post("subscriptions", {**HOOK, "kinds": ["job_started"], "jobs": "all"})
        assert changed.json()["id"] == body["id"]
        (row,) = there.get("subscriptions").json()["results"]
        assert (row["kinds"], row["jobs"], "secret" in row) == (["job_started"], "all", False)
        assert there.get("subscriptions", as_="bob").json()["results"] == []
        path = f"subscriptions/{body['id']}"
        assert there.call("DELETE", path, as_="bob").status_code == 404
        assert there.call("DELETE", path).status_code == 204
        actions = AuditRecord.objects.order_by("id").values_list("action", flat=True)
        assert list(actions) == ["subscription.made", "subscription.ended"]
        assert "s3cret" not in str(list(AuditRecord.objects.values("before", "after")))

    @pytest.mark.parametrize("missing", [Scope.READ, Scope.JOBS_READ, Scope.JOBS_WRITE])
    def test_refuses_a_token_that_may_not_read_what_is_sent(
        self, there: ApiStage, missing: Scope
    ) -> None:
        token = there.token("ada", *(set(SCOPES_USUAL) - {missing}))
        answer = there.post("subscriptions", HOOK, as_=token)
        assert (answer.status_code, Subscription.objects.exists()) == (403, False)
        assert missing.value in answer.json()["detail"]
        assert there.post("subscriptions", HOOK, as_=there.token("ada", *SCOPES_USUAL)).json()["id"]

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"tenant": "bb"}, "tenant"),
            ({"tenant": "nowhere"}, "tenant"),
            ({"address": "https://10.0.0.1/"}, "address"),
            ({"address": "http://example.org/"}, "address"),
            ({"address": ""}, "address"),
            ({"channel": "pigeon"}, "channel"),
            ({"channel": "mail", "address": "a@example.org"}, "channel"),
            ({"kinds": []}, "kinds"),
            ({"kinds": ["test"]}, "kinds"),
            ({"pool": "elsewhere"}, "pool"),
            ({"tag": "a b"}, "tag"),
            ({"digest_hour": 24}, "digest_hour"),
            ({"digest_hour": 8}, "digest_hour"),
            ({"zone": "Mars/Olympus"}, "zone"),
        ],
    )
    def test_refuses_what_does_not_fit(
        self, there: ApiStage, fields: dict[str, Any], field: str
    ) -> None:
        answer = there.post("subscriptions", {**HOOK, **fields})
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == [field]

    def test_limits_the_number_of_a_person(self, there: ApiStage) -> None:
        for number in range(PER_PERSON):
            assert there.post("subscriptions", {**HOOK, "tag": f"t{number}"}).status_code == 201
        assert there.post("subscriptions", {**HOOK, "tag": "more"}).status_code == 400
        assert there.post("subscriptions", {**HOOK, "tag": "t0"}).status_code == 201

    def test_lists_deliveries_and_sends_a_message_again_with_its_id(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        client = visit(there)
        uid = Subscription.objects.get().uid
        assert client.post(f"{PAGE}{uid}/test/").status_code == 302
        first = send_all().sent
        (row,) = there.get("deliveries").json()["results"]
        assert (row["kind"], row["is_ok"], row["status"]) == ("test", True, 204)
        assert there.get("deliveries", as_="bob").json()["results"] == []
        replay = f"messages/{row['message']}/replay"
        assert there.post(replay, as_="bob").status_code == 404
        assert there.post(f"messages/{uuid4()}/replay").status_code == 404
        assert there.post(replay).json() == {"id": row["message"], "state": "due"}
        again = send_all().sent
        assert first[0].messages[0].uid == again[0].messages[0].uid
        page = there.get("deliveries?limit=1").json()
        assert len(page["results"]) == 1
        rest = there.get(f"deliveries?limit=1&cursor={page['next']}").json()
        assert [len(rest["results"]), rest["next"]] == [1, None]

    def test_shows_and_sends_nothing_to_a_person_who_left(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        client = visit(there)
        client.post(f"{PAGE}{Subscription.objects.get().uid}/test/")
        send_all()
        message = Message.objects.get()
        Membership.objects.all().delete()
        assert there.get("subscriptions").json()["results"] == []
        assert there.get("deliveries").json()["results"] == []
        assert there.post(f"messages/{message.uid}/replay").status_code == 404

    def test_limits_messages_by_hand(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        client = visit(there)
        uid = Subscription.objects.get().uid
        for _ in range(12):
            client.post(f"{PAGE}{uid}/test/")
        assert Message.objects.count() < 12


class TestPage:
    def test_shows_the_secret_once_and_lists_the_subscription(self, there: ApiStage) -> None:
        client = visit(there)
        form = {**HOOK, "kinds": ["job_failed"], "jobs": "mine", "zone": "UTC"}
        shown = client.post(PAGE, form).content.decode()
        secret = secret_of(Subscription.objects.get().uid)
        assert secret in shown
        listed = client.get(PAGE).content.decode()
        assert secret not in listed
        assert "https://hooks.example.org/...cret" in listed
        assert "s3cret" not in listed
        assert "This site sends no mail." in listed
        assert '<option value="webhook"' in listed
        assert '<option value="mail"' not in listed

    def test_pauses_resumes_and_removes(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        row = Subscription.objects.get()
        client, other = visit(there), visit(there, "bob")
        for action, state in (("pause", "paused"), ("resume", "active")):
            assert other.post(f"{PAGE}{row.uid}/{action}/").status_code == 404
            assert client.post(f"{PAGE}{row.uid}/{action}/").status_code == 302
            row.refresh_from_db()
            assert row.state == state
        assert client.post(f"{PAGE}{row.uid}/explode/").status_code == 404
        assert other.post(f"{PAGE}{row.uid}/remove/").status_code == 404
        assert client.post(f"{PAGE}{row.uid}/remove/").status_code == 302
        assert not Subscription.objects.exists()

    def test_shows_why_a_receiver_was_switched_off_and_resumes_it(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        row = Subscription.objects.get()
        Subscription.objects.update(state="failed", note="Failing since 2030-06-01.", failures=9)
        client = visit(there)
        assert "Failing since 2030-06-01." in client.get(PAGE).content.decode()
        client.post(f"{PAGE}{row.uid}/resume/")
        row.refresh_from_db()
        assert (row.state, row.note, row.failures) == ("active", "", 0)

    def test_sends_a_failed_message_again(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        client = visit(there)
        client.post(f"{PAGE}{Subscription.objects.get().uid}/test/")
        message = Message.objects.get()
        message.state = Message.State.FAILED
        message.save()
        again = f"{PAGE}messages/{message.uid}/again/"
        assert visit(there, "bob").post(again).status_code == 404
        assert client.post(again).status_code == 302
        assert len(send_all().sent) == 1
        assert "Send again" in client.get(PAGE).content.decode()


class TestMail:
    def test_goes_to_another_address_only_after_its_reader_agreed(
        self, there: ApiStage, settings: Settings
    ) -> None:
        settings.EMAIL_HOST = "mail.example.org"
        assert there.post("subscriptions", MAIL).json()["state"] == "unconfirmed"
        row = Subscription.objects.get()
        (sent,) = send_all().sent
        assert [one.kind for one in sent.messages] == ["confirm"]
        link = sent.messages[0].link
        path = link.removeprefix(settings.SITE_URL)
        anybody = Client(enforce_csrf_checks=True)
        page = anybody.get(path).content.decode()
        row.refresh_from_db()
        assert row.state == "unconfirmed"  # a scanner that opens the link does not confirm
        token = page.split('csrfmiddlewaretoken" value="')[1].split('"')[0]
        assert anybody.post(path, {"csrfmiddlewaretoken": token}).status_code == 200
        row.refresh_from_db()
        assert row.state == "active"

    @pytest.mark.parametrize("state", ["active", "paused", "failed"])
    def test_is_resumed_after_its_reader_stopped_it_only_if_they_agree_again(
        self, there: ApiStage, settings: Settings, state: str
    ) -> None:
        settings.EMAIL_HOST = "mail.example.org"
        there.post("subscriptions", MAIL)
        row = Subscription.objects.get()
        agree, stop = (f"{use}{token_of(row.uid, use)}/" for use in (CONFIRM, OFF))
        client, reader = visit(there), Client()

        def act(*paths: str) -> str:
            for path in paths:
                (reader if path in (agree, stop) else client).post(path)
            row.refresh_from_db()
            return row.state

        pause, resume = (f"{PAGE}{row.uid}/{name}/" for name in ("pause", "resume"))
        assert act(agree, pause, resume) == "active"  # its own pause needs no consent
        Subscription.objects.update(state=state)
        assert act(stop) == (state if state != "active" else "paused")
        assert act(agree) != "active"
        assert act(resume) == "unconfirmed"
        kinds = [one.kind for parcel in send_all().sent for one in parcel.messages]
        assert set(kinds) == {"confirm"}
        assert act(agree) == "active"

    def test_is_not_resumed_without_consent_after_its_question_failed(
        self, there: ApiStage, settings: Settings
    ) -> None:
        settings.EMAIL_HOST = "mail.example.org"
        there.post("subscriptions", MAIL)
        Subscription.objects.update(state="failed")
        visit(there).post(f"{PAGE}{Subscription.objects.get().uid}/resume/")
        assert Subscription.objects.get().state == "unconfirmed"

    def test_asks_an_address_a_few_times_a_day_whoever_subscribes_it(
        self, there: ApiStage, settings: Settings
    ) -> None:
        settings.EMAIL_HOST = "mail.example.org"
        for address, as_, tenant in (
            ("friend@example.org", "ada", "aa"),
            ("Friend@example.org", "bob", "bb"),
            ("friend+x@example.org", "bob", "bb"),
        ):
            body = {**MAIL, "address": address, "tenant": tenant}
            assert there.post("subscriptions", body, as_=as_).status_code == 201
        again = {**MAIL, "tag": "t"}
        answer = there.post("subscriptions", again)
        assert (answer.status_code, Subscription.objects.count()) == (429, 3)
        other = {**again, "address": "other@example.org"}
        assert there.post("subscriptions", other).status_code == 201

    def test_goes_to_the_address_of_the_account_at_once(
        self, there: ApiStage, settings: Settings
    ) -> None:
        settings.EMAIL_HOST = "mail.example.org"
        there.people["ada"].email = "ada@example.org"
        there.people["ada"].save()
        made = there.post("subscriptions", {"tenant": "aa", "digest_hour": 8}).json()
        assert (made["address"], made["state"]) == ("ada@example.org", "active")
        assert made["digest_hour"] == 8

    def test_stops_by_its_link_without_signing_in(self, there: ApiStage) -> None:
        there.post("subscriptions", HOOK)
        row = Subscription.objects.get()
        path = f"{OFF}{token_of(row.uid, OFF)}/"
        program = Client(enforce_csrf_checks=True)
        assert program.get(path).status_code == 200
        row.refresh_from_db()
        assert row.state == "active"
        # As mail programs do: RFC 8058.
        assert program.post(path, {"List-Unsubscribe": "One-Click"}).status_code == 200
        row.refresh_from_db()
        assert row.state == "paused"
        for token in (token_of(row.uid, CONFIRM), token_of(uuid4(), OFF), "x"):
            assert program.post(f"{OFF}{token}/").status_code == 404


def test_links_of_messages_are_urls_of_the_portal(settings: Settings) -> None:
    uid, now = uuid4(), timezone.now()
    facts = {"tenant": "aa", "job": {"id": str(uid)}, "subscription": uid.hex}
    pages: dict[str, tuple[str, dict[str, Any]]] = {
        "job_ended": ("job", facts),
        "budget_reached": ("ledger", {"tenant": "aa"}),
        "offer_revoked": ("sharing", {"tenant": "aa"}),
        "quota_decided": ("quota", {"tenant": "aa", "pool": "p"}),
        "test": ("notifications", {}),
        "confirm": ("notification-confirm", {"subscription": uid.hex}),
    }
    for kind, (name, data) in pages.items():
        settings.SITE_URL = "https://x"
        link = Outgoing(uid, kind, now, data).link.removeprefix("https://x").partition("?")[0]
        assert resolve(link).url_name == name
    assert resolve(f"{OFF}{token_of(uid, OFF)}/").url_name == "notification-off"


def test_metrics_count_messages_and_receivers(there: ApiStage) -> None:
    def shown() -> dict[str, float]:
        lines = Client().get("/metrics").content.decode().splitlines()
        pairs = (line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    there.post("subscriptions", HOOK)
    client = visit(there)
    client.post(f"{PAGE}{Subscription.objects.get().uid}/test/")
    Message.objects.update(created_at=timezone.now() - timedelta(hours=2))
    before = shown()
    assert before["evenshare_messages_due"] == 1
    assert before["evenshare_message_age_seconds"] >= 7200
    send_all(replies={ADDRESS: Receipt(500, "", "The receiver answered 500.")})
    after = shown()
    assert after['evenshare_deliveries{outcome="failed"}'] == 1
    assert after['evenshare_deliveries{outcome="sent"}'] == 0
    assert after['evenshare_receivers{state="failing"}'] == 1
    assert after["evenshare_messages_due"] == 1
