"""Test the whole way: a job ends in a round, and its person gets a mail and a signed webhook."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from pytest_django import Settings

from scheduling import tasks
from scheduling.management.commands import send_messages
from scheduling.models import Delivery, Message, Subscription, VirtualWork
from scheduling.outbox import bodies
from scheduling.outbox.bodies import Outgoing, secret_of, token_of
from scheduling.outbox.deliver import target_rules
from scheduling.outbox.send import Sender
from tests.factories import Cluster, cluster
from tests.hook_server import Hook, hook_server
from tests.integration.outbox_stage import LONG_AGO, WALL, Post, add_message, person, subscribe
from tests.mail_server import Mailbox, mail_server

FACTS = {
    "pool": "p", "tenant": "a", "gpus": 1, "gpu_type": "v100", "at": WALL.isoformat(),
}  # fmt: skip # facts of a message
pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def mailbox(settings: Settings) -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mailbox.port
        settings.SITE_URL = "https://gpu.example.org"
        yield mailbox


@pytest.fixture
def hook(settings: Settings) -> Iterator[Hook]:
    settings.WEBHOOK_INNER = ["127.0.0.1"]
    target_rules.cache_clear()
    with hook_server() as hook:
        yield hook
    target_rules.cache_clear()


@pytest.fixture
def lab() -> Cluster:
    return cluster({"a": 4})


def send(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the worker's task, and the process that it starts; return the commands started."""
    started: list[str] = []

    def start(command: str) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(tasks, "_started", start)
    monkeypatch.setattr(send_messages, "IDLE_S", 0.0)
    monkeypatch.setattr(send_messages, "PAUSE_S", 0.0)
    monkeypatch.setattr("os.nice", lambda _: 0)
    tasks.messages()
    for command in started:
        call_command(command)
    return started


def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Verify a signature as the Standard Webhooks specification describes, with other code."""
    key = base64.b64decode(secret[len("whsec_") :])
    signed = b".".join(
        [headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body]
    )
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{expected}"


class TestStory:
    def test_mail_and_signed_webhook_arrive_after_a_real_round(
        self, lab: Cluster, mailbox: Mailbox, hook: Hook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a = lab.tenants["a"]
        ada = person("ada", a)
        kinds = {"kinds": ["job_failed"]}
        mail = subscribe(ada, a, channel="mail", address="ada@example.org", **kinds)
        webhook = subscribe(ada, a, address=hook.url, **kinds)
        job = lab.submit("a", 1, 5, submitted_by=ada)
        VirtualWork.objects.update(exit_code=7)
        lab.round()
        assert send(monkeypatch) == []
        lab.round(after_s=10)
        assert send(monkeypatch) == ["send_messages"]
        ((path, headers, body),) = hook.requests
        assert path == "/hook"
        assert verify(secret_of(webhook.uid), headers, body)
        assert not verify(secret_of(mail.uid), headers, body)
        sent = json.loads(body)
        assert (sent["type"], sent["data"]["exit_code"]) == ("job_failed", 7)
        assert sent["data"]["url"] == f"https://gpu.example.org/jobs/{job.uid}/"
        (letter,) = mailbox.mails
        assert letter["Subject"] == "[Evenshare] a-1 failed"
        assert letter["To"] == "ada@example.org"
        off = f"https://gpu.example.org{bodies.OFF}{token_of(mail.uid, bodies.OFF)}/"
        assert letter["List-Unsubscribe"].strip() == f"<{off}>"
        assert letter["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        plain, html = (part.get_content() for part in letter.iter_parts())
        for text in (plain, html):
            assert "exit code 7" in text
            assert str(job.uid) in text
            assert off in text
        assert set(Delivery.objects.values_list("is_ok", flat=True)) == {True}
        assert send(monkeypatch) == []

    def test_slack_and_ntfy_get_their_own_bodies(
        self, lab: Cluster, hook: Hook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a = lab.tenants["a"]
        ada = person("ada", a)
        for channel in ("slack", "ntfy"):
            row = subscribe(ada, a, channel=channel, address=f"{hook.url}/{channel}?auth=x")
            data = {**FACTS, "job": {"id": "1", "name": "<!channel>"}, "reason": "failed"}
            add_message(row, kind="job_failed", data=data, due_at=LONG_AGO)
        assert send(monkeypatch) == ["send_messages"]
        by_path = {path: json.loads(body) for path, _, body in hook.requests}
        assert "*&lt;!channel&gt; failed*" in by_path["/hook/slack?auth=x"]["text"]
        # ntfy takes JSON at the root of its server.
        topic = by_path["/hook/?auth=x"]
        assert (topic["topic"], topic["title"]) == ("ntfy", "<!channel> failed")

    def test_a_refused_mail_is_logged_with_the_reply_of_the_server(
        self, lab: Cluster, mailbox: Mailbox
    ) -> None:
        a = lab.tenants["a"]
        row = subscribe(person("ada", a), a, channel="mail", address="full@example.org")
        mailbox.refused["full@example.org"] = "452 mailbox full"
        add_message(row)
        post = Post()
        Sender(post.now).run()
        attempt = Delivery.objects.get()
        assert (attempt.status, attempt.response) == (452, "mailbox full")
        assert attempt.error == "The mail server answered 452."
        assert Message.objects.get().state == Message.State.DUE

    def test_a_site_without_a_mail_server_says_so(self, lab: Cluster) -> None:
        a = lab.tenants["a"]
        row = subscribe(person("ada", a), a, channel="mail", address="ada@example.org")
        add_message(row)
        Sender(Post().now).run()
        assert Delivery.objects.get().error == "This site sends no mail."


class TestMail:
    def test_digest_lists_its_messages_and_escapes_names(self) -> None:
        row = Subscription()
        names = ["<script>", *(f"job-{number}" for number in range(300))]
        messages = [
            Outgoing(
                row.uid, "job_started", WALL,
                {**FACTS, "job": {"id": "1", "name": name}},
            )
            for name in names
        ]  # fmt: skip # rows
        body = bodies.mail(messages, "https://x/off/")
        assert body.subject == "[Evenshare] 301 messages: <script> started, ..."
        assert "<script>" not in body.html
        assert body.plain.count("It runs on 1 v100 GPU.") == bodies.DIGEST_LINES
        assert "And 101 more." in body.plain

    def test_subject_is_one_line(self) -> None:
        data = {**FACTS, "job": {"id": "1", "name": "a\r\nBcc: x"}, "reason": "cancelled"}
        body = bodies.mail([Outgoing(Subscription().uid, "job_ended", WALL, data)], "")
        assert body.subject == "[Evenshare] a  Bcc: x was cancelled"
