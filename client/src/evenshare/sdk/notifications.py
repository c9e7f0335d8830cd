"""`Client.notifications`: your subscriptions to messages."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, cast

from evenshare.cli.api import Transport, part

from .jobs import id_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .answers import SubscriptionMade, SubscriptionRequest, SubscriptionRow


class Notifications:
    """Your subscriptions. A subscription is given as its answer, or as its id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> builtins.list[SubscriptionRow]:
        rows = self._transport.get("/subscriptions")["results"]
        return cast("builtins.list[SubscriptionRow]", rows)

    def add(self, **fields: Unpack[SubscriptionRequest]) -> SubscriptionMade:
        """Subscribe to a tenant's events; the same address again changes the subscription."""
        answer = self._transport.post("/subscriptions", dict(fields), repeatable=True)
        return cast("SubscriptionMade", answer)

    def test(self, subscription: SubscriptionRow | str) -> SubscriptionRow:
        """Send a test message. Raises RequestConflictError unless the subscription is active."""
        path = f"/subscriptions/{part(id_of(subscription))}/test"
        return cast("SubscriptionRow", self._transport.post(path))

    def remove(self, subscription: SubscriptionRow | str) -> None:
        """End a subscription. Raises MissingError if it has ended before."""
        self._transport.call("DELETE", f"/subscriptions/{part(id_of(subscription))}")
