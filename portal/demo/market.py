"""The demo's fourth pool, `market`: teams of different patience, and a market-clearing price.

It is small, with six nodes. In one of every three hours of its clock (three minutes for the reader)
some teams are in a hurry (`portal.demo.market_trace`). The price rises, patient jobs are refused
and see the price that they needed, and the lender earns. The lender has two offers: one with a very
low floor, and one with a high floor for the busy hour. The second ends after 12 hours. Near the end
of the first busy hour the lender's manager revokes it, once (`revoke_when_due`).
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from evenshare_core.policies.registry import POLICIES
from portal.demo.market_trace import HOURS, TEAMS
from portal.demo.names import BIDDING_POOL
from portal.demo.small_pool import SmallPool, demo_tenants, make_small_pool
from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.requests.sharing import OfferRequest, SharingRequest
from scheduling.services.sharing import make_offer, revoke_offer, set_sharing
from tenants.audit import Actor
from tenants.models import IdleOffer, Membership, SharingSetting, Tenant, User
from tenants.scopes import site_scope

NAME, POLICY = BIDDING_POOL, "market"
GPU_TYPE, NODES, GPUS_PER_NODE = "a100", 6, 4
BASE = Decimal("0.50")  # credits per GPU-hour
BEGIN = datetime(2022, 5, 2, 8, tzinfo=UTC)
SCALE, ROUND_S = 60, 10
TRACE = "market_12h"
POOL = SmallPool(
    name=NAME,
    policy=POLICY,
    # The plan covers one hour; a job without a gain in it is refused, and sees the price.
    options={"horizon_s": 3600},
    gpu_type=GPU_TYPE,
    nodes=NODES,
    gpus_per_node=GPUS_PER_NODE,
    base=BASE,
    begin=BEGIN,
    scale=SCALE,
    round_s=ROUND_S,
    lease_s=1200,
    trace=TRACE,
    hours=HOURS,
)
QUOTAS = {team.tenant: team.quota for team in TEAMS}
# The lender's offers (GPUs, floor): any use lifts the price to the first floor, busy hours to the
# second.
CHEAP, DEAR = (6, Decimal("0.02")), (4, Decimal("0.60"))
# In the first busy hour of a new pool, its second hour.
REVOKED_AFTER = timedelta(minutes=110)


def seed_market() -> bool:
    """Make the pool `market`, shared by four tenants of the demo, and the lender's offers.

    Return whether anything was made. Offers that the lender has revoked or changed are not made
    again.
    """
    tenants = demo_tenants([team.tenant for team in TEAMS])
    if POLICY not in POLICIES or tenants is None:
        return False
    lender = tenants[TEAMS[0].tenant]
    pool = Pool.objects.filter(name=NAME).first()
    if pool is not None:
        return _offer(pool, lender, read_clock(pool.pk).pool_at)
    _offer(make_small_pool(POOL, tenants, QUOTAS), lender, BEGIN)
    return True


def revoke_when_due() -> bool:
    """Revoke the expensive offer as the lender's manager, once; return whether that was done now.

    It is due `REVOKED_AFTER` of pool time after the offer was made. Skip it if the lender has
    revoked an offer before.
    """
    with site_scope():
        pool = Pool.objects.filter(name=NAME).first()
        lender = Tenant.objects.filter(slug=f"vc-{TEAMS[0].tenant}").first()
        if pool is None or lender is None:
            return False
        offers = IdleOffer.objects.filter(pool=pool, tenant=lender)
        gpus, floor = DEAR
        dear = offers.filter(gpus=gpus, floor_price=floor).order_by("id").first()
        if dear is None or offers.filter(revoked_at__isnull=False).exists():
            return False
        manager = _manager(lender)
        now = read_clock(pool.pk).pool_at
        ended = dear.until is not None and dear.until <= now
        if manager is None or ended or now < dear.made_at + REVOKED_AFTER:
            return False
    revoke_offer(tenant=lender, actor=Actor(manager), pool_id=pool.pk, uid=dear.uid, now=now)
    return True


def _manager(lender: Tenant) -> User | None:
    managers = User.objects.filter(
        memberships__tenant=lender, memberships__role=Membership.Role.MANAGER, is_active=True
    )
    return managers.order_by("id").first()


def _offer(pool: Pool, lender: Tenant, now: datetime) -> bool:
    """Make the lender's offers as its manager, if it never made one; return whether it did.

    Skip a lender without a manager or with its own settings.
    """
    manager, mine = _manager(lender), {"pool": pool, "tenant": lender}
    known = (IdleOffer.objects.filter(**mine), SharingSetting.objects.filter(**mine))
    if manager is None or any(rows.exists() for rows in known):
        return False
    who = Actor(manager)
    set_sharing(
        tenant=lender,
        actor=who,
        pool_id=pool.pk,
        gpu_type=GPU_TYPE,
        request=SharingRequest(by_offer=True),
        now=now,
    )
    for (gpus, floor), until in ((CHEAP, None), (DEAR, now + timedelta(hours=HOURS))):
        request = OfferRequest(gpu_type=GPU_TYPE, gpus=gpus, floor_price=floor, until=until)
        make_offer(tenant=lender, actor=who, pool_id=pool.pk, request=request, now=now)
    return True
