"""Test how many missing leases are too many to be credible."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.engine.missing import is_mass_disappearance, unheard


class TestMissingLeases:
    @pytest.mark.parametrize(
        ("missing", "launched", "is_mass"),
        [
            *((0, 0, False), (1, 1, False), (2, 2, False)),
            *((3, 3, True), (3, 14, True), (3, 15, False), (3, 16, False)),
            *((200, 1000, False), (201, 1000, True)),
        ],
    )
    def test_are_mass_disappearance_above_a_fifth_and_from_three(
        self, missing: int, launched: int, *, is_mass: bool
    ) -> None:
        assert is_mass_disappearance(missing, launched) is is_mass


class TestTimeSinceLastListing:
    @pytest.mark.parametrize(
        ("gap_s", "round_s", "unheard_s"),
        [
            *((0, 10, 0), (10, 10, 0), (60, 10, 0)),
            # The clock was set an hour ahead, or the machine slept.
            *((3610, 10, 3550), (3610, 300, 3010)),
            # The clock was set back.
            (-590, 10, -590),
        ],
    )
    def test_counts_as_silence_beyond_tolerance(
        self, gap_s: int, round_s: int, unheard_s: int
    ) -> None:
        heard = unheard(timedelta(seconds=gap_s), round_s)
        assert heard == timedelta(seconds=unheard_s)
