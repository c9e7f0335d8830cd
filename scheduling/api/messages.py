"""Subscriptions and deliveries of the caller over REST."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import spec_of
from scheduling.engine.clock import wall_now
from scheduling.models import Subscription
from scheduling.requests.subscriptions import SubscriptionRequest
from scheduling.selectors.messages.views import (
    DeliveryRow,
    SubscriptionRow,
    list_deliveries,
    subscription_row,
    subscriptions_of,
)
from scheduling.services.subscriptions import (
    TOO_MANY,
    send_again,
    send_test,
    subscribe,
    unsubscribe,
)
from tenants.answers import Answer, answer_of, plain
from tenants.api.base import ApiView, Who, actor_of
from tenants.api.problems import Problem, not_there
from tenants.api.resources import PAGE, Listed, Page, described, page_of
from tenants.input.requests import read_request
from tenants.models import User
from tenants.rate import RateError
from tenants.scopes import site_scope
from tenants.tokens import Scope, TokenBearer

READ, WRITE = Scope.JOBS_READ.value, Scope.JOBS_WRITE.value


class SubscriptionMade(SubscriptionRow, frozen=True):
    """A subscription with the secret that signs its webhooks; empty for other channels."""

    secret: str = ""


class MessageQueued(Answer, frozen=True):
    """A message that is sent again."""

    id: UUID
    state: str


class SubscriptionList(Listed):
    """List your subscriptions to messages, oldest first."""

    address = "subscriptions"
    operation = "subscription_list"
    who = Who.ANYBODY_SIGNED_IN
    row = SubscriptionRow
    about = "Your subscriptions."
    shows = ("Subscription.uid", "Subscription.tag", "Tenant.slug")
    scopes: ClassVar[dict[str, str]] = {"GET": READ, "POST": WRITE}

    def page(self) -> Page:
        with site_scope():
            return Page(subscriptions_of(self.person))

    @described("subscription_create", SubscriptionRequest, SubscriptionMade, 201)
    def post(self, request: Request) -> Response:
        """Subscribe to messages of a tenant's events.

        A second request for the same address, pool and tag changes the subscription. Webhooks are
        signed as the Standard Webhooks specification describes. A token also needs the scopes
        `read` and `jobs:read`.
        """
        _require_reading(request)
        wanted = read_request(SubscriptionRequest, spec_of(request))
        try:
            row, secret = subscribe(actor=actor_of(self.person), request=wanted, now=wall_now())
        except RateError as error:
            raise _too_many(error) from None
        made = answer_of(SubscriptionMade, subscription_row(row), secret=secret)
        return Response(plain(made), status=201)


class SubscriptionOne(ApiView):
    address = "subscriptions/<uuid:uid>"
    scopes: ClassVar[dict[str, str]] = {"DELETE": WRITE}

    @described("subscription_destroy", None, None, 204)
    def delete(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """End a subscription. Its messages and deliveries are deleted."""
        if not unsubscribe(actor=actor_of(self.person), uid=uid):
            raise not_there()
        return Response(status=204)


class SubscriptionTest(ApiView):
    address = "subscriptions/<uuid:uid>/test"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}

    @described("subscription_test", None, SubscriptionRow)
    def post(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Send a test message. Refused with 409 unless the subscription is active."""
        try:
            row = send_test(actor=actor_of(self.person), uid=uid, now=wall_now())
        except RateError as error:
            raise _too_many(error) from None
        if row is None:
            raise not_there()
        if row.state != Subscription.State.ACTIVE:
            raise Problem("conflict", f"The subscription is {row.state}.")
        return Response(plain(subscription_row(row)))


class DeliveryList(Listed):
    """List the attempts to deliver messages to you, newest first."""

    address = "deliveries"
    operation = "delivery_list"
    who = Who.ANYBODY_SIGNED_IN
    row = DeliveryRow
    about = "Attempts, newest first."
    parameters = PAGE
    shows = ("Message.uid", "Delivery.error")
    scopes: ClassVar[dict[str, str]] = {"GET": READ}

    def page(self) -> Page:
        person: User = self.person
        before = self.before("deliveries", person.pk)
        with site_scope():
            rows = list_deliveries(person, before=before, limit=self.limit + 1)
        return page_of(rows, self.limit, lambda row: [row.id])


class MessageReplay(ApiView):
    address = "messages/<uuid:uid>/replay"
    scopes: ClassVar[dict[str, str]] = {"POST": WRITE}

    @described("message_replay", None, MessageQueued)
    def post(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Send a message again, with the same id. No change while it is still due."""
        try:
            row = send_again(actor=actor_of(self.person), uid=uid, now=wall_now())
        except RateError as error:
            raise _too_many(error) from None
        if row is None:
            raise not_there()
        return Response(plain(MessageQueued(row.uid, row.state)))


def _require_reading(request: Request) -> None:
    """Refuse a token that may not read what it would have sent to an address.

    Raises:
        Problem: 403.
    """
    if isinstance(request.auth, TokenBearer):
        for scope in (Scope.READ, Scope.JOBS_READ):
            if scope.value not in request.auth.token.scopes:
                raise Problem("scope", f"The token lacks the scope {scope.value}.")


def _too_many(error: RateError) -> Problem:
    return Problem("throttled", TOO_MANY, retry_after_s=error.retry_after_s)
