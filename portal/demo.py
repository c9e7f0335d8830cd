"""The demo: a pool `philly` that replays real jobs for the tenants they came from."""

from __future__ import annotations

import csv
from datetime import UTC, datetime

from django.db import transaction

from billing.models import Book
from portal.demo_local import local_seed
from portal.demo_mixed import mixed_seed
from portal.opening import pool_open
from scheduling.models import GpuType, Node, Pool, PriceSetting, TraceFeed
from scheduling.simulation.traces import DATA
from tenants.models import Membership, Tenant, User
from tenants.services import demo_user_create, quotas_from_weights, tenant_create

BOOK = "demo"
# The slice begins here: its pool time is the trace's own calendar.
BEGIN = datetime(2017, 10, 20, 12, tzinfo=UTC)
SLICE_S = 48 * 3600
NODES, GPUS_PER_NODE, SCALE = 60, 8, 60


@transaction.atomic
def demo_seed() -> bool:
    """Make the demo's pools, tenants, quotas and people; return False if they exist already."""
    if Pool.objects.filter(name="philly").exists():
        return any([local_seed(), mixed_seed()])
    Book.objects.get_or_create(
        slug=BOOK, defaults={"currency": "demo credit", "clock_domain": Book.ClockDomain.SCALED}
    )
    gpu_type, _ = GpuType.objects.get_or_create(name="gpu")
    pool = Pool.objects.create(
        name="philly", book=BOOK, round_s=5, lease_s=900, pause_unwatched_s=3600
    )
    pool_open(pool, BEGIN, scale=SCALE)
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
    local_seed()
    mixed_seed()
    return True


def _tenants() -> list[tuple[Tenant, int]]:
    """The trace's virtual clusters with their real numbers of nodes, largest first."""
    with (DATA / "philly_vc_nodes.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (-int(row["nodes"]), row["tenant"]))
    return [
        (
            tenant_create(
                slug=f"vc-{row['tenant']}",
                name=f"vc-{row['tenant']}",
                initials=row["tenant"][:2].upper(),
                swatch=index,
                book=BOOK,
            ),
            int(row["nodes"]),
        )
        for index, row in enumerate(rows)
    ]


def _people(tenants: dict[str, Tenant]) -> None:
    demo_user_create(
        username="rosa",
        first_name="Rosa",
        last_name="Researcher",
        tenant=tenants["vc-7f04ca"],
        role=Membership.Role.MEMBER,
    )
    demo_user_create(
        username="mara",
        first_name="Mara",
        last_name="Manager",
        tenant=tenants["vc-6214e9"],
        role=Membership.Role.MANAGER,
    )
    demo_user_create(
        username="otto",
        first_name="Otto",
        last_name="Operator",
        tenant=None,
        site_role=User.SiteRole.OPERATOR,
    )
