"""Delivers one message or digest over its channel. It only uses the network, no database."""

import smtplib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.utils import translation

from scheduling.models.messages import Channel, MessageKind
from scheduling.outbox import bodies
from scheduling.outbox.post import SHOWN_BYTES, Receipt, post
from scheduling.outbox.targets import TargetRules
from tenants.language import gettext_noop

NO_MAIL = gettext_noop("This site sends no mail.")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Messages to one receiver: several only in a digest. `language`: the person's, for mails."""

    subscription: UUID
    channel: str
    address: str
    messages: Sequence[bodies.Outgoing]
    language: str = ""


def deliver(parcel: Parcel, now: datetime) -> tuple[Receipt, int]:
    """Deliver; return the reply and the duration in milliseconds."""
    begun = time.monotonic()
    reply = _mail(parcel) if parcel.channel == Channel.MAIL else _post(parcel, now)
    return reply, int((time.monotonic() - begun) * 1000)


@cache
def target_rules() -> TargetRules:
    """Return the site's rules for addresses."""
    return TargetRules.of(
        settings.WEBHOOK_INNER, denied=settings.WEBHOOK_DENIED, http=settings.WEBHOOK_HTTP
    )


def _post(parcel: Parcel, now: datetime) -> Receipt:
    message, address = parcel.messages[0], parcel.address
    if parcel.channel == Channel.NTFY:
        address, body, headers = bodies.ntfy(message, address)
    elif parcel.channel == Channel.SLACK:
        body, headers = bodies.slack(message)
    else:
        body, headers = bodies.webhook(message, bodies.secret_of(parcel.subscription), now)
    return post(address, body, {"user-agent": "Evenshare", **headers}, target_rules())


def _mail(parcel: Parcel) -> Receipt:
    if not settings.EMAIL_HOST:
        return Receipt(error=NO_MAIL)
    first = parcel.messages[0]
    off = bodies.site_link(f"{bodies.OFF}{bodies.token_of(parcel.subscription, bodies.OFF)}/")
    if first.kind == MessageKind.CONFIRM:
        off = ""
    offered = parcel.language in dict(settings.LANGUAGES)
    with translation.override(parcel.language if offered else settings.LANGUAGE_CODE):
        body = bodies.mail(parcel.messages, off)
    host = urlsplit(settings.SITE_URL).hostname or settings.EMAIL_HOST
    headers = {"Message-ID": f"<{first.uid}@{host}>", "Auto-Submitted": "auto-generated"}
    if off:
        headers |= {
            "List-Unsubscribe": f"<{off}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        }
    mail = EmailMultiAlternatives(
        body.subject, body.plain, settings.DEFAULT_FROM_EMAIL, [parcel.address], headers=headers
    )
    mail.attach_alternative(body.html, "text/html")
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        return _refused(code, text)
    except smtplib.SMTPResponseException as error:
        return _refused(error.smtp_code, error.smtp_error)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        return Receipt(error=f"The mail server failed: {type(error).__name__}.")
    return Receipt(250)


def _refused(code: int, text: bytes | str) -> Receipt:
    start = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    shown = "".join(char if char.isprintable() else " " for char in start)[:SHOWN_BYTES]
    return Receipt(code, shown, f"The mail server answered {code}.")
