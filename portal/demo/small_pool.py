"""A small pool of the demo: nodes of one GPU type, some of the demo's tenants, a bundled trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from billing.models import Book
from scheduling.models import GpuType, Node, Pool, PriceSetting, TraceFeed
from scheduling.services.pool_creation import open_pool
from tenants.models import Tenant
from tenants.services.tenants import create_tenant, quotas_from_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallPool:
    """The pool's parameters. `base` is in credits per GPU-hour, `lease_s` is pool time.

    `scale` is pool seconds per wall second, `round_s` is wall time, `hours` is the trace's length.
    """

    name: str
    policy: str
    options: Mapping[str, int]
    gpu_type: str
    nodes: int
    gpus_per_node: int
    base: Decimal
    begin: datetime
    scale: int
    round_s: int
    lease_s: int
    trace: str
    hours: int


def demo_tenants(names: list[str]) -> dict[str, Tenant] | None:
    """Return these tenants of the demo's trace by name, or None if one is missing."""
    slugs = {f"vc-{name}": name for name in names}
    rows = {slugs[row.slug]: row for row in Tenant.objects.filter(slug__in=slugs)}
    return rows if len(rows) == len(names) else None


def make_small_pool(
    spec: SmallPool, tenants: Mapping[str, Tenant], quotas: Mapping[str, int]
) -> Pool:
    """Make the pool with its book, nodes, quotas (GPUs by tenant) and trace."""
    Book.objects.get_or_create(
        slug=spec.name,
        defaults={"currency": f"{spec.name} credit", "clock_domain": Book.ClockDomain.SCALED},
    )
    pool = Pool.objects.create(
        name=spec.name,
        book=spec.name,
        policy=spec.policy,
        options=dict(spec.options),
        round_s=spec.round_s,
        lease_s=spec.lease_s,
        pause_unwatched_s=3600,
    )
    open_pool(pool, spec.begin, scale=spec.scale)
    gpu_type, _ = GpuType.objects.get_or_create(name=spec.gpu_type)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type, base=spec.base)
    Node.objects.bulk_create(
        [
            Node(
                pool=pool,
                name=f"{spec.gpu_type}-{number:02d}",
                gpu_type=gpu_type,
                gpus=spec.gpus_per_node,
            )
            for number in range(1, spec.nodes + 1)
        ]
    )
    for tenant in tenants.values():
        create_tenant(
            slug=tenant.slug,
            name=tenant.name,
            initials=tenant.initials,
            swatch=tenant.swatch,
            book=spec.name,
        )
    quotas_from_weights(
        pool_id=pool.pk,
        gpu_type_id=gpu_type.pk,
        capacity=spec.nodes * spec.gpus_per_node,
        weights={tenants[name].pk: gpus for name, gpus in quotas.items()},
        since=spec.begin,
    )
    TraceFeed.objects.create(
        pool=pool,
        trace=spec.trace,
        started_at=spec.begin,
        length_s=spec.hours * 3600,
        max_pending=60,
    )
    return pool
