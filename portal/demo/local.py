"""The demo's second pool, `local`: jobs run as real processes on this machine."""

import sys

from portal.demo.machine_pool import make_machine_pool
from portal.embedded.slots import probe
from scheduling.models import GpuType, Node, Pool, PriceSetting
from tenants.models import Quota, Tenant

NAME = "local"
NODE = "this-machine"
TENANTS = ("vc-6214e9", "vc-7f04ca")


def seed_local() -> bool:
    """Make the pool `local`, shared by two tenants of the demo; return whether it was made.

    On Linux only: the executor finds and ends processes through /proc.
    """
    tenants = list(Tenant.objects.filter(slug__in=TENANTS).order_by("slug"))
    exists = Pool.objects.filter(name=NAME).exists()
    if exists or len(tenants) != len(TENANTS) or sys.platform != "linux":
        return False
    slots = probe()
    gpu_type, _ = GpuType.objects.get_or_create(name=slots.gpu_type)
    pool, begin = make_machine_pool(NAME, "local", tenants)
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type)
    Node.objects.create(pool=pool, name=NODE, gpu_type=gpu_type, gpus=slots.count)
    for index, tenant in enumerate(tenants):
        # Each tenant gets half; the first gets the odd GPU.
        gpus = (slots.count + 1 - index) // 2
        if gpus:
            Quota.objects.create(
                tenant=tenant, pool=pool, gpu_type=gpu_type, gpus=gpus, valid_from=begin
            )
    return True
