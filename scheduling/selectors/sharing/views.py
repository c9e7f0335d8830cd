"""A tenant's own settings and offers as people read them, and by when lent GPUs are back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from django.db.models import Max, Sum
from django.db.models.functions import Greatest

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.offers import Offer, OwnSharing, back_by_us
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.units import SECOND_US
from scheduling.models import Lease
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_promises import pool_promise
from scheduling.selectors.sharing.settings import SharingRule, posted_prices, sharing_rules
from tenants.answers import Answer, Hidden
from tenants.models import IdleOffer, Quota
from tenants.scopes import site_reading

_DEFAULT = SharingRule(OwnSharing(), (), 0)


@dataclass(frozen=True, slots=True)
class SharingView:
    """A quota in force of a tenant: its bounds, the tenant's own settings and what holds.

    `idle` GPUs of it no job of the tenant holds, and `lendable` of those others may use; `offered`:
    GPUs of standing offers that lend at `price`, posted last; `standing` of all of them. `floor`:
    the lowest of standing offers, None where there is none.
    """

    gpu_type: str
    bounds: Entitlement
    own: OwnSharing
    effective: Entitlement
    idle: int
    price: Decimal
    standing: int
    offered: int
    floor: Decimal | None

    @property
    def lendable(self) -> int:
        """Idle GPUs that others may use."""
        return self.effective.lendable(self.idle)

    def lends_less_than(self, other: SharingView) -> bool:
        """Whether fewer GPUs of the quota may be lent than as `other` has it."""
        mine, others = (row.effective.lendable(row.bounds.gpus) for row in (self, other))
        return mine < others

    @property
    def is_priced_out(self) -> bool:
        """Whether offers stand, and the posted price is below the floors of all of them."""
        return self.own.by_offer and self.standing > 0 and not self.offered


def sharing_views(pool_id: int, tenant_id: int, at: datetime) -> list[SharingView]:
    """Return a tenant's quotas in force in a pool, slowest type first. Four queries."""
    quotas = (
        Quota.objects.filter(pool_id=pool_id, tenant_id=tenant_id, valid_from__lte=at)
        .exclude(valid_until__lte=at)
        .select_related("gpu_type")
        .order_by("gpu_type__rank", "gpu_type__name")
    )
    live = Lease.objects.filter(pool_id=pool_id, tenant_id=tenant_id, state__in=Lease.LIVE_STATES)
    used = dict(live.order_by().values_list("gpu_type__name").annotate(Sum("own")))
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    posted = posted_prices(pool_id)  # rules are there of those alone who set something
    views = []
    for quota in quotas:
        name = quota.gpu_type.name
        rule = rules.get((tenant_id, name), _DEFAULT)
        bounds = Entitlement(
            tenant_id, name, quota.gpus, Mode(quota.mode), quota.borrow_limit, quota.lend_limit
        )
        floors = [offer.floor_micro for offer in rule.offers]
        views.append(
            SharingView(
                gpu_type=name,
                bounds=bounds,
                own=rule.own,
                effective=rule.narrow(bounds),
                idle=max(0, quota.gpus - used.get(name, 0)),
                price=to_credits(posted.get(name, 0)),
                standing=sum(offer.gpus for offer in rule.offers),
                offered=rule.offered,
                floor=to_credits(min(floors)) if floors else None,
            )
        )
    return views


class OfferState(StrEnum):
    """What becomes of an offer. Names are part of the API."""

    LENDS = "lends"
    BELOW_FLOOR = "below_floor"  # the posted price is below its floor
    NOT_USED = "not_used"  # idle quota is lent as it is, so offers do not count
    RAN_OUT = "ran_out"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer, and what it does at the price posted last, `price`."""

    offer: IdleOffer
    state: OfferState
    price: Decimal

    @property
    def stands(self) -> bool:
        """Whether it is neither revoked nor over."""
        return self.state not in (OfferState.RAN_OUT, OfferState.REVOKED)

    @property
    def text(self) -> str:
        """What it does, in a sentence with its numbers."""
        offer = self.offer
        gpus = f"{offer.gpus:,} idle GPU{'' if offer.gpus == 1 else 's'}"
        match self.state:
            case OfferState.REVOKED:
                return f"Revoked {offer.revoked_at:%Y-%m-%d %H:%M:%S} of pool time."
            case OfferState.RAN_OUT:
                return f"It ended {offer.until:%Y-%m-%d %H:%M:%S} of pool time."
            case OfferState.NOT_USED:
                return "It does nothing: idle quota of this type is lent as it is, without offers."
            case OfferState.BELOW_FLOOR:
                return (
                    f"It lends nothing: its floor is {offer.floor_price:.6f} credits, and the"
                    f" posted price is {self.price:.6f}."
                )
        return (
            f"It lends up to {gpus}: the posted price is {self.price:.6f} credits, and its floor"
            f" is {offer.floor_price:.6f}."
        )


def list_offers(
    pool_id: int, tenant_id: int, at: datetime, *, limit: int, before: int | None = None
) -> tuple[list[OfferView], bool]:
    """Return a tenant's offers in a pool, newest first, and whether there are more. Two queries.

    `before`: the id that a page goes on from.
    """
    rows = IdleOffer.objects.filter(pool_id=pool_id, tenant_id=tenant_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    page = list(rows.select_related("gpu_type").order_by("-id")[: limit + 1])
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    views = [
        _offer_view(row, rules.get((tenant_id, row.gpu_type.name), _DEFAULT), at)
        for row in page[:limit]
    ]
    return views, len(page) > limit


def offer_view(offer: IdleOffer, at: datetime) -> OfferView:
    """Return one offer, whose pool and GPU type are read. One query."""
    rules = sharing_rules(offer.pool_id, at, tenants=[offer.tenant_id])
    return _offer_view(offer, rules.get((offer.tenant_id, offer.gpu_type.name), _DEFAULT), at)


def _offer_view(offer: IdleOffer, rule: SharingRule, at: datetime) -> OfferView:
    return OfferView(offer, _state(offer, rule, at), to_credits(rule.price_micro))


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
    """By what lent GPUs come back. Names are part of the API."""

    NONE_LENT = "none_lent"
    GUARANTEE = "guarantee"  # running leases end for a job within quota
    LEASE_ENDS = "lease_ends"  # no lease goes on into quota that is not lent


class PromisedReturn(Answer, frozen=True):
    """By when GPUs that are not lent any more are back, in pool time, as long as rounds run.

    `by`: for the tenant's jobs within quota; `unasked_by`: also where none asks for them.
    `borrowed`: GPUs of the type that others borrow now, of whatever lender.
    """

    COMPONENT = "PromisedReturnJson"

    at: Hidden[datetime]
    by: datetime
    unasked_by: datetime
    rule: BackRule
    borrowed: int
    text: str


def _back_text(rule: BackRule, borrowed: int, by: datetime, unasked_by: datetime) -> str:
    """The promise in sentences."""
    if rule is BackRule.NONE_LENT:
        return "Nothing was borrowed, so there is nothing to wait for."
    gpus = "1 GPU is" if borrowed == 1 else f"{borrowed:,} GPUs are"
    now = f"{gpus} borrowed now: they are back"
    if not borrowed:
        now = "None is borrowed yet: what a round that is being decided may still lend is back"
    begin = (
        f"From the next round on no more of it is lent. {now} by {by:%Y-%m-%d %H:%M:%S} of pool"
        " time"
    )
    if rule is BackRule.LEASE_ENDS:
        return f"{begin}, when the last of these leases is over."
    return (
        f"{begin} for jobs of yours within quota, by the pool's guarantee; those that none asks"
        f" for, by {unasked_by:%Y-%m-%d %H:%M:%S}, when the last of these leases is over."
    )


def promised_return(
    facts: PoolFacts, tenant_id: int, gpu_type: str, at: datetime
) -> PromisedReturn:
    """Return by when GPUs of a tenant's quota are back that it lends no more from `at` on.

    One query. The leases that borrow now end by their expiry and their protection; a round that
    is being decided may still give or renew one.
    """
    round_us = facts.round_s * facts.clock.scale * SECOND_US
    with site_reading():
        live = Lease.objects.filter(
            pool_id=facts.id, gpu_type__name=gpu_type, state__in=Lease.LIVE_STATES, borrowed__gt=0
        ).exclude(tenant_id=tenant_id)
        # Without a protection `greatest` is the expiry: Postgres passes over nulls.
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
