"""Texts about the tenants that verify a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.charts.figures import plural, thousands
from portal.common.verify import DIGITS, came_out, stretch
from scheduling.selectors.rounds.verifications import SaidVerification


@dataclass(frozen=True, slots=True)
class VerifyingTenant:
    """A tenant's last verification: its subject, the head, and the result. Times are wall time."""

    tenant: str
    said_at: datetime
    what: str
    checked: str
    head: str
    outcome: str
    is_wrong: bool


def verify_title(rows: Sequence[SaidVerification], tenants: int) -> str:
    """Return how many tenants verify, as a heading."""
    if not tenants:
        return "No tenant has quota yet"
    verifying = len({row.tenant_id for row in rows})
    return f"{thousands(verifying)} of {plural(tenants, 'tenant')} verified"


def verify_rows(rows: Sequence[SaidVerification]) -> list[VerifyingTenant]:
    """Return the table's rows, in the given order."""
    return [
        VerifyingTenant(
            tenant=row.tenant_name,
            said_at=row.said_at,
            what=_what(row),
            checked=plural(row.checked, "round" if row.last is not None else "amount"),
            head=f"{plural(row.size, 'round')}, {row.root[:DIGITS]}…",
            outcome=came_out(row),
            is_wrong=row.findings > 0,
        )
        for row in rows
    ]


def _what(row: SaidVerification) -> str:
    if row.first is not None and row.last is not None:
        return f"up to round {thousands(row.last)}, from {thousands(row.first)}"
    return f"statement, {stretch(row)}"
