"""Reads what people's clients said that they verified, and the head that there is to verify."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from scheduling.models import Verification
from tenants.transparency import DamagedLogError, round_log
from tenants.transparency.log import newest_root


@dataclass(frozen=True, slots=True)
class ShownHead:
    """How many records a pool's log has, and their root in hex; "" where it cannot be proven."""

    size: int
    root: str


@dataclass(frozen=True, slots=True)
class SaidVerification:
    """A verification as a client said it. `said_at`: wall time; `since`, `until`: pool time."""

    tenant_id: int
    tenant: str
    kind: str
    said_at: datetime
    size: int
    root: str
    first: int | None
    last: int | None
    since: datetime | None
    until: datetime | None
    checked: int
    findings: int
    unproven: int | None


_COLUMNS = (
    "tenant_id", "tenant__name", "kind", "said_at", "size", "root", "first", "last", "since",
    "until", "checked", "findings", "unproven",
)  # fmt: skip # a table


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
    row = rows.order_by("-id").values_list(*_COLUMNS).first()
    return None if row is None else SaidVerification(*row)


def verifying_tenants(pool_id: int, tenant_ids: Collection[int]) -> list[SaidVerification]:
    """Return what was said last of each tenant, of rounds and of statements, by name. One query."""
    rows = Verification.objects.filter(pool_id=pool_id, tenant_id__in=tenant_ids)
    newest = rows.order_by("tenant_id", "kind", "-id").distinct("tenant_id", "kind")
    said = [SaidVerification(*row) for row in newest.values_list(*_COLUMNS)]
    return sorted(said, key=lambda row: (row.tenant, row.tenant_id, row.kind))
