"""Test the names in a statement over several pools of a book."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.selectors.statements import CounterpartyTotal
from portal.ledger.text.statement import ITSELF, OPERATOR, OWN, VisibleNames, most_text
from scheduling.models import Pool
from scheduling.selectors.visibility import Visibility, VisibleTenant

SETTINGS = Pool.Visibility
ME, OTHER = 1, 2


def pool(setting: str, other: str | None, *, all_names: bool = False) -> Visibility:
    """Return a pool's visibility; `other` names the other tenant if that tenant has quota."""
    names = {ME: "north", OTHER: other}
    known = {
        key: VisibleTenant(key, key, name, "", 0) for key, name in names.items() if name is not None
    }
    return Visibility(setting, frozenset({ME}), all_names=all_names, known=known)


FULL, FULL_WITHOUT = pool(SETTINGS.FULL, "south"), pool(SETTINGS.FULL, None)
ALIAS = pool(SETTINGS.PSEUDONYMS, "tenant 2")
OTHER_ALIAS, ALIAS_WITHOUT = pool(SETTINGS.PSEUDONYMS, "tenant 5"), pool(SETTINGS.PSEUDONYMS, None)
HIDES = pool(SETTINGS.OWN, None)
AUDITED, AUDITED_WITHOUT = (pool(SETTINGS.OWN, name, all_names=True) for name in ("south", None))


class TestTenantName:
    @pytest.mark.parametrize(
        ("pools", "name"),
        [
            ([FULL], "south"),
            ([FULL, FULL], "south"),
            ([FULL, FULL_WITHOUT], "south"),
            ([FULL, ALIAS_WITHOUT], "south"),
            ([ALIAS, FULL_WITHOUT], "tenant 2"),
            ([AUDITED, AUDITED_WITHOUT], "south"),
            ([FULL, ALIAS], None),
            ([ALIAS, OTHER_ALIAS], None),
            ([FULL, HIDES], None),
            ([HIDES], None),
            ([FULL_WITHOUT], None),
            ([], None),
        ],
    )
    def test_is_shown_if_no_pool_hides_it(self, pools: list[Visibility], name: str | None) -> None:
        assert VisibleNames(ME, pools).of(OTHER) == name
        assert VisibleNames(ME, pools[::-1]).of(OTHER) == name

    def test_of_own_tenant_and_operator_is_always_shown(self) -> None:
        for pools in ([], [HIDES], [FULL, ALIAS]):
            assert VisibleNames(ME, pools).of(ME) == ITSELF
            assert VisibleNames(ME, pools).of(None) == OPERATOR


class TestMost:
    def test_names_the_largest_amount_of_another(self) -> None:
        def row(name: str, earned: int, paid: int, key: str = "") -> CounterpartyTotal:
            return CounterpartyTotal("usage", 1, name, 1, Decimal(earned), Decimal(paid), key)

        rows = [row("ada", 400, 1), row("bob", 2, 30), row("own", 900, 900, OWN)]
        assert most_text(rows) == "Most was earned from ada: 400.00 credits"
        assert most_text(rows[1:]) == "Most was paid to bob: 30.00 credits"
        assert most_text(rows[2:]) == most_text([row("ada", 0, 0)]) == "By counterparty"
