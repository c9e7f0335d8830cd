"""A tenant's lending and borrowing over REST: settings, maximum price, offers."""

from decimal import Decimal
from typing import Annotated, Any, ClassVar
from uuid import UUID

from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.money.fixed_point import to_credits
from scheduling.api import schemas
from scheduling.api.base import (
    SharedPoolView,
    idempotency_key,
    replay_header,
    spec_of,
)
from scheduling.engine.clock import read_clock
from scheduling.requests.sharing import (
    OfferRequest,
    PeopleRequest,
    PeopleRule,
    PriceLimitRequest,
    SharingRequest,
)
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.settings import people_rule, price_limit_of
from scheduling.selectors.sharing.views import (
    OfferRow,
    PromisedReturn,
    SharingRow,
    list_offers,
    offer_view,
    promised_return,
    sharing_views,
)
from scheduling.services.sharing import (
    make_offer,
    revoke_offer,
    set_people,
    set_price_limit,
    set_sharing,
)
from tenants.answers import Answer, about, one_of, plain
from tenants.api.base import actor_of
from tenants.api.problems import not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import PAGE, Listed, Page, Shown, described
from tenants.input.requests import read_request
from tenants.models import IdleOffer, Tenant
from tenants.permissions import Action
from tenants.scopes import tenant_scope
from tenants.tokens import Scope

WRITE = Scope.JOBS_WRITE.value


class SharingJson(Answer, frozen=True):
    """A tenant's lending and borrowing in a pool. `max_price`: the most that its jobs pay."""

    tenant: str
    pool: str
    max_price: Decimal | None
    people: Annotated[str, one_of(*PeopleRule), about("How its people share its places.")]
    results: tuple[SharingRow, ...]


class SharingChanged(SharingRow, frozen=True):
    """The settings after a change.

    If less is lent now, `back` states when the GPUs return; otherwise it is null.
    """

    back: PromisedReturn | None


class OfferRevoked(OfferRow, frozen=True):
    """A revoked offer; `back` states when its GPUs return."""

    back: PromisedReturn


class PoolSharing(Shown, SharedPoolView):
    """Show a tenant's lending and borrowing: its own settings, and the bounds of its quotas."""

    address = "pools/<slug:name>/sharing/<slug:slug>"
    operation = "sharing_show"
    answer = SharingJson
    shows = ("Tenant.slug", "PriceLimit.max_price")
    scopes: ClassVar[dict[str, str]] = {"GET": Scope.READ.value, "PUT": WRITE}
    http_method_names = ["get", "head", "put"]

    def show(self, name: str, slug: str) -> SharingJson:
        return _sharing(*self.there(name, slug))

    @described("price_limit_put", PriceLimitRequest, SharingJson)
    def put(self, request: Request, name: str, slug: str) -> Response:
        """Set the highest price per borrowed GPU-hour for all jobs of a tenant in a pool."""
        facts, tenant = self.there(name, slug, Action.SHARE)
        wanted = read_request(PriceLimitRequest, spec_of(request))
        set_price_limit(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            max_price=wanted.max_price,
        )
        return Response(plain(_sharing(facts, tenant)))


class PeopleShare(SharedPoolView):
    address = "pools/<slug:name>/people/<slug:slug>"
    scopes: ClassVar[dict[str, str]] = {"PUT": WRITE}
    http_method_names = ["put"]

    @described("people_put", PeopleRequest, SharingJson)
    def put(self, request: Request, name: str, slug: str) -> Response:
        """Set how a tenant's people share its places in the queue of a pool."""
        facts, tenant = self.there(name, slug, Action.SHARE)
        wanted = read_request(PeopleRequest, spec_of(request))
        set_people(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            rule=PeopleRule(wanted.people),
        )
        return Response(plain(_sharing(facts, tenant)))


_SHARING_BODY = request_serializer(SharingRequest, by_offer=s.BooleanField(required=False))


class TypeSharing(SharedPoolView):
    address = "pools/<slug:name>/sharing/<slug:slug>/<slug:gpu_type>"
    scopes: ClassVar[dict[str, str]] = {"PUT": WRITE}
    http_method_names = ["put"]

    @described("sharing_put", _SHARING_BODY, SharingChanged)
    def put(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:
        """Set a tenant's own settings for a GPU type; they narrow the bounds of its quota."""
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
            raise not_there()  # the quota ended meanwhile
        less = after.lends_less_than(before)
        back = _back(facts, tenant, gpu_type) if less else None
        return Response({**plain(after), "back": plain(back)})


class OfferList(Listed, SharedPoolView):
    """List a tenant's offers of idle quota in a pool, newest first."""

    address = "pools/<slug:name>/offers/<slug:slug>"
    operation = "offer_list"
    row = OfferRow
    about = "Offers, newest first."
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

    @described("offer_make", OfferRequest, OfferRow, 201, *schemas.ONCE)
    def post(self, request: Request, name: str, slug: str) -> Response:
        """Offer idle quota at a floor price; with an `Idempotency-Key`, only once."""
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
        shown = _shown(made.row, facts, tenant)
        headers = replay_header(is_replay=made.is_replay)
        return Response(shown, status=201, headers=headers)


class OfferOne(SharedPoolView):
    address = "pools/<slug:name>/offers/<slug:slug>/<uuid:offer>"
    scopes: ClassVar[dict[str, str]] = {"DELETE": WRITE}
    http_method_names = ["delete"]

    @described("offer_revoke", None, OfferRevoked)
    def delete(self, request: Request, name: str, slug: str, offer: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Revoke an offer, so that it lends no more GPUs; `back` states when its GPUs return.

        Repeating it is harmless. The offer stays in the list.
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


def _sharing(facts: PoolFacts, tenant: Tenant) -> SharingJson:
    with tenant_scope(tenant.pk):
        rows = sharing_views(facts.id, tenant.pk, read_clock(facts.id).pool_at)
        most = price_limit_of(facts.id, tenant.pk)
        people = people_rule(facts.id, tenant.pk)
    max_price = None if most is None else to_credits(most)
    return SharingJson(tenant.slug, facts.name, max_price, people.value, tuple(rows))
