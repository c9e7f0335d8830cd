"""Small clusters for tests: a pool with nodes, tenants with quotas, and jobs with durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from billing.models import Book
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.rounds import RoundResult, execute_round
from scheduling.engine.seal import seal_rounds
from scheduling.models import GpuType, Job, Node, Pool, PriceSetting, Profile, VirtualWork
from scheduling.services.pool_creation import open_pool
from tenants.models import Quota, Tenant
from tenants.services.tenants import create_tenant
from tests.scope import nobody

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Cluster:
    """A pool with named tenants, on a clock that the test advances."""

    pool: Pool
    gpu_type: GpuType
    tenants: dict[str, Tenant]
    at: datetime = BEGIN

    def submit(
        self, tenant: str, gpus: int, duration_s: int, *, after_s: int = 0, **fields: Any
    ) -> Job:
        """Submit a job at the present pool time, or `after_s` seconds later."""
        job = Job.objects.create(
            pool=self.pool,
            tenant=self.tenants[tenant],
            name=f"{tenant}-{gpus}",
            submitted_at=self.at + timedelta(seconds=after_s),
            gpus=gpus,
            **fields,
        )
        VirtualWork.objects.create(job=job, duration_us=duration_s * SECOND_US)
        return job

    def add_type(self, name: str, *, nodes: int, gpus: int, quotas: Mapping[str, int]) -> GpuType:
        """Add equal nodes of another GPU type, with a quota of this type for each named tenant."""
        gpu_type, _ = GpuType.objects.get_or_create(name=name)
        PriceSetting.objects.create(pool=self.pool, gpu_type=gpu_type)
        Node.objects.bulk_create(
            [
                Node(pool=self.pool, name=f"{name}-{i:02d}", gpu_type=gpu_type, gpus=gpus)
                for i in range(nodes)
            ]
        )
        for slug, quota in quotas.items():
            Quota.objects.create(
                tenant=self.tenants[slug],
                pool=self.pool,
                gpu_type=gpu_type,
                gpus=quota,
                valid_from=BEGIN,
            )
        return gpu_type

    def profile(self, tenant: str, name: str, **speedups: int) -> Profile:
        """Declare a job type by its speeds, in thousandths of the speed on the slowest GPU type."""
        return Profile.objects.create(
            tenant=self.tenants[tenant], pool=self.pool, name=name, speedups=speedups
        )

    def now(self) -> PoolNow:
        """Return the reading of the pool's clock at its present time."""
        return PoolNow(self.at, self.at, 1, paused=False)

    def round(self, *, after_s: int = 0, **options: Any) -> RoundResult:
        """Advance the clock and run the due round."""
        self.at += timedelta(seconds=after_s)
        with nobody():
            return execute_round(self.pool.pk, now=self.now(), **options)

    def seal(self) -> int:
        """Seal all unsealed rounds, as a worker does; return their number."""
        with nobody():
            return sum(iter(lambda: seal_rounds(self.pool.pk), 0))

    def rounds(self, count: int, *, every_s: int) -> list[RoundResult]:
        """Run several rounds, the first one now."""
        return [self.round(after_s=every_s if i else 0) for i in range(count)]


def cluster(
    quotas: Mapping[str, int],
    *,
    nodes: int = 2,
    gpus: int = 4,
    begin: datetime = BEGIN,
    **pool_fields: Any,
) -> Cluster:
    """Make a pool of equal nodes and one tenant per quota (in GPUs); its time starts at `begin`."""
    Book.objects.get_or_create(
        slug="main", defaults={"currency": "credit", "clock_domain": Book.ClockDomain.REAL}
    )
    gpu_type, _ = GpuType.objects.get_or_create(name="v100")
    fields = {"round_s": 10, "lease_s": 900, **pool_fields}
    pool = Pool.objects.create(name=f"pool-{Pool.objects.count() + 1}", **fields)
    open_pool(pool, begin, scale=1)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type)
    Node.objects.bulk_create(
        [Node(pool=pool, name=f"n{i:04d}", gpu_type=gpu_type, gpus=gpus) for i in range(nodes)]
    )
    tenants: dict[str, Tenant] = {}
    for index, (slug, quota) in enumerate(quotas.items()):
        tenants[slug] = create_tenant(
            slug=slug, name=slug, initials=slug[:2].upper(), swatch=index, book=pool.book
        )
        if quota:
            Quota.objects.create(
                tenant=tenants[slug], pool=pool, gpu_type=gpu_type, gpus=quota, valid_from=begin
            )
    return Cluster(pool, gpu_type, tenants, begin)
