"""Texts about the tenants that verify a pool."""

from collections.abc import Sequence

from portal.charts.figures import plural, thousands
from portal.common.verify import came_out, stretch
from scheduling.selectors.rounds.verifications import SaidVerification


def verify_title(rows: Sequence[SaidVerification], tenants: int) -> str:
    """Return how many tenants verify, as a heading."""
    if not tenants:
        return "No tenant has quota yet"
    verifying = len({row.tenant_id for row in rows})
    return f"{thousands(verifying)} of {plural(tenants, 'tenant')} verified"


def verify_rows(rows: Sequence[SaidVerification]) -> list[tuple[SaidVerification, str, str, str]]:
    """Return each verification with its subject, the recomputed parts, and the result."""
    return [(row, _what(row), plural(row.checked, _unit(row)), came_out(row)) for row in rows]


def _unit(row: SaidVerification) -> str:
    return "round" if row.last is not None else "amount"


def _what(row: SaidVerification) -> str:
    if row.first is not None and row.last is not None:
        return f"up to round {thousands(row.last)}, from {thousands(row.first)}"
    return f"statement, {stretch(row)}"
