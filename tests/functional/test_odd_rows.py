"""A damaged row: the database refuses it, or every page that reads it stands."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.functional.odd_rows import Asker, columns, guards_off, is_written
from tests.functional.turns import dealt, some_turns
from tests.functional.two_tenants import Pair
from tests.plugin import Services


class TestADamagedRow:
    @pytest.mark.parametrize("turn", some_turns(1))
    def test_is_refused_or_breaks_no_page(self, pair: Pair, services: Services, turn: int) -> None:
        asker = Asker(pair)
        wrong, refused = [], 0
        with guards_off(services):
            for row, column in enumerate(columns(asker)):
                for value in dealt(column.values, row, turn):
                    with transaction.atomic():
                        if not is_written(column, value):
                            refused += 1
                            continue
                        wrong += [
                            f"{column.table}.{column.name} = {value}: {path}"
                            for path in column.paths
                            if asker.status(path) >= 500
                        ]
                        transaction.set_rollback(True)
        assert not wrong, "\n".join(wrong)
        assert refused > 50
