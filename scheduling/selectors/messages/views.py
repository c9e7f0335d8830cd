"""A person's subscriptions and deliveries, for pages and REST."""

from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from scheduling.models import Channel, Delivery, Message, Subscription
from scheduling.requests.subscriptions import ALL, CHANNELS, JOBS, MINE
from tenants.answers import Answer, one_of
from tenants.models import User

SHOWN_END = 4  # letters at the end of a URL's path, which may be a secret


class SubscriptionRow(Answer, frozen=True):
    """A subscription. A URL may contain a secret, so only its host and its end are shown."""

    id: UUID
    tenant: str
    channel: Annotated[str, one_of(*CHANNELS)]
    address: str
    kinds: tuple[str, ...]
    jobs: Annotated[str, one_of(*JOBS)]
    pool: str | None
    tag: str
    digest_hour: int | None
    zone: str
    state: Annotated[str, one_of(*Subscription.State.values)]
    note: str
    failures: int
    failing_since: datetime | None
    created_at: datetime


class DeliveryRow(Answer, frozen=True):
    """An attempt to deliver a message. `state` and `due_at` are the message's present ones."""

    id: int
    message: UUID
    subscription: UUID
    kind: str
    job: UUID | None
    at: datetime
    is_ok: bool
    status: int | None
    error: str
    response: str
    duration_ms: int
    state: Annotated[str, one_of(*Message.State.values)]
    due_at: datetime


def subscriptions_of(person: User) -> list[SubscriptionRow]:
    """Return a person's subscriptions in their present tenants, oldest first. A single query."""
    rows = Subscription.objects.filter(
        person=person, tenant__memberships__user=person
    ).select_related("tenant", "pool")
    return [subscription_row(row) for row in rows.order_by("id")]


def subscription_row(row: Subscription) -> SubscriptionRow:
    return SubscriptionRow(
        id=row.uid,
        tenant=row.tenant.slug,
        channel=row.channel,
        address=shown_address(row),
        kinds=tuple(row.kinds),
        jobs=MINE if row.is_own else ALL,
        pool=row.pool.name if row.pool else None,
        tag=row.tag,
        digest_hour=row.digest_hour,
        zone=row.zone,
        state=row.state,
        note=row.note,
        failures=row.failures,
        failing_since=row.failing_since,
        created_at=row.created_at,
    )


def shown_address(row: Subscription) -> str:
    if row.channel == Channel.MAIL:
        return row.address
    try:
        parts = urlsplit(row.address)
    except ValueError:  # a row that no service wrote
        return "..."
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    end = path if len(path) <= SHOWN_END else f"/...{path[-SHOWN_END:]}"
    return f"{parts.scheme}://{parts.netloc}{end}"


def list_deliveries(person: User, *, before: int | None, limit: int) -> list[DeliveryRow]:
    """Return up to `limit` attempts for a person, newest first, with ids below `before`."""
    rows = Delivery.objects.filter(
        subscription__person=person, tenant__memberships__user=person
    ).select_related("message__job", "subscription")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return [_delivery(row) for row in rows.order_by("-id")[:limit]]


def _delivery(row: Delivery) -> DeliveryRow:
    message = row.message
    return DeliveryRow(
        id=row.pk,
        message=message.uid,
        subscription=row.subscription.uid,
        kind=message.kind,
        job=message.job.uid if message.job else None,
        at=row.at,
        is_ok=row.is_ok,
        status=row.status,
        error=row.error,
        response=row.response,
        duration_ms=row.duration_ms,
        state=message.state,
        due_at=message.due_at,
    )
