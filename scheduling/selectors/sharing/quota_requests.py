"""Requests for quota as pages and REST show them, newest first."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated
from uuid import UUID

from django.db.models import Count, QuerySet, Value
from django.db.models.functions import Coalesce

from tenants.answers import Answer, Hidden, about, one_of
from tenants.models import QuotaChangeRequest

State = QuotaChangeRequest.State


class QuotaChangeRow(Answer, frozen=True, rename={"uid": "id"}):
    """A tenant's request for a quota, and its decision."""

    uid: UUID
    tenant: str
    pool: str
    gpu_type: str
    gpus: Annotated[int, about("GPUs of the requested quota.")]
    quota: Annotated[int, about("GPUs of the quota at the time of the request.")]
    until: Annotated[datetime | None, about("End of the quota, in pool time; null: no end.")]
    reason: str
    state: Annotated[str, one_of(*State.values)]
    asked_by: str
    asked_at: Annotated[datetime, about("Wall time.")]
    approved_gpus: Annotated[int | None, about("GPUs of the approved quota; null: not approved.")]
    decided_by: str
    decided_at: Annotated[datetime | None, about("Wall time.")]
    answer: str
    tenant_name: Hidden[str]

    @property
    def is_open(self) -> bool:
        """Return whether it waits for a decision."""
        return self.state == State.OPEN


def list_quota_requests(
    tenants: Collection[int] | None,
    *,
    pool: str = "",
    state: str = "",
    before: int | None = None,
    limit: int,
) -> tuple[list[QuotaChangeRow], int | None]:
    """Return the newest requests of tenants (all if None), and the key of the next page.

    The key is None on the last page. A single query.
    """
    rows = QuotaChangeRequest.objects.order_by("-id")
    if tenants is not None:
        rows = rows.filter(tenant_id__in=list(tenants))
    if pool:
        rows = rows.filter(pool__name=pool)
    if state:
        rows = rows.filter(state=state)
    if before is not None:
        rows = rows.filter(id__lt=before)
    page = _rows(rows[: limit + 1])
    more = page[limit - 1][0] if len(page) > limit else None
    return [row for _, row in page[:limit]], more


def quota_request_row(uid: UUID) -> QuotaChangeRow | None:
    """Return the request with this id, or None. A single query."""
    return next((row for _, row in _rows(QuotaChangeRequest.objects.filter(uid=uid))), None)


def find_quota_request(
    uid: UUID, tenants: Collection[int] | None = None
) -> QuotaChangeRequest | None:
    """Return a request of tenants (all if None) with its tenant, pool and type, or None.

    A single query.
    """
    rows = QuotaChangeRequest.objects.select_related("tenant", "pool", "gpu_type").filter(uid=uid)
    return (rows if tenants is None else rows.filter(tenant_id__in=list(tenants))).first()


def count_open_requests(tenant_id: int | None = None) -> dict[int, int]:
    """Return the number of open requests of each pool that has any. A single query.

    Requests are of one tenant, or of all tenants if it is None.
    """
    requests = QuotaChangeRequest.objects.filter(state=State.OPEN)
    if tenant_id is not None:
        requests = requests.filter(tenant_id=tenant_id)
    rows = requests.order_by().values("pool")
    return dict(rows.annotate(count=Count("id")).values_list("pool", "count"))


def _rows(requests: QuerySet[QuotaChangeRequest]) -> list[tuple[int, QuotaChangeRow]]:
    rows = requests.values_list(
        *("pk", "uid", "tenant__slug", "pool__name", "gpu_type__name", "gpus", "quota_gpus"),
        *("until", "reason", "state", "asked_by__username", "asked_at", "approved_gpus"),
        *(Coalesce("decided_by__username", Value("")), "decided_at", "answer", "tenant__name"),
    )
    return [(key, QuotaChangeRow(*values)) for key, *values in rows]
