"""How many missing leases are too many to be believed."""

from __future__ import annotations

import pytest

from scheduling.engine.missing import is_mass_disappearance


class TestMissingLeases:
    @pytest.mark.parametrize(
        ("missing", "launched", "is_mass"),
        [
            *((0, 0, False), (1, 1, False), (2, 2, False)),
            *((3, 3, True), (3, 14, True), (3, 15, False), (3, 16, False)),
            *((200, 1000, False), (201, 1000, True)),
        ],
    )
    def test_are_too_many_above_a_fifth_and_from_three_on(
        self, missing: int, launched: int, *, is_mass: bool
    ) -> None:
        assert is_mass_disappearance(missing, launched) is is_mass
