"""The demo's second pool, `local`: jobs run as real processes on this very machine."""

from __future__ import annotations

import sys

from django.conf import settings

from billing.models import Book
from portal.embedded.slots import probe
from scheduling.engine.clock import wall_now
from scheduling.models import GpuType, Node, Pool, PriceSetting
from scheduling.services.pool_creation import open_pool
from tenants.models import Quota, Tenant
from tenants.services.tenants import create_tenant

NAME = "local"
POLICY = "ltgf"
NODE = "this-machine"
TENANTS = ("vc-6214e9", "vc-7f04ca")


def seed_local() -> bool:
    """Make the pool `local`, shared by two tenants of the demo; False where it is not made.

    On Linux only: the executor finds and ends processes through /proc. Short leases, so that a
    newcomer sees a job yield and resume within a minute.
    """
    tenants = list(Tenant.objects.filter(slug__in=TENANTS).order_by("slug"))
    exists = Pool.objects.filter(name=NAME).exists()
    if exists or len(tenants) != len(TENANTS) or sys.platform != "linux":
        return False
    slots = probe()
    Book.objects.get_or_create(
        slug=NAME, defaults={"currency": "local credit", "clock_domain": Book.ClockDomain.REAL}
    )
    gpu_type, _ = GpuType.objects.get_or_create(name=slots.gpu_type)
    pool = Pool.objects.create(
        name=NAME,
        executor="local",
        policy=POLICY,
        book=NAME,
        round_s=2,
        lease_s=20,
        grace_s=5,
        on_demand=True,
        source_dir=str(settings.BASE_DIR),
    )
    begin = wall_now()
    open_pool(pool, begin, scale=1)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type)
    Node.objects.create(pool=pool, name=NODE, gpu_type=gpu_type, gpus=slots.count)
    for index, tenant in enumerate(tenants):
        create_tenant(
            slug=tenant.slug,
            name=tenant.name,
            initials=tenant.initials,
            swatch=tenant.swatch,
            book=NAME,
        )
        # Half each; of an odd number the first has one more.
        gpus = (slots.count + 1 - index) // 2
        if gpus:
            Quota.objects.create(
                tenant=tenant, pool=pool, gpu_type=gpu_type, gpus=gpus, valid_from=begin
            )
    return True
