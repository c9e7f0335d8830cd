"""Reads what people's clients said that they verified, and the head that there is to verify."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from scheduling.models import Verification
from tenants.answers import Answer, Hidden, answer_of, one_of
from tenants.models import Tenant
from tenants.transparency import DamagedLogError, round_log
from tenants.transparency.log import newest_root


@dataclass(frozen=True, slots=True)
class ShownHead:
    """How many records a pool's log has, and their root in hex; "" where it cannot be proven."""

    size: int
    root: str


class SaidVerification(Answer, frozen=True):
    """A verification as it was said; nothing is trusted for it. `said_at`: wall time."""

    COMPONENT = "VerificationJson"

    id: UUID
    tenant_id: Hidden[int]
    tenant_name: Hidden[str]
    tenant: str
    pool: str
    said_at: datetime
    kind: Annotated[str, one_of(*Verification.Kind.values)]
    size: int
    root: str
    first: int | None
    last: int | None
    since: datetime | None  # and `until`: pool time
    until: datetime | None
    checked: int
    findings: int
    unproven: int | None
    client: str


def log_head(pool: str) -> ShownHead:
    """Return the head of a pool's log as it is now. Two queries."""
    try:
        size, root = newest_root(round_log(pool))
    except DamagedLogError:
        return ShownHead(0, "")
    return ShownHead(size, root.hex())


def last_verification(
    user_id: int, pool_id: int, kind: str, *, tenant_id: int | None = None
) -> SaidVerification | None:
    """Return what a person's client said last, of one tenant or any; None: nothing. One query."""
    rows = Verification.objects.filter(user_id=user_id, pool_id=pool_id, kind=kind)
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    row = rows.select_related("tenant", "pool").order_by("-id").first()
    return None if row is None else said_verification(row, row.tenant, row.pool.name)


def verifying_tenants(pool_id: int, tenant_ids: Collection[int]) -> list[SaidVerification]:
    """Return what was said last of each tenant, of rounds and of statements, by name. One query."""
    rows = Verification.objects.filter(pool_id=pool_id, tenant_id__in=tenant_ids)
    newest = rows.order_by("tenant_id", "kind", "-id").distinct("tenant_id", "kind")
    said = [
        said_verification(row, row.tenant, row.pool.name)
        for row in newest.select_related("tenant", "pool")
    ]
    return sorted(said, key=lambda row: (row.tenant_name, row.tenant_id, row.kind))


def said_verification(row: Verification, tenant: Tenant, pool: str) -> SaidVerification:
    """Return a verification as pages and the API show it."""
    return answer_of(
        SaidVerification, row, id=row.uid, tenant=tenant.slug, tenant_name=tenant.name, pool=pool
    )
