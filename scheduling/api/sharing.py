"""What a tenant lends and borrows of its own will over REST: settings, highest price, offers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.money.fixed_point import to_credits
from scheduling.api import schemas
from scheduling.api.base import SchedulingView, idempotency_key, replay_header, spec_of
from scheduling.engine.clock import read_clock
from scheduling.requests.sharing import OfferRequest, PriceLimitRequest, SharingRequest
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.settings import price_limit_of
from scheduling.selectors.sharing.views import (
    OfferRow,
    PromisedReturn,
    SharingRow,
    list_offers,
    offer_view,
    promised_return,
    sharing_views,
)
from scheduling.services.sharing import make_offer, revoke_offer, set_price_limit, set_sharing
from tenants.answers import Answer, plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import Who, actor_of
from tenants.api.problems import not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import PAGE, Listed, Page
from tenants.input.requests import read_request
from tenants.models import IdleOffer, Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.quotas import pools_of
from tenants.tokens import Scope

WRITE = Scope.JOBS_WRITE.value


class SharingJson(Answer, frozen=True):
    """What a tenant lends and borrows in a pool. `max_price`: what its jobs pay at most."""

    tenant: str
    pool: str
    max_price: Decimal | None
    results: tuple[SharingRow, ...]


class SharingChanged(SharingRow, frozen=True):
    """The same after a change; `back`: by when GPUs return, where less is lent, else null."""

    back: PromisedReturn | None


class OfferRevoked(OfferRow, frozen=True):
    """The same when it is revoked."""

    back: PromisedReturn


class TenantInPool(NamedTuple):
    """A tenant in a pool in which it has or had quota."""

    facts: PoolFacts
    tenant: Tenant


class SharedPoolView(SchedulingView):
    """Of a tenant in a pool: whoever sees the tenant reads, its managers change."""

    def there(self, name: str, slug: str, action: Action = Action.SEE_TENANT) -> TenantInPool:
        """Return the pool and the tenant.

        Raises:
            Problem: 404 where one is not there for the caller, or the tenant has no quota in the
                pool; 403 where the caller's role is too low.
        """
        tenant = self.tenant(slug, action)
        facts = self.pool(name)
        with site_scope():
            if facts.id not in pools_of(tenant.pk):
                raise not_there()
        return TenantInPool(facts, tenant)


class PoolSharing(SharedPoolView):
    """What a tenant lends and borrows in a pool."""

    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "PUT": WRITE}
    http_method_names = ["get", "head", "put"]

    @extend_schema(operation_id="sharing_show", responses={200: answer_serializer(SharingJson)})
    def get(self, request: Request, name: str, slug: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Say what a tenant lends and borrows: its own settings within its quotas' bounds."""
        return Response(_sharing_json(self.there(name, slug)))

    @extend_schema(
        operation_id="price_limit_put",
        request=request_serializer(PriceLimitRequest),
        responses={200: answer_serializer(SharingJson)},
    )
    def put(self, request: Request, name: str, slug: str) -> Response:
        """Set what all jobs of a tenant pay at most for a borrowed GPU-hour in a pool."""
        there = self.there(name, slug, Action.SHARE)
        wanted = read_request(PriceLimitRequest, spec_of(request))
        set_price_limit(
            tenant=there.tenant,
            actor=actor_of(self.person),
            pool_id=there.facts.id,
            max_price=wanted.max_price,
        )
        return Response(_sharing_json(there))


class TypeSharing(SharedPoolView):
    """What a tenant lends and borrows of one GPU type."""

    scopes: ClassVar[dict[str, str]] = {"PUT": WRITE}
    http_method_names = ["put"]

    @extend_schema(
        operation_id="sharing_put",
        request=request_serializer(SharingRequest, by_offer=s.BooleanField(required=False)),
        responses={200: answer_serializer(SharingChanged)},
    )
    def put(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:
        """Set a tenant's own settings for a GPU type; the stricter of them and the bounds holds."""
        facts, tenant = self.there(name, slug, Action.SHARE)
        wanted = read_request(SharingRequest, spec_of(request))
        before = _row(facts, tenant, gpu_type)
        set_sharing(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            gpu_type=gpu_type,
            request=wanted,
            now=read_clock(facts.id).pool_at,
        )
        after = _row(facts, tenant, gpu_type)
        if before is None or after is None:
            raise not_there()  # its quota ended in this moment
        less = after.lends_less_than(before)
        back = _back(facts, tenant, gpu_type) if less else None
        return Response({**plain(after), "back": plain(back)})


class OfferList(Listed, SharedPoolView):
    """List a tenant's offers of idle quota in a pool, newest first."""

    address = "pools/<slug:name>/offers/<slug:slug>"
    operation = "offer_list"
    row = OfferRow
    about = "Offers, newest first."
    who = Who.TENANT
    parameters = PAGE
    shows = ("Tenant.slug", "IdleOffer.floor_price", "IdleOffer.uid")
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "POST": WRITE}

    def page(self, name: str, slug: str) -> Page:
        facts, tenant = self.there(name, slug)
        before, limit = self.before("offers"), self.limit
        with tenant_scope(tenant.pk):
            at = read_clock(facts.id).pool_at
            rows, more = list_offers(facts.id, tenant.pk, at, limit=limit, before=before)
        return Page(rows, [more] if more else None)

    @extend_schema(
        operation_id="offer_make",
        request=request_serializer(OfferRequest),
        responses={201: answer_serializer(OfferRow)},
        parameters=[schemas.IDEMPOTENCY_KEY, schemas.IDEMPOTENT_REPLAYED],
    )
    def post(self, request: Request, name: str, slug: str) -> Response:
        """Offer idle quota for a floor price or more; with an `Idempotency-Key`, once."""
        key = idempotency_key(request)
        facts, tenant = self.there(name, slug, Action.SHARE)
        wanted = read_request(OfferRequest, spec_of(request))
        made = make_offer(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            request=wanted,
            now=read_clock(facts.id).pool_at,
            key=key,
        )
        shown = _shown(made.offer, facts, tenant)
        headers = replay_header(is_replay=made.is_replay)
        return Response(shown, status=201, headers=headers)


class OfferOne(SharedPoolView):
    """One offer."""

    scopes: ClassVar[dict[str, str]] = {"DELETE": WRITE}
    http_method_names = ["delete"]

    @extend_schema(
        operation_id="offer_revoke", request=None, responses={200: answer_serializer(OfferRevoked)}
    )
    def delete(self, request: Request, name: str, slug: str, offer: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Revoke an offer: nothing more is lent by it; `back` says by when its GPUs return.

        Doing so twice is harmless. The offer stays in the list.
        """
        facts, tenant = self.there(name, slug, Action.SHARE)
        row = revoke_offer(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            uid=offer,
            now=read_clock(facts.id).pool_at,
        )
        if row is None:
            raise not_there()
        back = _back(facts, tenant, row.gpu_type.name)
        return Response({**_shown(row, facts, tenant), "back": plain(back)})


def _row(facts: PoolFacts, tenant: Tenant, gpu_type: str) -> SharingRow | None:
    with tenant_scope(tenant.pk):
        rows = sharing_views(facts.id, tenant.pk, read_clock(facts.id).pool_at)
    return next((row for row in rows if row.gpu_type == gpu_type), None)


def _back(facts: PoolFacts, tenant: Tenant, gpu_type: str) -> PromisedReturn:
    with tenant_scope(tenant.pk):
        return promised_return(facts, tenant.pk, gpu_type, read_clock(facts.id).pool_at)


def _shown(offer: IdleOffer, facts: PoolFacts, tenant: Tenant) -> dict[str, Any]:
    with tenant_scope(tenant.pk):
        shown: dict[str, Any] = plain(offer_view(offer, read_clock(facts.id).pool_at))
    return shown


def _sharing_json(there: TenantInPool) -> dict[str, Any]:
    facts, tenant = there
    with tenant_scope(tenant.pk):
        rows = sharing_views(facts.id, tenant.pk, read_clock(facts.id).pool_at)
        most = price_limit_of(facts.id, tenant.pk)
    max_price = None if most is None else to_credits(most)
    shown: dict[str, Any] = plain(SharingJson(tenant.slug, facts.name, max_price, tuple(rows)))
    return shown
