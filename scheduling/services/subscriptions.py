"""Subscriptions to messages: make, confirm, test, pause, end; and sending a message again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID, uuid4
from zoneinfo import available_timezones

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from scheduling.models import Channel, Message, MessageKind, Pool, Subscription
from scheduling.outbox.bodies import CONFIRM, OFF, secret_of, subscription_of
from scheduling.outbox.deliver import NO_MAIL, target_rules
from scheduling.outbox.gather import next_digest
from scheduling.outbox.targets import TargetRefusedError, read_target
from scheduling.requests.subscriptions import MINE, SubscriptionRequest
from scheduling.selectors.messages.views import shown_address
from tenants.audit import Actor, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.language import gettext_noop
from tenants.models import Tenant, User
from tenants.rate import Rate, take
from tenants.scopes import site_scope
from tenants.selectors.access import access_of

PER_PERSON = 20
# Messages that a person may cause by hand: tests, confirmations, and sending again.
BY_HAND = Rate(per_s=1 / 30, full=10)
# Mails to one address that ask its reader for consent, over all people who subscribe it.
ASKED = Rate(per_s=3 / 86_400, full=3)
TOO_MANY = gettext_noop("Too many messages by hand. Try again later.")
States = Subscription.State


def subscribe(
    *, actor: Actor, request: SubscriptionRequest, now: datetime
) -> tuple[Subscription, str]:
    """Make or change a subscription of the actor; return it with its secret.

    The secret is empty unless the channel signs its messages. Mail to an address other than the
    account's needs a confirmation. `now`: wall time.

    Raises:
        InvalidInputError: with all errors.
        RateError: too many addresses to confirm.
    """
    member = _tenant_id(actor.user, request.tenant)
    address = _checked_address(actor.user, request)
    with site_scope():
        User.objects.select_for_update(no_key=True).get(pk=actor.user.pk)
        tenant = Tenant.objects.get(pk=member)
        key = {
            "person": actor.user,
            "tenant": tenant,
            "channel": request.channel,
            "address": address,
            "pool": _pool(tenant, request.pool),
            "tag": request.tag,
        }
        row = Subscription.objects.filter(**key).first()
        is_new = row is None
        if row is None:
            if Subscription.objects.filter(person=actor.user).count() >= PER_PERSON:
                raise invalid(
                    "address",
                    _("would exceed {most} subscriptions").format(most=PER_PERSON),
                )
            row = Subscription(**key)
            if _needs_consent(actor.user, row):
                row.state = States.UNCONFIRMED
        row.kinds, row.is_own = list(request.kinds), request.jobs == MINE
        row.digest_hour, row.zone = request.digest_hour, request.zone
        row.digest_at = (
            None
            if request.digest_hour is None
            else next_digest(now, request.zone, request.digest_hour)
        )
        row.save()
        if is_new:
            write_audit(actor, "subscription.made", _subject(row), after=_facts(row))
            if row.state == States.UNCONFIRMED:
                _ask(row, now)
    return row, secret_of(row.uid) if row.channel == Channel.WEBHOOK else ""


def unsubscribe(*, actor: Actor, uid: UUID) -> bool:
    """Delete a subscription of the actor with its messages; return whether it existed."""
    with _own(actor, uid) as row:
        if row is None:
            return False
        write_audit(actor, "subscription.ended", _subject(row), before=_facts(row))
        row.delete()
    return True


def set_active(*, actor: Actor, uid: UUID, active: bool, now: datetime) -> Subscription | None:
    """Pause or resume a subscription of the actor; None for an unknown one.

    An unconfirmed one stays unconfirmed. Resuming forgets earlier failures, and asks the reader of
    an address who did not agree, or who stopped the mails.

    Raises:
        RateError: too many addresses to confirm.
    """
    with _own(actor, uid) as row:
        if row is None or row.state == States.UNCONFIRMED:
            return row
        row.state = States.ACTIVE if active else States.PAUSED
        row.note, row.failures, row.failing_since, row.retry_at = "", 0, None, None
        if active and _needs_consent(actor.user, row):
            row.state = States.UNCONFIRMED
            _ask(row, now)
        row.save(update_fields=["state", "note", "failures", "failing_since", "retry_at"])
    return row


def send_test(*, actor: Actor, uid: UUID, now: datetime) -> Subscription | None:
    """Return a subscription of the actor, or None without one; send a test message if active.

    Raises:
        RateError: too many.
    """
    with _own(actor, uid) as row:
        if row is not None and row.state == States.ACTIVE:
            _add(row, MessageKind.TEST, now, {})
    return row


def send_again(*, actor: Actor, uid: UUID, now: datetime) -> Message | None:
    """Send a message of the actor again, with its id; None for an unknown one.

    Nothing changes while it is still due, or if its subscription is not active.

    Raises:
        RateError: too many.
    """
    with site_scope():
        rows = Message.objects.select_for_update(of=("self",)).select_related("subscription")
        row = rows.filter(uid=uid, subscription__person=actor.user).first()
        if row is None or access_of(actor.user).membership_of(row.tenant_id) is None:
            return None
        if row.subscription.state == States.ACTIVE and row.state != Message.State.DUE:
            take(f"messages:{actor.user.pk}", BY_HAND)
            row.state, row.due_at, row.created_at, row.attempts = Message.State.DUE, now, now, 0
            row.save(update_fields=["state", "due_at", "created_at", "attempts"])
            Subscription.objects.filter(pk=row.subscription_id).update(retry_at=None)
    return row


def confirm(token: str) -> Subscription | None:
    """Confirm the mail address of a link's token; None if the token is not valid."""
    with _linked(token, CONFIRM) as row:
        if row is not None and row.state == States.UNCONFIRMED:
            row.state, row.confirmed_at = States.ACTIVE, Now()
            row.save(update_fields=["state", "confirmed_at"])
    return row


def turn_off(token: str) -> Subscription | None:
    """Pause the subscription of a mail's link; None if the token is not valid.

    Its reader must confirm again before it is resumed, unless the address is the account's.
    """
    with _linked(token, OFF) as row:
        if row is not None:
            row.confirmed_at = None
            if row.state == States.ACTIVE:
                row.state = States.PAUSED
            row.save(update_fields=["state", "confirmed_at"])
    return row


def _tenant_id(user: User, slug: str) -> int:
    with site_scope():
        member = access_of(user).membership_named(slug)
    if member is None:
        raise invalid("tenant", _("is not a tenant of yours"))
    return member.tenant_id


def _checked_address(user: User, request: SubscriptionRequest) -> str:
    """Return the address to use.

    Raises:
        InvalidInputError: the address or the digest does not fit the channel.
    """
    errors, is_mail = FieldErrors(), request.channel == Channel.MAIL
    address = request.address or (user.email if is_mail else "")
    if is_mail:
        if not settings.EMAIL_HOST:
            errors.add("channel", _(NO_MAIL))
        try:
            validate_email(address)
        except ValidationError:
            errors.add("address", _("Enter a mail address."))
    else:
        try:
            read_target(address, target_rules())
        except TargetRefusedError as error:
            errors.add("address", _(str(error)))
        if request.digest_hour is not None:
            errors.add("digest_hour", _("is only for mail"))
    if request.zone not in available_timezones():
        errors.add("zone", _("is not a time zone"))
    errors.raise_any(("channel", "address", "digest_hour", "zone"))
    return address


def _needs_consent(user: User, row: Subscription) -> bool:
    """Return whether the reader of a mail address must agree before it gets messages."""
    is_other = row.channel == Channel.MAIL and row.address.lower() != user.email.lower()
    return is_other and row.confirmed_at is None


def _pool(tenant: Tenant, name: str) -> Pool | None:
    if not name:
        return None
    pool = Pool.objects.filter(name=name, quotas__tenant=tenant).distinct().first()
    if pool is None:
        raise invalid("pool", _("is not a pool of the tenant"))
    return pool


@contextmanager
def _own(actor: Actor, uid: UUID) -> Iterator[Subscription | None]:
    """Open a transaction with a subscription of the actor, locked."""
    with site_scope():
        rows = Subscription.objects.select_for_update().filter(uid=uid, person=actor.user)
        yield rows.first()


@contextmanager
def _linked(token: str, use: str) -> Iterator[Subscription | None]:
    """Open a transaction with the subscription of a link's token, locked."""
    uid = subscription_of(token, use)
    with site_scope():
        yield Subscription.objects.select_for_update().filter(uid=uid).first() if uid else None


def _ask(row: Subscription, now: datetime) -> None:
    """Ask the reader of an address for consent.

    A word after "+" in a mailbox's name does not count, as its mails have the same reader.
    """
    mailbox, _, host = row.address.lower().rpartition("@")
    reader = f"{mailbox.partition('+')[0]}@{host}"
    digest = salted_hmac("scheduling.subscriptions.asked", reader, algorithm="sha256").hexdigest()
    take(f"asked:{digest}", ASKED)
    facts = {"subscription": row.uid.hex, "person": row.person.username}
    _add(row, MessageKind.CONFIRM, now, facts)


def _add(row: Subscription, kind: MessageKind, now: datetime, facts: dict[str, str]) -> None:
    take(f"messages:{row.person_id}", BY_HAND)
    Message.objects.create(
        subscription=row,
        tenant=row.tenant,
        kind=kind,
        event=f"{kind}:{uuid4()}",
        data={"tenant": row.tenant.slug, **facts},
        at=now,
        created_at=now,
        due_at=now,
    )


def _subject(row: Subscription) -> str:
    return f"subscription {row.uid}"


def _facts(row: Subscription) -> dict[str, object]:
    """Return what the audit may have: an address may contain a secret, so only its host."""
    shown = shown_address(row)
    host = urlsplit(shown).hostname or shown.rpartition("@")[2]
    return {"channel": row.channel, "host": host, "kinds": sorted(row.kinds)}
