"""Tenants' own choices of lending and borrowing: settings, open offers, maximum prices."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.offers import Offer, OwnSharing, narrow, offered
from evenshare_core.money.fixed_point import to_micro
from scheduling.models import EqualPeople
from scheduling.requests.sharing import PeopleRule
from scheduling.selectors.rounds.states import posted_rows
from tenants.models import PriceLimit
from tenants.sql import fetch_rows

# An offer is open from its creation until its end (exclusive). After it is revoked, no later
# snapshot counts it, even a snapshot of an earlier time.
_RULES = """
SELECT s.tenant_id, t.name, s.mode, s.borrow_limit, s.lend_limit, s.by_offer,
       coalesce((
           SELECT jsonb_agg(jsonb_build_array(o.gpus, (o.floor_price * 1000000)::bigint)
                            ORDER BY o.id)
           FROM tenants_idleoffer o
           WHERE o.pool_id = s.pool_id AND o.tenant_id = s.tenant_id
             AND o.gpu_type_id = s.gpu_type_id AND o.made_at <= %(at)s
             AND (o.until IS NULL OR o.until > %(at)s)
             AND o.revoked_at IS NULL
       ), '[]')::text,
       coalesce((
           SELECT (price->>'price_micro')::bigint
           FROM jsonb_array_elements((
               SELECT prices FROM scheduling_roundstate
               WHERE pool_id = %(pool)s ORDER BY number DESC, day DESC LIMIT 1
           )) price
           WHERE price->>'gpu_type' = t.name
       ), 0)
FROM tenants_sharingsetting s JOIN scheduling_gputype t ON t.id = s.gpu_type_id
WHERE s.pool_id = %(pool)s AND (%(tenants)s::bigint[] IS NULL OR s.tenant_id = ANY(%(tenants)s))
ORDER BY s.tenant_id, t.name
"""


class SharingRule(NamedTuple):
    """A tenant's own settings for a GPU type, its open offers, and the last posted price."""

    own: OwnSharing
    offers: tuple[Offer, ...]
    price_micro: int

    @property
    def offered(self) -> int:
        """The GPUs of the offers whose floor is at most the last posted price."""
        return offered(self.offers, self.price_micro)

    def narrow(self, bounds: Entitlement, price_micro: int | None = None) -> Entitlement:
        """Return a quota limited by the tenant's settings, at the given or last posted price."""
        price = self.price_micro if price_micro is None else price_micro
        return narrow(bounds, self.own, self.offers, price)


# Rules by tenant and GPU type.
SharingRules = Mapping[tuple[int, str], SharingRule]
NO_RULES: SharingRules = MappingProxyType({})


def sharing_rules(
    pool_id: int, at: datetime, *, tenants: Collection[int] | None = None
) -> SharingRules:
    """Return the settings of `tenants` at an instant of pool time; of all tenants if None."""
    wanted = None if tenants is None else list(tenants)
    rows = fetch_rows(_RULES, {"pool": pool_id, "at": at, "tenants": wanted})
    return {
        (tenant, gpu_type): SharingRule(
            OwnSharing(Mode(mode), borrow_limit, lend_limit, by_offer),
            tuple(Offer(gpus, floor) for gpus, floor in json.loads(offers)),
            price,
        )
        for tenant, gpu_type, mode, borrow_limit, lend_limit, by_offer, offers, price in rows
    }


def posted_prices(pool_id: int) -> dict[str, int]:
    """Return the last posted prices in micro-credits per GPU-hour, by GPU type. A single query."""
    return {row["gpu_type"]: row["price_micro"] for row in posted_rows(pool_id)}


def narrowed(
    bounds: Iterable[Entitlement], rules: SharingRules, prices: Mapping[str, int] | None = None
) -> tuple[Entitlement, ...]:
    """Return quotas limited by the tenants' settings, in the same order.

    `prices`: by GPU type; the last posted ones if None.
    """
    return tuple(
        row
        if (rule := rules.get((row.tenant, row.gpu_type))) is None
        else rule.narrow(row, None if prices is None else prices.get(row.gpu_type, 0))
        for row in bounds
    )


def price_limits(pool_id: int) -> dict[int, int]:
    """Return the maximum prices of tenants' jobs, in micro-credits per GPU-hour. A single query."""
    rows = PriceLimit.objects.filter(pool_id=pool_id).order_by("tenant_id")
    return {tenant: to_micro(price) for tenant, price in rows.values_list("tenant_id", "max_price")}


def equal_tenants(pool_id: int) -> frozenset[int]:
    """Return the tenants whose people share their places in a pool equally. A single query."""
    rows = EqualPeople.objects.filter(pool_id=pool_id)
    return frozenset(rows.values_list("tenant_id", flat=True))


def people_rule(pool_id: int, tenant_id: int) -> PeopleRule:
    """Return how a tenant's people share its places in a pool. A single query."""
    rows = EqualPeople.objects.filter(pool_id=pool_id, tenant_id=tenant_id)
    return PeopleRule.EQUAL if rows.exists() else PeopleRule.FIRST_COME


def price_limit_of(pool_id: int, tenant_id: int) -> int | None:
    """Return the maximum price of a tenant's jobs, or None if it set none. A single query."""
    rows = PriceLimit.objects.filter(pool_id=pool_id, tenant_id=tenant_id)
    price = rows.values_list("max_price", flat=True).first()
    return None if price is None else to_micro(price)
