"""The demo's fourth pool, `market`: teams of different patience, and a price that clears.

Small, so that it costs little beside the others: six nodes. Every three hours of its clock, three
minutes of the reader's, some teams are in a hurry (`portal.demo.market_trace`): the price rises,
who is patient is refused and sees the price that it would have needed, and the lender earns.
It lends by two offers: one at nearly any price, one in a hurry alone, which ends after 12 hours.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.models import Book
from evenshare_core.policies.registry import POLICIES
from portal.demo.market_trace import HOURS, TEAMS
from portal.demo.names import BIDDING_POOL
from scheduling.models import GpuType, Node, Pool, PriceSetting, TraceFeed
from scheduling.requests.sharing import OfferRequest, SharingRequest
from scheduling.services.pool_creation import open_pool
from scheduling.services.sharing import make_offer, set_sharing
from tenants.audit import Actor
from tenants.models import Membership, Tenant, User
from tenants.services.tenants import create_tenant, quotas_from_weights

NAME, POLICY = BIDDING_POOL, "market"
GPU_TYPE, NODES, GPUS_PER_NODE = "a100", 6, 4
BASE = Decimal("0.50")  # credits per GPU-hour
BEGIN = datetime(2022, 5, 2, 8, tzinfo=UTC)
SCALE, ROUND_S, LEASE_S = 60, 10, 1200
TRACE = "market_12h"
# Nobody is planned for later than an hour: who gains nowhere in it is refused, and sees the price.
OPTIONS = {"horizon_s": 3600}
# The lender's: any use of the pool posts the first floor; the second one takes a hurry.
OFFERS = (
    OfferRequest(gpu_type=GPU_TYPE, gpus=6, floor_price=Decimal("0.02")),
    OfferRequest(
        gpu_type=GPU_TYPE,
        gpus=4,
        floor_price=Decimal("0.60"),
        until=BEGIN + timedelta(hours=HOURS),
    ),
)


def seed_market() -> bool:
    """Make the pool `market`, shared by four tenants of the demo; False where it is not made."""
    slugs = [f"vc-{team.tenant}" for team in TEAMS]
    tenants = {row.slug: row for row in Tenant.objects.filter(slug__in=slugs)}
    exists = Pool.objects.filter(name=NAME).exists()
    if exists or POLICY not in POLICIES or len(tenants) != len(slugs):
        return False
    Book.objects.get_or_create(
        slug=NAME, defaults={"currency": "market credit", "clock_domain": Book.ClockDomain.SCALED}
    )
    pool = Pool.objects.create(
        name=NAME,
        book=NAME,
        policy=POLICY,
        options=OPTIONS,
        round_s=ROUND_S,
        lease_s=LEASE_S,
        pause_unwatched_s=3600,
    )
    open_pool(pool, BEGIN, scale=SCALE)
    gpu_type, _ = GpuType.objects.get_or_create(name=GPU_TYPE)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type, base=BASE)
    Node.objects.bulk_create(
        [
            Node(pool=pool, name=f"{GPU_TYPE}-{n:02d}", gpu_type=gpu_type, gpus=GPUS_PER_NODE)
            for n in range(1, NODES + 1)
        ]
    )
    for team in TEAMS:
        tenant = tenants[f"vc-{team.tenant}"]
        create_tenant(
            slug=tenant.slug,
            name=tenant.name,
            initials=tenant.initials,
            swatch=tenant.swatch,
            book=NAME,
        )
    quotas_from_weights(
        pool_id=pool.pk,
        gpu_type_id=gpu_type.pk,
        capacity=NODES * GPUS_PER_NODE,
        weights={tenants[f"vc-{team.tenant}"].pk: team.quota for team in TEAMS},
        since=BEGIN,
    )
    TraceFeed.objects.create(
        pool=pool, trace=TRACE, started_at=BEGIN, length_s=HOURS * 3600, max_pending=60
    )
    _offer(pool, tenants[f"vc-{TEAMS[0].tenant}"])
    return True


def _offer(pool: Pool, lender: Tenant) -> None:
    """Let a manager of the lender make its offers; where it has none, it lends as it is."""
    managers = User.objects.filter(
        memberships__tenant=lender, memberships__role=Membership.Role.MANAGER, is_active=True
    )
    manager = managers.order_by("id").first()
    if manager is None:
        return
    who = Actor(manager)
    set_sharing(
        tenant=lender,
        actor=who,
        pool_id=pool.pk,
        gpu_type=GPU_TYPE,
        request=SharingRequest(by_offer=True),
        now=BEGIN,
    )
    for request in OFFERS:
        make_offer(tenant=lender, actor=who, pool_id=pool.pk, request=request, now=BEGIN)
