"""Test that no state of a pool, a tenant or a job makes a URL fail, for any requester."""

from __future__ import annotations

import pytest

from tests.functional.access_table import TABLE
from tests.functional.crawl import failures, looks
from tests.functional.odd_stage import ROLES, OddStage, odd_stage
from tests.functional.turns import dealt, some_turns
from tests.stages import staged

there = staged(odd_stage)


class TestUrls:
    @pytest.mark.parametrize("turn", some_turns(1))
    def test_never_fail_in_any_state_for_any_role(self, there: OddStage, turn: int) -> None:
        """In each turn, two of the roles request each URL of a state."""
        every = list(looks(there.states))
        assert {look.address for look in every} > {
            address for address, route in TABLE.items() if "{pool}" in route.query
        }
        wrong = [
            failure
            for row, look in enumerate(every)
            for failure in failures(there.client, look, dealt(ROLES, row, turn))
        ]
        assert not wrong, "\n".join(wrong)
