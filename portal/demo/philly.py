"""The demo: a pool `philly` that replays real jobs of the tenants that submitted them."""

import csv
from datetime import UTC, datetime

from django.conf import settings

from billing.models import Book
from portal.demo.data import DATA
from portal.demo.deadlines import seed_deadlines
from portal.demo.local import seed_local
from portal.demo.market import revoke_when_due, seed_market
from portal.demo.mixed import PREFERRED as MIXED
from portal.demo.mixed import seed_mixed
from portal.demo.names import readable_name
from portal.demo.slurm_pool import seed_slurm, submit_when_due
from scheduling.models import GpuType, Node, Pool, PriceSetting, TraceFeed
from scheduling.services.pool_creation import open_pool
from tenants.models import Membership, Tenant, User
from tenants.scopes import site_scope
from tenants.services.tenants import create_demo_user, create_tenant, quotas_from_weights

BOOK = "demo"
# The start of the replayed part of the trace; the pool's clock shows the dates of the trace.
BEGIN = datetime(2017, 10, 20, 12, tzinfo=UTC)
SLICE_S = 48 * 3600
NODES, GPUS_PER_NODE, SCALE = 60, 8, 60


def seed_demo() -> bool:
    """Make the demo's pools, tenants, quotas and people; return False if they exist already."""
    with site_scope():
        return _seed()


def people_act() -> None:
    """Do the due actions of the demo's people; called repeatedly."""
    revoke_when_due()
    submit_when_due()


def _seed() -> bool:
    if Pool.objects.filter(name="philly").exists():
        return _seed_others()
    Book.objects.get_or_create(
        slug=BOOK, defaults={"currency": "demo credit", "clock_domain": Book.ClockDomain.SCALED}
    )
    gpu_type, _ = GpuType.objects.get_or_create(name="gpu")
    pool = Pool.objects.create(
        name="philly", book=BOOK, round_s=5, lease_s=900, pause_unwatched_s=3600
    )
    open_pool(pool, BEGIN, scale=SCALE)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type)
    Node.objects.bulk_create(
        [
            Node(pool=pool, name=f"node-{n:02d}", gpu_type=gpu_type, gpus=GPUS_PER_NODE)
            for n in range(1, NODES + 1)
        ]
    )
    tenants = _tenants()
    quotas_from_weights(
        pool_id=pool.pk,
        gpu_type_id=gpu_type.pk,
        capacity=NODES * GPUS_PER_NODE,
        weights={tenant.pk: nodes for tenant, nodes in tenants},
        since=BEGIN,
    )
    TraceFeed.objects.create(
        pool=pool, trace="philly_2017-10-20", started_at=BEGIN, length_s=SLICE_S
    )
    _people({tenant.slug: tenant for tenant, _ in tenants})
    _seed_others()
    return True


def _seed_others() -> bool:
    """Make the missing pools other than `philly`; return whether any was made."""
    return any(
        [
            seed_local(),
            *map(seed_mixed, MIXED),
            seed_market(),
            seed_deadlines(),
            seed_slurm(settings.DEMO_SLURM_CONF),
        ]
    )


def _tenants() -> list[tuple[Tenant, int]]:
    """Return the trace's virtual clusters with their real numbers of nodes, largest first."""
    with (DATA / "philly_vc_nodes.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (-int(row["nodes"]), row["tenant"]))
    return [(_tenant(place, row["tenant"]), int(row["nodes"])) for place, row in enumerate(rows)]


def _tenant(place: int, trace_name: str) -> Tenant:
    name, initials = readable_name(place, trace_name)
    return create_tenant(
        slug=f"vc-{trace_name}", name=name, initials=initials, swatch=place, book=BOOK
    )


def _people(tenants: dict[str, Tenant]) -> None:
    create_demo_user(
        username="rosa",
        first_name="Rosa",
        last_name="Researcher",
        tenant=tenants["vc-7f04ca"],
        role=Membership.Role.MEMBER,
    )
    create_demo_user(
        username="mara",
        first_name="Mara",
        last_name="Manager",
        tenant=tenants["vc-6214e9"],
        role=Membership.Role.MANAGER,
    )
    create_demo_user(
        username="otto",
        first_name="Otto",
        last_name="Operator",
        tenant=None,
        site_role=User.SiteRole.OPERATOR,
    )
