"""Pages of quotas, newest first, and the quotas in force that are not lent completely."""

from collections.abc import Collection
from datetime import datetime

from evenshare_core.domain.entitlements import Entitlement, Mode, effective_quotas
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.sharing.settings import narrowed, sharing_rules
from tenants.answers import Answer, answer_of
from tenants.models import Quota
from tenants.scopes import site_reading
from tenants.selectors.quotas import quotas_in_force


class QuotaRow(Answer, frozen=True):
    """A quota over a period of pool time."""

    tenant: str
    pool: str
    gpu_type: str
    gpus: int
    mode: str
    borrow_limit: int | None
    lend_limit: int | None
    valid_from: datetime
    valid_until: datetime | None


def list_quotas(
    tenants: Collection[int] | None, *, pool: str, before: int | None, limit: int
) -> tuple[list[QuotaRow], int | None]:
    """Return a page of tenants' quotas and the key of the next page, None on the last page.

    All tenants' quotas if `tenants` is None. A single query.
    """
    rows = Quota.objects.select_related("tenant", "pool", "gpu_type").order_by("-id")
    if tenants is not None:
        rows = rows.filter(tenant__in=list(tenants))
    if pool:
        rows = rows.filter(pool__name=pool)
    if before is not None:
        rows = rows.filter(id__lt=before)
    page = list(rows[: limit + 1])
    shown = [
        answer_of(
            QuotaRow,
            row,
            tenant=row.tenant.slug,
            pool=row.pool.name,
            gpu_type=row.gpu_type.name,
        )
        for row in page[:limit]
    ]
    return shown, page[limit - 1].pk if len(page) > limit else None


def counted_quotas(pool_id: int, tenant_id: int, at: datetime) -> dict[str, int]:
    """Return the GPUs as which a tenant's quotas count, by type. Two queries.

    They are fewer if all tenants' quotas exceed the GPUs that are up.
    """
    by_type: dict[int, dict[int, int]] = {}
    with site_reading():
        quotas = quotas_in_force(pool_id, at).order_by("tenant_id")
        for gpu_type, tenant, gpus in quotas.values_list("gpu_type_id", "tenant_id", "gpus"):
            by_type.setdefault(gpu_type, {})[tenant] = gpus
    counted: dict[str, int] = {}
    for kind in type_capacities(pool_id):
        asked = by_type.get(kind.id, {})
        scaled = dict(zip(asked, effective_quotas([*asked.values()], kind.gpus), strict=True))
        if tenant_id in scaled:
            counted[kind.name] = scaled[tenant_id]
    return counted


def kept_quotas(pool_id: int, at: datetime) -> dict[tuple[int, str], Entitlement]:
    """Return the quotas in force whose idle GPUs are not all lent. Two queries.

    The keys are tenant and GPU type, because a tenant may lend its GPUs of one type and keep those
    of another. The quotas are limited by the tenants' own settings, and by their offers at the last
    posted price.
    """
    rows = quotas_in_force(pool_id, at).values_list(
        "tenant_id", "gpu_type__name", "gpus", "mode", "lend_limit"
    )
    bounds = [
        Entitlement(tenant, gpu_type, gpus, Mode(mode), lend_limit=lends)
        for tenant, gpu_type, gpus, mode, lends in rows
    ]
    return {
        (row.tenant, row.gpu_type): row
        for row in narrowed(bounds, sharing_rules(pool_id, at))
        if row.mode is Mode.RESERVE or row.lend_limit is not None
    }
