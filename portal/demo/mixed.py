"""The demo's pools `mixed` and `trades`: some jobs gain much from the newest of three GPU types.

Both have the same GPUs, tenants and trace. In `trades`, tenants exchange GPU types (Gandiva_fair).

GPU numbers have the proportions of the cluster of Gandiva_fair 5.4 (64 K80, 24 P100, 12 V100),
halved. The models' speeds are published ones (portal/demo/data/README.md).
"""

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from billing.models import Book
from evenshare_core.domain.profiles import speedups_normal
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import SECOND_US
from portal.demo.data import DATA
from portal.demo.mixed_trace import HOURS, TEAMS
from scheduling.models import GpuType, Node, Pool, PriceSetting, Profile, TraceFeed, VirtualSpeeds
from scheduling.services.pool_creation import open_pool
from tenants.models import Tenant
from tenants.services.tenants import create_tenant, quotas_from_weights

BEGIN = datetime(2020, 4, 27, 8, tzinfo=UTC)
SCALE, ROUND_S = 60, 10
# The papers give only ratios, so an iteration is defined as one second of work on the slowest type.
ITERATION_US = SECOND_US
# Policies in order of preference, by pool, which uses the first one that is installed.
PREFERRED = {"mixed": ("oef", "ltgf"), "trades": ("gandiva_fair", "ltgf")}

# Published speeds, in reading order; the first file wins if both have a name.
SPEED_FILES = ("gandiva_fair_speedups.csv", "gavel_throughputs.csv")
_UNNAMED = re.compile(r"[^a-z0-9]+")


class DemoGpuType(NamedTuple):
    """A GPU type of the pool; `rank` 0 is the slowest, `base` is the base price in credits."""

    name: str
    rank: int
    nodes: int
    gpus: int
    base: Decimal


GPU_TYPES = (
    DemoGpuType("k80", 0, 8, 4, Decimal("0.25")),
    DemoGpuType("p100", 1, 3, 4, Decimal("0.75")),
    DemoGpuType("v100", 2, 3, 2, Decimal("1.25")),
)


def seed_mixed(name: str) -> bool:
    """Make a pool of `PREFERRED`, shared by five tenants; return whether it was made."""
    slugs = [f"vc-{team.tenant}" for team in TEAMS]
    tenants = {row.slug: row for row in Tenant.objects.filter(slug__in=slugs)}
    if Pool.objects.filter(name=name).exists() or len(tenants) != len(slugs):
        return False
    Book.objects.get_or_create(
        slug=name, defaults={"currency": f"{name} credit", "clock_domain": Book.ClockDomain.SCALED}
    )
    pool = Pool.objects.create(
        name=name,
        book=name,
        policy=next(one for one in PREFERRED[name] if one in POLICIES),
        round_s=ROUND_S,
        lease_s=1800,
        # Under policies that serve tenants in turns, a turn may last only one round.
        least_lease_s=ROUND_S * SCALE,
        pause_unwatched_s=3600,
    )
    open_pool(pool, BEGIN, scale=SCALE)
    weights = {}
    for team in TEAMS:
        tenant = tenants[f"vc-{team.tenant}"]
        create_tenant(
            slug=tenant.slug,
            name=tenant.name,
            initials=tenant.initials,
            swatch=tenant.swatch,
            book=name,
        )
        weights[tenant.pk] = team.quota
        _profiles(pool, tenant, team.models)
    for demo_type in GPU_TYPES:
        _gpus(pool, demo_type, weights)
    TraceFeed.objects.create(
        pool=pool, trace="mixed_24h", started_at=BEGIN, length_s=HOURS * 3600, max_pending=60
    )
    return True


def _profiles(pool: Pool, tenant: Tenant, models: tuple[str, ...]) -> None:
    """Make job types with published speeds, which are both declared and true in the demo."""
    types = {demo_type.name for demo_type in GPU_TYPES}
    for model in models:
        speeds = {name: one for name, one in published_speeds()[model].items() if name in types}
        profile = Profile.objects.create(
            tenant=tenant, pool=pool, name=model, speedups=speeds, declared=speeds,
            source=Profile.Source.PUBLISHED,
        )  # fmt: skip # rows of what belongs together
        VirtualSpeeds.objects.create(
            profile=profile, tenant=tenant, speedups=speeds, iteration_us=ITERATION_US
        )


def _gpus(pool: Pool, demo_type: DemoGpuType, weights: dict[int, int]) -> None:
    gpu_type, _ = GpuType.objects.get_or_create(
        name=demo_type.name, defaults={"rank": demo_type.rank}
    )
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type, base=demo_type.base)
    Node.objects.bulk_create(
        [
            Node(
                pool=pool, name=f"{demo_type.name}-{n:02d}", gpu_type=gpu_type, gpus=demo_type.gpus
            )
            for n in range(1, demo_type.nodes + 1)
        ]
    )
    quotas_from_weights(
        pool_id=pool.pk,
        gpu_type_id=gpu_type.pk,
        capacity=demo_type.nodes * demo_type.gpus,
        weights=weights,
        since=BEGIN,
    )


@lru_cache(maxsize=1)
def published_speeds() -> Mapping[str, Mapping[str, int]]:
    """Return model -> GPU type -> thousandths of its speed on its slowest type.

    Names are slugs: "ResNet-18 (batch size 64)" is `resnet-18-64`.
    """
    by_model: dict[str, Mapping[str, int]] = {}
    for name in SPEED_FILES:
        for model, speeds in _speed_rows(name):
            by_model.setdefault(model, speedups_normal(speeds))
    return by_model


def _speed_rows(name: str) -> Iterator[tuple[str, dict[str, Fraction]]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            model = row.pop("job_type").lower().replace("batch size ", "")
            yield _UNNAMED.sub("-", model).strip("-"), {k: Fraction(v) for k, v in row.items()}
