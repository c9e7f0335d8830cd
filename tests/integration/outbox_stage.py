"""People who subscribe to messages, and a sender on the clock of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduling.models import Message, MessageKind, Subscription
from scheduling.outbox.deliver import Parcel
from scheduling.outbox.gather import gather_pool
from scheduling.outbox.post import Receipt
from scheduling.outbox.send import Sender
from tenants.models import Membership, Tenant, User

WALL = datetime(2030, 6, 1, 9, 0, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
OF_JOBS = [kind.value for kind in MessageKind if kind.startswith("job_")]


def person(name: str, tenant: Tenant | None, role: str = Membership.Role.MEMBER) -> User:
    """Create a person, who belongs to a tenant if one is given."""
    user = User.objects.create(username=name, email=f"{name}@example.org")
    if tenant is not None:
        Membership.objects.create(user=user, tenant=tenant, role=role)
    return user


def subscribe(user: User, tenant: Tenant, **fields: Any) -> Subscription:
    """Subscribe a person to all events of jobs, by webhook unless `fields` name a channel."""
    known: dict[str, Any] = {
        "channel": "webhook",
        "address": f"https://{user.username}.example.org/",
        "kinds": OF_JOBS,
        "created_at": LONG_AGO,
    }
    return Subscription.objects.create(person=user, tenant=tenant, **{**known, **fields})


def add_message(subscription: Subscription, **fields: Any) -> Message:
    """Add a due message."""
    count = Message.objects.filter(subscription=subscription).count()
    known: dict[str, Any] = {
        "kind": "test",
        "event": f"test:{count}",
        "data": {},
        "at": WALL,
        "created_at": WALL,
        "due_at": WALL,
    }
    return Message.objects.create(
        subscription=subscription, tenant=subscription.tenant, **{**known, **fields}
    )


@dataclass
class Post:
    """A network that keeps what is sent. `replies`: by address; other addresses get 204."""

    at: datetime = WALL
    replies: dict[str, Receipt] = field(default_factory=dict)
    sent: list[Parcel] = field(default_factory=list)
    before: Callable[[Parcel], None] = lambda _: None

    def now(self) -> datetime:
        return self.at

    def __call__(self, parcel: Parcel, _: datetime) -> tuple[Receipt, int]:
        """Deliver."""
        self.before(parcel)
        self.sent.append(parcel)
        return self.replies.get(parcel.address, Receipt(204)), 5

    def run(self, *, after: timedelta = timedelta(0)) -> int:
        """Advance the clock and send what is due; return the number of attempts."""
        self.at += after
        return Sender(self.now, self, jitter=lambda: 0.5).run()


def notify(pool_id: int, at: datetime) -> None:
    """Make the messages of a pool and send them, as the worker does."""
    gather_pool(pool_id, now=at)
    Post(at).run()
