"""Messages as their receivers expect them: webhooks, Slack, ntfy and mail.

Webhooks follow the Standard Webhooks specification. Its headers are `webhook-id`,
`webhook-timestamp` and `webhook-signature`: `v1,` and the HMAC-SHA256 of id, timestamp and body.
"""

import base64
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from scheduling.models.messages import MessageKind
from scheduling.outbox.texts import text_of

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, not a secret
# The paths of pages. The worker does not import the pages, which takes a second and 27 MB;
# tests/functional/test_notifications.py compares the paths with the URLs.
PAGE = "/account/notifications/"
OFF, CONFIRM = f"{PAGE}off/", f"{PAGE}confirm/"
DIGEST_LINES = 200


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with what its text needs."""

    uid: UUID
    kind: str
    at: datetime
    data: dict[str, Any]

    @property
    def link(self) -> str:
        """Return the URL of the page about it; empty if the site's address is not set."""
        data, path = self.data, PAGE
        if "job" in data:
            path = f"/jobs/{data['job']['id']}/"
        elif self.kind == MessageKind.BUDGET_REACHED:
            path = f"/t/{data['tenant']}/ledger/"
        elif self.kind == MessageKind.OFFER_REVOKED:
            path = f"/t/{data['tenant']}/sharing/"
        elif self.kind == MessageKind.QUOTA_DECIDED:
            path = f"/t/{data['tenant']}/quota/?pool={data['pool']}"
        elif self.kind == MessageKind.CONFIRM:
            path = f"{CONFIRM}{token_of(UUID(data['subscription']), CONFIRM)}/"
        return site_link(path)


def site_link(path: str) -> str:
    return settings.SITE_URL + path if settings.SITE_URL else ""


def token_of(subscription: UUID, use: str) -> str:
    """Return a link's token for one use of a subscription, valid without signing in."""
    return signing.Signer(salt=use).sign(subscription.hex)


def subscription_of(token: str, use: str) -> UUID | None:
    try:
        return UUID(signing.Signer(salt=use).unsign(token))
    except (signing.BadSignature, ValueError):
        return None


def secret_of(subscription: UUID) -> str:
    """Return the secret with which a subscription's webhooks are signed; it is not stored."""
    digest = salted_hmac("scheduling.outbox.webhook", subscription.hex, algorithm="sha256").digest()
    return SECRET_PREFIX + base64.b64encode(digest).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def webhook(message: Outgoing, secret: str, now: datetime) -> tuple[bytes, dict[str, str]]:
    subject, sentence = text_of(message.kind, message.data)
    body = _json({
        "type": message.kind,
        "timestamp": message.at.astimezone(UTC).isoformat(),
        "data": {**message.data, "subject": subject, "text": sentence, "url": message.link},
    })  # fmt: skip # the body as it is sent
    uid, seconds = str(message.uid), int(now.timestamp())
    return body, {
        "content-type": "application/json",
        "webhook-id": uid,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signature(secret, uid, seconds, body),
    }


def slack(message: Outgoing) -> tuple[bytes, dict[str, str]]:
    """Return body and headers for an incoming webhook of Slack or Mattermost."""
    subject, sentence = (escape(part, quote=False) for part in text_of(message.kind, message.data))
    # Asterisks and backquotes in a job's name would be formatting, which is harmless.
    text = f"*{subject}*\n{sentence}" + (f"\n{message.link}" if message.link else "")
    return _json({"text": text}), {"content-type": "application/json"}


def ntfy(message: Outgoing, address: str) -> tuple[str, bytes, dict[str, str]]:
    """Return address, body and headers for a topic of ntfy: JSON goes to the server's root."""
    parts = urlsplit(address)
    topic = parts.path.strip("/").rsplit("/", 1)
    root = "/" + (topic[0] + "/" if len(topic) > 1 else "")
    subject, sentence = text_of(message.kind, message.data)
    fields = {"topic": topic[-1], "title": subject, "message": sentence}
    if message.link:
        fields["click"] = message.link
    target = parts._replace(path=root).geturl()
    return target, _json(fields), {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class MailBody:
    """A mail's subject and its two bodies."""

    subject: str
    plain: str
    html: str


def mail(messages: Sequence[Outgoing], off: str) -> MailBody:
    """Return a mail of one message, or a digest. `off`: the link that ends the subscription."""
    texts = [(text_of(one.kind, one.data), one.link) for one in messages[:DIGEST_LINES]]
    subject = texts[0][0].subject
    if len(texts) > 1:
        subject = _("{count} messages: {subject}, ...").format(count=len(messages), subject=subject)
    more = len(messages) - len(texts)
    rest = _("And {count} more.").format(count=more) if more else ""
    stop = _("Stop these mails")
    foot = f"{stop}: {off}" if off else ""
    blocks = ["\n".join(filter(None, (*text, link))) for text, link in texts]
    plain = "\n\n".join(filter(None, (*blocks, rest, foot))) + "\n"
    html = "".join(
        f"<p>{_linked(text.subject, link)}<br>{escape(text.sentence)}</p>" for text, link in texts
    )
    html += f"<p>{rest}</p>" if rest else ""
    html += f'<p><a href="{escape(off)}">{escape(stop)}</a></p>' if off else ""
    return MailBody(_one_line(f"[Evenshare] {subject}"), plain, html)


def _linked(subject: str, link: str) -> str:
    bold = f"<b>{escape(subject)}</b>"
    return f'<a href="{escape(link)}">{bold}</a>' if link else bold


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:200]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
