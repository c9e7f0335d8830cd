"""Verifications that clients reported, and the head that can be verified."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated
from uuid import UUID

from scheduling.models import Verification
from tenants.answers import Answer, Hidden, answer_of, one_of
from tenants.models import Tenant
from tenants.transparency import DamagedLogError, round_log
from tenants.transparency.log import newest_root


class SaidVerification(Answer, frozen=True):
    """A verification as a client reported it; the portal does not rely on it.

    `said_at`: wall time.
    """

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
    since: datetime | None  # `since` and `until`: pool time
    until: datetime | None
    checked: int
    findings: int
    unproven: int | None
    client: str


def log_head(pool: str) -> tuple[int, str]:
    """Return the number of records in a pool's log, and their root in hex. Two queries.

    The root is empty if it cannot be computed.
    """
    try:
        size, root = newest_root(round_log(pool))
    except DamagedLogError:
        return 0, ""
    return size, root.hex()


def last_verification(
    user_id: int, pool_id: int, kind: str, *, tenant_id: int | None = None
) -> SaidVerification | None:
    """Return the last verification by a user's client, or None. A single query.

    `tenant_id`: only verifications for this tenant; for any tenant if None.
    """
    rows = Verification.objects.filter(user_id=user_id, pool_id=pool_id, kind=kind)
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    row = rows.select_related("tenant", "pool").order_by("-id").first()
    return None if row is None else said_verification(row, row.tenant, row.pool.name)


def verifying_tenants(pool_id: int, tenant_ids: Collection[int]) -> list[SaidVerification]:
    """Return each tenant's last verifications of rounds and of statements, by name."""
    rows = Verification.objects.filter(pool_id=pool_id, tenant_id__in=tenant_ids)
    newest = rows.order_by("tenant_id", "kind", "-id").distinct("tenant_id", "kind")
    said = [
        said_verification(row, row.tenant, row.pool.name)
        for row in newest.select_related("tenant", "pool")
    ]
    return sorted(said, key=lambda row: (row.tenant_name, row.tenant_id, row.kind))


def said_verification(row: Verification, tenant: Tenant, pool: str) -> SaidVerification:
    """Convert a verification to the form that pages and the API show."""
    return answer_of(
        SaidVerification, row, id=row.uid, tenant=tenant.slug, tenant_name=tenant.name, pool=pool
    )
