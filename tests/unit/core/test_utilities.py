"""Test utilities of jobs: forms, bounds and exact numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenshare_core.domain.utilities import (
    MOST_MICRO,
    MOST_POWER_MICRO,
    NUMBERS,
    Utility,
    UtilityError,
    UtilityKind,
    exact_convex_micro,
    read_utility,
    utility_data,
    utility_text,
)
from evenshare_core.units import CREDIT_MICRO, HOUR_US

LINEAR = {"kind": "linear", "k": "-2", "g": "100"}
CONVEX = {"kind": "convex", "e": "100", "kappa": "1.5"}
BID = {"kind": "bid", "per_gpu_hour": "0.8"}


class TestUtility:
    def test_linear_starts_at_g_and_changes_by_k_per_hour(self) -> None:
        """The paper's example: f = -2 t + 100."""
        utility = read_utility(7, LINEAR)
        assert utility == Utility(7, UtilityKind.LINEAR, 100 * CREDIT_MICRO, -2 * CREDIT_MICRO)
        assert utility.value_micro(2 * HOUR_US, 0) == 96 * CREDIT_MICRO
        assert utility.value_micro(60 * HOUR_US, 0) == -20 * CREDIT_MICRO

    def test_linear_loss_is_limited_to_amount_range(self) -> None:
        """A loss of a billion per hour for twelve years would exceed the range of amounts."""
        utility = read_utility(1, {"kind": "linear", "k": "-1000000000", "g": "1"})
        assert utility.value_micro(12 * 8766 * HOUR_US, 0) == -MOST_MICRO

    def test_convex_is_e_over_t_to_the_power_kappa(self) -> None:
        utility = read_utility(7, CONVEX)
        assert utility.value_micro(100 * HOUR_US, 0) == CREDIT_MICRO
        assert utility.value_micro(25 * HOUR_US, 0) == 8 * CREDIT_MICRO
        assert utility.value_micro(0, 0) == MOST_MICRO
        assert utility.value_micro(1, 0) == MOST_MICRO

    def test_bid_value_is_independent_of_end(self) -> None:
        utility = read_utility(7, BID)
        assert utility.value_micro(1, 5 * HOUR_US) == 4 * CREDIT_MICRO
        assert utility.value_micro(99 * HOUR_US, 5 * HOUR_US) == 4 * CREDIT_MICRO

    @given(
        st.integers(1, MOST_MICRO),
        st.integers(1, MOST_POWER_MICRO),
        st.integers(1, 10**5 * HOUR_US),
    )
    @example(CREDIT_MICRO, CREDIT_MICRO, 2 * CREDIT_MICRO * HOUR_US)  # a tie rounds to even
    @example(3 * CREDIT_MICRO, CREDIT_MICRO, 2 * CREDIT_MICRO * HOUR_US)
    def test_convex_matches_decimal_computation(
        self, scale_micro: int, power_micro: int, after_us: int
    ) -> None:
        utility = Utility(1, UtilityKind.CONVEX, scale_micro, power_micro)
        assert utility.value_micro(after_us, 0) == exact_convex_micro(
            scale_micro, power_micro, after_us
        )

    @given(st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 10**13))
    def test_convex_matches_float_computation_within_precision(
        self, scale: int, power: int, after_us: int
    ) -> None:
        utility = Utility(1, UtilityKind.CONVEX, scale, power)
        exponent = power / 1e6 * math.log(scale / 1e6 / (after_us / HOUR_US))
        expected = min(MOST_MICRO, math.exp(min(exponent, 60)) * 1e6)
        assert math.isclose(utility.value_micro(after_us, 0), expected, rel_tol=1e-9, abs_tol=1)

    @given(st.sampled_from(UtilityKind), st.integers(1, 10**9), st.integers(0, 10**7))
    def test_round_trips_as_data_and_text(self, kind: UtilityKind, scale: int, rate: int) -> None:
        signed = {UtilityKind.LINEAR: -rate, UtilityKind.CONVEX: rate + 1 if rate < 10**7 else rate}
        utility = Utility(3, kind, scale, signed.get(kind, 0))
        assert read_utility(3, utility_data(utility)) == utility
        assert read_utility(3, utility_text(utility)) == utility

    @given(st.sampled_from(UtilityKind), st.integers(1, 10**9), st.integers(1, 10**7))
    def test_value_never_increases_with_time(
        self, kind: UtilityKind, scale: int, rate: int
    ) -> None:
        rate = -rate if kind is UtilityKind.LINEAR else rate
        utility = Utility(3, kind, scale, rate)
        values = [utility.value_micro(hours * HOUR_US, HOUR_US) for hours in range(1, 9)]
        assert values == sorted(values, reverse=True)


class TestInput:
    @pytest.mark.parametrize(
        ("raw", "field"),
        [
            (None, ""),
            ([], ""),
            ({}, "kind"),
            ({"kind": "steep"}, "kind"),
            ({"kind": "linear", "k": "-2"}, "g"),
            ({**LINEAR, "k": "2"}, "k"),
            ({**LINEAR, "g": "0"}, "g"),
            ({**LINEAR, "g": "0.0000001"}, "g"),
            ({**LINEAR, "g": float("nan")}, "g"),
            ({**LINEAR, "g": Decimal("1e999999999")}, "g"),
            ({**LINEAR, "g": Decimal("0e-999999999"), "x": 1}, "x"),
            ({**LINEAR, "g": True}, "g"),
            ({**LINEAR, "e": "1"}, "e"),
            ({**CONVEX, "kappa": "11"}, "kappa"),
            ({**CONVEX, "kappa": "0"}, "kappa"),
            ({**CONVEX, "e": "-1"}, "e"),
            ({**BID, "per_gpu_hour": "-0.5"}, "per_gpu_hour"),
            ({**BID, "per_gpu_hour": "99999999999"}, "per_gpu_hour"),
            ({**LINEAR, "k": "-99999999999"}, "k"),
            ("", "kind"),
            ("bid", "per_gpu_hour"),
            ("bid 0.8", ""),
            ("bid per_gpu_hour=0.8 per_gpu_hour=0.9", ""),
        ],
    )
    def test_error_names_field_and_gives_hint(self, raw: Any, field: str) -> None:
        with pytest.raises(UtilityError) as refused:
            read_utility(1, raw)
        assert refused.value.field == field
        assert refused.value.reason
        assert refused.value.hint

    def test_accepts_json_numbers(self) -> None:
        raw = {"kind": "linear", "k": -1.5, "g": 100}
        assert utility_data(read_utility(1, raw)) == {"kind": "linear", "g": "100", "k": "-1.5"}
        assert utility_text(read_utility(1, raw)) == "linear g=100 k=-1.5"

    def test_every_kind_declares_its_numbers(self) -> None:
        assert set(NUMBERS) == set(UtilityKind)
