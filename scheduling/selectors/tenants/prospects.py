"""A tenant's possible starts in a pool now: quota, held and free GPUs, price, credit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from django.db.models import OuterRef, Q, Subquery, Sum

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.units import ONE_MILLI
from scheduling.models import Lease, Node, PriceSetting, Round, RoundState
from scheduling.selectors.pools.settings import price_settings
from scheduling.selectors.sharing.quotas import counted_quotas
from scheduling.selectors.sharing.settings import SharingRules, narrowed, sharing_rules
from tenants.models import Quota
from tenants.scopes import site_reading
from tenants.selectors.credit import credit_left
from tenants.selectors.quotas import quotas_in_force


@dataclass(frozen=True, slots=True)
class StartProspect:
    """The facts that decide whether a tenant's job can start on one GPU type of a pool.

    `quota`: as it counts in the pool, after the trades of the last round. `may_borrow`: the most
    GPUs above quota, or None if there is no limit. `price`: credits per borrowed GPU-hour for the
    next round's terms. `own_held`, `borrowed_held`: GPUs of the tenant's jobs. The price was posted
    for `used` of `capacity` GPUs, with `base`, `theta`, and the `surcharge` of the queue.
    """

    gpu_type: str
    quota: int
    may_borrow: int | None
    own_held: int
    borrowed_held: int
    free: int
    price: Decimal
    used: int
    capacity: int
    base: Decimal
    theta: Decimal
    surcharge: Decimal

    @property
    def own_left(self) -> int:
        """GPUs of its quota that it does not hold."""
        return max(0, self.quota - self.own_held)

    def price_with(self, gpus: int) -> Decimal:
        """Return the price that would be posted if `gpus` more GPUs were in use."""
        theta_milli = int(self.theta * ONE_MILLI)
        used = self.used + gpus
        micro = posted_price_micro(to_micro(self.base), theta_milli, used, self.capacity)
        return to_credits(micro) + self.surcharge


class _LeasedGpus(NamedTuple):
    """GPUs of one type in leases: the tenant's own and borrowed ones, and those of all tenants."""

    own: int
    borrowed: int
    gpus: int


_NOTHING = _LeasedGpus(0, 0, 0)
_UNPOSTED: Mapping[str, int] = {"price_micro": 0, "used": 0}


def prospects(pool_id: int, tenant_id: int, *, at: datetime) -> list[StartProspect]:
    """Return a tenant's possible starts by GPU type of a pool, slowest first. Ten queries."""
    nodes = Node.objects.filter(pool_id=pool_id, effective_state=Node.State.UP)
    up = dict(nodes.values_list("gpu_type__name").annotate(Sum("gpus")))
    types = Node.objects.filter(pool_id=pool_id).order_by("gpu_type__rank", "gpu_type__name")
    own = quotas_in_force(pool_id, at).filter(tenant_id=tenant_id).select_related("gpu_type")
    quotas = {row.gpu_type.name: row for row in own}
    counted = counted_quotas(pool_id, tenant_id, at)
    live = Lease.objects.filter(pool_id=pool_id, state__in=Lease.LIVE_STATES)
    mine = Q(tenant_id=tenant_id)
    # Read the leases of all tenants, to count the free GPUs.
    with site_reading():
        rows = list(
            live.values("gpu_type__name")
            .annotate(
                own=Sum("own", filter=mine), bor=Sum("borrowed", filter=mine), all=Sum("gpus")
            )
            .values_list("gpu_type__name", "own", "bor", "all")
        )
    held = {name: _LeasedGpus(own or 0, borrowed or 0, gpus) for name, own, borrowed, gpus in rows}
    last = Round.objects.filter(pool_id=pool_id, number=OuterRef("number")).values("shares")
    states = RoundState.objects.filter(pool_id=pool_id).order_by("-number", "-day")
    states = states.annotate(shares=Subquery(last[:1]))
    posted, shares = states.values_list("prices", "shares").first() or (None, None)
    prices = {row["gpu_type"]: row for row in posted or []}
    swapped = {
        row["gpu_type"]: row.get("swapped", 0) for row in shares or [] if row["tenant"] == tenant_id
    }
    settings = price_settings(pool_id)
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    names = dict.fromkeys(types.values_list("gpu_type__name", flat=True))
    return [
        StartProspect(
            gpu_type=name,
            quota=max(0, counted.get(name, 0) + swapped.get(name, 0)),
            may_borrow=_may_borrow(quotas.get(name), rules),
            own_held=held.get(name, _NOTHING).own,
            borrowed_held=held.get(name, _NOTHING).borrowed,
            free=max(0, up.get(name, 0) - held.get(name, _NOTHING).gpus),
            price=to_credits(prices.get(name, _UNPOSTED)["price_micro"]),
            used=prices.get(name, _UNPOSTED)["used"],
            capacity=up.get(name, 0),
            base=_base(prices.get(name, _UNPOSTED), settings[name]),
            theta=_theta(prices.get(name, _UNPOSTED), settings[name]),
            surcharge=to_credits(prices.get(name, _UNPOSTED).get("surcharge_micro", 0)),
        )
        for name in names
    ]


def spendable(tenant_id: int, book: str, at: datetime) -> Decimal | None:
    """Return the credit that a tenant may still promise in a book, or None if it has no limit."""
    left = credit_left(book, [tenant_id], at).get(tenant_id)
    micro = left.micro if left is not None else None
    return None if micro is None else to_credits(micro)


def _base(posted: Mapping[str, int], setting: PriceSetting) -> Decimal:
    """Return the base of the posted price, or of the operator's setting if the price has none."""
    return to_credits(posted["base_micro"]) if "base_micro" in posted else setting.base


def _theta(posted: Mapping[str, int], setting: PriceSetting) -> Decimal:
    """Return the theta of the posted price (some policies set it), or of the operator's setting."""
    milli = posted.get("theta_milli")
    return setting.theta if milli is None else Decimal(milli) / ONE_MILLI


def _may_borrow(quota: Quota | None, rules: SharingRules) -> int | None:
    if quota is None:
        return None
    bounds = Entitlement(
        quota.tenant_id, quota.gpu_type.name, quota.gpus, Mode(quota.mode), quota.borrow_limit
    )
    (row,) = narrowed([bounds], rules)
    return row.may_borrow
