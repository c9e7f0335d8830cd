"""Tenants' use of their quotas: GPUs in use within a quota, and borrowed GPUs."""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db.models import Q, Sum

from scheduling.models import Lease
from tenants.answers import Answer
from tenants.models import Quota


class QuotaUseRow(Answer, frozen=True, kw_only=True):
    """A tenant's `gpus` of a type by quota, now; `own` of them are in use and `idle` are not.

    `traded`: the part of `own` above `gpus`, which trades of GPU types added, or a quota that has
    since shrunk. `borrowed`: GPUs borrowed from others' idle quota. A tenant without a quota has 0.
    """

    tenant: str
    pool: str
    gpu_type: str
    gpus: int
    own: int
    traded: int
    idle: int
    borrowed: int


def list_quota_use(
    tenants: Collection[int] | None, times: Mapping[int, datetime]
) -> list[QuotaUseRow]:
    """Return tenants' use of pools (id -> pool time), by tenant, pool and type. Two queries.

    Rows of all tenants if `tenants` is None.
    """
    ours = Q() if tenants is None else Q(tenant__in=list(tenants))
    names = ("tenant__slug", "pool__name", "gpu_type__name")
    in_force = Q(pk__in=[])
    for pool_id, at in times.items():
        in_force |= Q(pool=pool_id, valid_from__lte=at) & ~Q(valid_until__lte=at)
    quotas = Quota.objects.filter(ours, in_force).order_by()
    gpus = {
        (tenant, pool, kind): count
        for tenant, pool, kind, count in quotas.values_list(*names, "gpus")
    }
    live = Lease.objects.filter(ours, pool__in=list(times), state__in=Lease.LIVE_STATES)
    sums = live.order_by().values(*names).annotate(Sum("own"), Sum("borrowed"))
    held = {
        (tenant, pool, kind): (own, borrowed)
        for tenant, pool, kind, own, borrowed in sums.values_list(
            *names, "own__sum", "borrowed__sum"
        )
    }
    rows = []
    for key in sorted(gpus.keys() | held.keys()):
        own, borrowed = held.get(key, (0, 0))
        quota = gpus.get(key, 0)
        tenant, pool, kind = key
        rows.append(
            QuotaUseRow(
                tenant=tenant,
                pool=pool,
                gpu_type=kind,
                gpus=quota,
                own=own,
                traded=max(0, own - quota),
                idle=max(0, quota - own),
                borrowed=borrowed,
            )
        )
    return rows
