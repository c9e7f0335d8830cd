"""Texts about the tenants that verify a pool."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from portal.charts.figures import plural, thousands
from portal.common.verify import came_out, stretch
from scheduling.selectors.rounds.verifications import SaidVerification


def verify_title(rows: Sequence[SaidVerification], tenants: int) -> str:
    """Return how many tenants verify, as a heading."""
    if not tenants:
        return _("No tenant has quota yet")
    verifying = len({row.tenant_id for row in rows})
    return _("{verifying} of {tenants} verified").format(
        verifying=thousands(verifying), tenants=plural(tenants, "tenant")
    )


def verify_rows(rows: Sequence[SaidVerification]) -> list[tuple[SaidVerification, str, str, str]]:
    """Return each verification with its subject, the recomputed parts, and the result."""
    return [(row, _what(row), _checked(row), came_out(row)) for row in rows]


def _checked(row: SaidVerification) -> str:
    return plural(row.checked, "amount") if row.last is None else plural(row.checked, "round")


def _what(row: SaidVerification) -> str:
    if row.first is not None and row.last is not None:
        return _("up to round {last}, from {first}").format(
            last=thousands(row.last), first=thousands(row.first)
        )
    return _("statement, {period}").format(period=stretch(row))
