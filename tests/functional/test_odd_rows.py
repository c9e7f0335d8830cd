"""Test damaged rows: the database refuses one, or every page that reads it still works."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from django.db import transaction

from tests.functional.odd_rows import (
    Asker,
    Damage,
    damages,
    damages_by_number,
    guards_off,
    is_written,
)
from tests.functional.turns import TURNS, dealt, some_turns
from tests.functional.two_tenants import Pair
from tests.plugin import Services


class TestDamagedRow:
    @pytest.mark.parametrize("turn", some_turns(1))
    def test_is_rejected_or_breaks_no_page(self, pair: Pair, services: Services, turn: int) -> None:
        asker = Asker(pair)
        assert swept(asker, damages(asker), services, turn) > 50

    @pytest.mark.soak
    @pytest.mark.parametrize("turn", range(TURNS))
    def test_damaged_number_breaks_no_page(self, pair: Pair, services: Services, turn: int) -> None:
        asker = Asker(pair)
        assert swept(asker, damages_by_number(asker), services, turn) > 10


def swept(asker: Asker, every: Iterable[Damage], services: Services, turn: int) -> int:
    """Write each value and request the pages; return how many values the database refused."""
    wrong, refused = [], 0
    with guards_off(services):
        for row, damage in enumerate(every):
            for change in dealt(damage.changes, row, turn):
                with transaction.atomic():
                    if not is_written(damage.table, change):
                        refused += 1
                        continue
                    wrong += [
                        f"{damage.table} {dict(change)}: {path}"
                        for path in damage.paths
                        if asker.status(path) >= 500
                    ]
                    transaction.set_rollback(True)
    assert not wrong, "\n".join(wrong)
    return refused
