"""A tenant's own settings and offers for display, and when lent GPUs return."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from django.db.models import Max, Sum
from django.db.models.functions import Greatest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.offers import Offer, OwnSharing, back_by_us
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.units import SECOND_US
from scheduling.models import Lease
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_promises import pool_promise
from scheduling.selectors.sharing.quotas import counted_quotas
from scheduling.selectors.sharing.settings import SharingRule, posted_prices, sharing_rules
from tenants.answers import Answer, Hidden, answer_of, answered_as
from tenants.language import marked, number
from tenants.models import IdleOffer
from tenants.scopes import site_reading
from tenants.selectors.quotas import quotas_in_force

_DEFAULT = SharingRule(OwnSharing(), (), 0)


class SharingLimits(Answer, frozen=True):
    """A mode and its limits in GPUs; null: no limit."""

    mode: Mode
    borrow_limit: int | None
    lend_limit: int | None


class OwnSharingLimits(SharingLimits, frozen=True):
    """The tenant's own limits; `by_offer`: idle quota is lent only by offers."""

    by_offer: bool


class SharingRow(Answer, frozen=True):
    """A quota: the operator's `bounds`, the tenant's `own` settings, and the `effective` limits.

    `idle` GPUs of it are not used by its tenant; other tenants may use `lendable` of them. Open
    offers have `standing` GPUs; at the posted `price`, `offered` of them are lent.
    """

    gpu_type: str
    gpus: int
    bounds: Annotated[Entitlement, answered_as(SharingLimits)]
    own: Annotated[OwnSharing, answered_as(OwnSharingLimits)]
    effective: Annotated[Entitlement, answered_as(SharingLimits)]
    idle: int
    lendable: int
    standing: int
    offered: int
    price: Decimal
    floor: Hidden[Decimal | None]  # the lowest floor of the open offers
    counted: Hidden[int]  # less than `gpus` if all quotas exceed the pool's GPUs

    def lends_less_than(self, other: SharingRow) -> bool:
        """Return whether fewer GPUs of the quota may be lent than under `other`."""
        mine, others = (row.effective.lendable(row.gpus) for row in (self, other))
        return mine < others

    @property
    def is_priced_out(self) -> bool:
        """Whether there are open offers and the posted price is below all their floors."""
        return self.own.by_offer and self.standing > 0 and not self.offered


def sharing_views(pool_id: int, tenant_id: int, at: datetime) -> list[SharingRow]:
    """Return a tenant's quotas in force in a pool, slowest type first. Six queries."""
    counted = counted_quotas(pool_id, tenant_id, at)
    quotas = (
        quotas_in_force(pool_id, at)
        .filter(tenant_id=tenant_id)
        .select_related("gpu_type")
        .order_by("gpu_type__rank", "gpu_type__name")
    )
    live = Lease.objects.filter(pool_id=pool_id, tenant_id=tenant_id, state__in=Lease.LIVE_STATES)
    used = dict(live.order_by().values_list("gpu_type__name").annotate(Sum("own")))
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    posted = posted_prices(pool_id)  # rules exist only for tenants with settings
    views = []
    for quota in quotas:
        name = quota.gpu_type.name
        rule = rules.get((tenant_id, name), _DEFAULT)
        bounds = Entitlement(
            tenant_id, name, quota.gpus, Mode(quota.mode), quota.borrow_limit, quota.lend_limit
        )
        floors = [offer.floor_micro for offer in rule.offers]
        own = counted.get(name, 0)
        effective, idle = rule.narrow(bounds), max(0, own - used.get(name, 0))
        views.append(
            SharingRow(
                gpu_type=name,
                gpus=quota.gpus,
                bounds=bounds,
                own=rule.own,
                effective=effective,
                idle=idle,
                lendable=effective.lendable(idle),
                standing=sum(offer.gpus for offer in rule.offers),
                offered=rule.offered,
                price=to_credits(posted.get(name, 0)),
                floor=to_credits(min(floors)) if floors else None,
                counted=own,
            )
        )
    return views


class OfferState(StrEnum):
    """The state of an offer. Names are part of the API."""

    LENDS = "lends"
    BELOW_FLOOR = "below_floor"  # the posted price is below its floor
    NOT_USED = "not_used"  # idle quota is lent without offers, so offers do not count
    RAN_OUT = "ran_out"
    REVOKED = "revoked"


class OfferRow(Answer, frozen=True):
    """An offer; `text` describes its effect at `price`, the last posted price."""

    id: UUID
    tenant: str
    pool: str
    gpu_type: str
    gpus: int
    floor_price: Decimal
    price: Decimal
    made_at: datetime
    until: datetime | None
    revoked_at: datetime | None
    state: OfferState
    text: str

    @property
    def stands(self) -> bool:
        """Whether the offer is in force: not revoked, and before its end."""
        return self.state not in (OfferState.RAN_OUT, OfferState.REVOKED)


def _offer_text(offer: IdleOffer, state: OfferState, price: Decimal) -> str:
    match state:
        case OfferState.REVOKED:
            text = _("Revoked {revoked_at}, pool time.")
            return text.format(revoked_at=f"{offer.revoked_at:%Y-%m-%d %H:%M:%S} UTC")
        case OfferState.RAN_OUT:
            text = _("Ended {until}, pool time.")
            return text.format(until=f"{offer.until:%Y-%m-%d %H:%M:%S} UTC")
        case OfferState.NOT_USED:
            return _("No effect: idle quota of this type is lent without offers.")
        case OfferState.BELOW_FLOOR:
            text = _(
                "Lends nothing: its floor is {floor} credits, and the posted price is {price}."
            )
        case OfferState.LENDS:
            text = ngettext(
                "Lends up to {gpus} idle GPU: the posted price is {price} credits, and its floor"
                " is {floor}.",
                "Lends up to {gpus} idle GPUs: the posted price is {price} credits, and its floor"
                " is {floor}.",
                offer.gpus,
            )
    return text.format(
        gpus=number(offer.gpus),
        floor=marked(f"{offer.floor_price:.6f}"),
        price=marked(f"{price:.6f}"),
    )


def list_offers(
    pool_id: int, tenant_id: int, at: datetime, *, limit: int, before: int | None = None
) -> tuple[list[OfferRow], int | None]:
    """Return a tenant's offers in a pool, newest first, and the id of the next page. Two queries.

    `before`: the id at which a page continues.
    """
    rows = IdleOffer.objects.filter(pool_id=pool_id, tenant_id=tenant_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    page = list(rows.select_related("gpu_type", "tenant", "pool").order_by("-id")[: limit + 1])
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    views = [
        _offer_row(row, rules.get((tenant_id, row.gpu_type.name), _DEFAULT), at)
        for row in page[:limit]
    ]
    return views, page[limit - 1].pk if len(page) > limit else None


def offer_view(offer: IdleOffer, at: datetime) -> OfferRow:
    """Return an offer for display. A single query if its tenant, pool and GPU type are loaded."""
    rules = sharing_rules(offer.pool_id, at, tenants=[offer.tenant_id])
    return _offer_row(offer, rules.get((offer.tenant_id, offer.gpu_type.name), _DEFAULT), at)


def _offer_row(offer: IdleOffer, rule: SharingRule, at: datetime) -> OfferRow:
    state, price = _state(offer, rule, at), to_credits(rule.price_micro)
    return answer_of(
        OfferRow,
        offer,
        id=offer.uid,
        tenant=offer.tenant.slug,
        pool=offer.pool.name,
        gpu_type=offer.gpu_type.name,
        price=price,
        state=state,
        text=_offer_text(offer, state, price),
    )


def _state(offer: IdleOffer, rule: SharingRule, at: datetime) -> OfferState:
    if offer.revoked_at is not None:
        return OfferState.REVOKED
    if offer.until is not None and offer.until <= at:
        return OfferState.RAN_OUT
    if not rule.own.by_offer:
        return OfferState.NOT_USED
    lends = Offer(offer.gpus, to_micro(offer.floor_price)).lends_at(rule.price_micro)
    return OfferState.LENDS if lends else OfferState.BELOW_FLOOR


class BackRule(StrEnum):
    """The rule by which lent GPUs return. Names are part of the API."""

    NONE_LENT = "none_lent"
    GUARANTEE = "guarantee"  # running leases end if a job within quota needs the GPUs
    LEASE_ENDS = "lease_ends"  # no lease is renewed on GPUs that are not lent


class PromisedReturn(Answer, frozen=True):
    """When a tenant gets GPUs back that it no longer lends, in pool time, as long as rounds run.

    `by`: the latest time if its jobs within quota need them. `unasked_by`: the latest time if none
    of its jobs needs them. `borrowed`: GPUs of the type that other tenants borrow now, from any
    lender.
    """

    COMPONENT = "PromisedReturnJson"

    at: Hidden[datetime]
    by: datetime
    unasked_by: datetime
    rule: BackRule
    borrowed: int
    text: str


def _back_text(rule: BackRule, borrowed: int, by: datetime, unasked_by: datetime) -> str:
    if rule is BackRule.NONE_LENT:
        return _("Nothing was borrowed, so all GPUs are available now.")
    first = _(
        "No GPU is borrowed yet. GPUs that a round in progress lends return by {by}, pool time."
    )
    if borrowed:
        first = ngettext(
            "{gpus} GPU of this type is borrowed in the whole pool now and returns by {by},"
            " pool time.",
            "{gpus} GPUs of this type are borrowed in the whole pool now and return by {by},"
            " pool time.",
            borrowed,
        )
    when = _("Then the last of these leases is over.")
    if rule is not BackRule.LEASE_ENDS:
        when = _(
            "This holds for your jobs within quota, by the pool's guarantee. Other GPUs return by"
            " {unasked_by}, when the last of these leases is over."
        )
    shown = f"{first} {when}".format(
        gpus=number(borrowed),
        by=f"{by:%Y-%m-%d %H:%M:%S} UTC",
        unasked_by=f"{unasked_by:%Y-%m-%d %H:%M:%S} UTC",
    )
    return " ".join((_("No more is lent from the next round on."), shown))


def promised_return(
    facts: PoolFacts, tenant_id: int, gpu_type: str, at: datetime
) -> PromisedReturn:
    """Return when a tenant gets GPUs of its quota back if it stops lending them at `at`.

    A single query. Current borrowing leases end
    by the later of their expiry and the end of their protection.
    A round that is being decided may still grant or renew such a lease.
    """
    round_us = facts.round_s * facts.clock.scale * SECOND_US
    with site_reading():
        live = Lease.objects.filter(
            pool_id=facts.id, gpu_type__name=gpu_type, state__in=Lease.LIVE_STATES, borrowed__gt=0
        ).exclude(tenant_id=tenant_id)
        # If a lease has no protection, `greatest` is the expiry, because PostgreSQL ignores nulls.
        last = live.aggregate(
            ends=Max(Greatest("expires_at", "protected_until")), gpus=Sum("borrowed")
        )
    ends_us = [] if last["ends"] is None else [to_us(last["ends"])]
    at_us = to_us(at)
    grid_us = at_us // round_us * round_us
    if facts.checked_at is None or to_us(facts.checked_at) < grid_us:
        ends_us.append(at_us + facts.longest_lease_s * SECOND_US)
    promise = pool_promise(facts)
    within_us = None
    if promise is not None and promise.kind is QuotaPromiseKind.GUARANTEED:
        within_us = promise.within_us
    lengths = {"at_us": at_us, "round_us": round_us, "notice_us": facts.grace_s * SECOND_US}
    by_us = back_by_us(ends_us, within_us=within_us, **lengths)
    unasked_us = back_by_us(ends_us, within_us=None, **lengths)
    rule = BackRule.LEASE_ENDS if by_us == unasked_us else BackRule.GUARANTEE
    rule = rule if ends_us else BackRule.NONE_LENT
    by, unasked_by, borrowed = from_us(by_us), from_us(unasked_us), last["gpus"] or 0
    text = _back_text(rule, borrowed, by, unasked_by)
    return PromisedReturn(at, by, unasked_by, rule, borrowed, text)
