"""Test fixed-point amounts: they are exact and finite, and never floats."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.fixed_point import (
    LIMIT_MICRO,
    charge_micro,
    largest_remainder,
    round_half_even,
    sum_to_credits,
    sum_to_micro,
    term_charge,
    to_credits,
    to_micro,
    worst_case_micro,
)
from evenshare_core.units import HOUR_US, SECOND_US

AMOUNTS = st.integers(min_value=-LIMIT_MICRO + 1, max_value=LIMIT_MICRO - 1)


class TestConversion:
    @given(AMOUNTS)
    def test_round_trips(self, micro: int) -> None:
        assert to_micro(to_credits(micro)) == micro

    @given(AMOUNTS)
    def test_has_six_decimal_places(self, micro: int) -> None:
        assert to_credits(micro).as_tuple().exponent == -6
        assert Fraction(to_credits(micro)) == Fraction(micro, 1_000_000)

    @given(st.integers(-LIMIT_MICRO * 1000, LIMIT_MICRO * 1000))
    def test_sum_round_trips_at_any_size(self, micro: int) -> None:
        credits_ = sum_to_credits(micro)
        assert Fraction(credits_) == Fraction(micro, 1_000_000)
        assert (sum_to_micro(credits_), credits_.as_tuple().exponent) == (micro, -6)

    @pytest.mark.parametrize("amount", [0.1, 1, "1", None, True])
    def test_to_micro_rejects_non_decimal(self, amount: Any) -> None:
        with pytest.raises(TypeError):
            to_micro(amount)

    @pytest.mark.parametrize("micro", [0.0, 1.5, Decimal(1), "1", True])
    def test_to_credits_rejects_non_int(self, micro: Any) -> None:
        with pytest.raises(TypeError):
            to_credits(micro)

    @pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "0.0000001", "1e14", "-1e14"])
    def test_rejects_amount_that_column_cannot_hold(self, text: str) -> None:
        with pytest.raises(ValueError):
            to_micro(Decimal(text))

    @pytest.mark.parametrize("text", ["1.50", "1.5000000000", "1E+2", "-0.000001"])
    def test_accepts_every_decimal_notation(self, text: str) -> None:
        assert Fraction(to_micro(Decimal(text)), 1_000_000) == Fraction(text)


class TestCharge:
    @pytest.mark.parametrize(
        ("gpus", "price_micro", "held_us", "expected"),
        [
            (2, 3_000_000, HOUR_US, 6_000_000),
            (2, 3_000_000, HOUR_US // 6, 1_000_000),
            (1, 1, HOUR_US // 2, 0),  # half a micro-credit rounds to even
            (3, 1, HOUR_US // 2, 2),  # one and a half micro-credits
            (1, 1, HOUR_US // 2 + 1, 1),
            (0, 1_000_000, HOUR_US, 0),
            (8, 0, HOUR_US, 0),
            (8, 1_000_000, 0, 0),
        ],
    )
    def test_is_gpus_times_price_times_time(
        self, gpus: int, price_micro: int, held_us: int, expected: int
    ) -> None:
        assert charge_micro(gpus, price_micro, held_us) == expected

    @given(st.integers(0, 10_000), st.integers(0, 10**12), st.integers(0, 10**15))
    def test_is_within_half_unit_of_exact_product(
        self, gpus: int, price_micro: int, held_us: int
    ) -> None:
        exact = Fraction(gpus * price_micro * held_us, HOUR_US)
        assert abs(charge_micro(gpus, price_micro, held_us) - exact) <= Fraction(1, 2)

    @pytest.mark.parametrize("factors", [(-1, 1, 1), (1, -1, 1), (1, 1, -1)])
    def test_rejects_negative_factors(self, factors: tuple[int, int, int]) -> None:
        with pytest.raises(ValueError):
            charge_micro(*factors)

    def test_rejects_float(self) -> None:
        with pytest.raises(TypeError):
            charge_micro(1, 1.5, 1)  # type: ignore[arg-type]  # the error under test

    @given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
    def test_rounds_half_to_even(self, numerator: int, denominator: int) -> None:
        assert round_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


FACTORS = st.tuples(st.integers(0, 10**4), st.integers(0, 10**9), st.integers(0, 10**12))
# Numbers for which half a micro-credit occurs often.
FEW = st.integers(0, 3)
HALVES = st.tuples(FEW, FEW, st.sampled_from([0, HOUR_US // 2, HOUR_US]))


class TestTermCharge:
    @given(st.lists(FACTORS | HALVES, max_size=8))
    def test_terms_add_up_to_exact_cost_rounded_once(
        self, terms: list[tuple[int, int, int]]
    ) -> None:
        cost, charged, carried = Fraction(0), 0, 0
        for gpus, price_micro, held_us in terms:
            amount, carried = term_charge(gpus, price_micro, held_us, carried)
            assert 0 <= amount <= worst_case_micro(gpus, price_micro, held_us)
            cost += Fraction(gpus * price_micro * held_us, HOUR_US)
            charged += amount
            assert charged == floor(cost + Fraction(1, 2))
            assert Fraction(carried, HOUR_US) == cost - charged

    def test_million_small_terms_add_up(self) -> None:
        """Each term costs a tenth of a micro-credit, which rounds to 0."""
        charged, carried = 0, 0
        for _ in range(10**6):
            amount, carried = term_charge(1, 360, SECOND_US, carried)
            charged += amount
        assert (charged, carried) == (100_000, 0)
        assert charge_micro(1, 360, SECOND_US) == 0

    @pytest.mark.parametrize("carried", [-HOUR_US // 2 - 1, HOUR_US // 2])
    def test_rejects_remainder_above_half_unit(self, carried: int) -> None:
        with pytest.raises(ValueError):
            term_charge(1, 1, 1, carried)

    def test_rejects_float(self) -> None:
        with pytest.raises(TypeError):
            term_charge(1, 1, 1.5, 0)  # type: ignore[arg-type]  # the error under test


class TestWorstCaseCost:
    @given(st.integers(0, 10**4), st.integers(0, 10**9), st.integers(0, 10**12), st.floats(0, 1))
    def test_is_at_least_cost_of_any_part(
        self, gpus: int, price_micro: int, lease_us: int, part: float
    ) -> None:
        worst = worst_case_micro(gpus, price_micro, lease_us)
        held_us = min(lease_us, int(lease_us * part))
        assert charge_micro(gpus, price_micro, held_us) <= worst
        assert worst - 1 < Fraction(gpus * price_micro * lease_us, HOUR_US) <= worst


class TestLargestRemainder:
    @given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), max_size=8))
    def test_parts_sum_exactly_and_lie_within_one_unit(
        self, total: int, weights: list[int]
    ) -> None:
        parts = largest_remainder(total, weights)
        assert len(parts) == len(weights)
        if not sum(weights):
            assert not any(parts)
            return
        assert sum(parts) == total
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - Fraction(total * weight, sum(weights))) < 1

    @given(
        st.integers(0, 10**9),
        st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
        st.randoms(),
    )
    def test_is_independent_of_order_of_different_weights(
        self, total: int, weights: list[int], random: Any
    ) -> None:
        # Different weights can have equal remainders. Then the index decides.
        remainders = [total * weight % (sum(weights) or 1) for weight in weights]
        if len(set(remainders)) < len(remainders):
            return
        shuffled = weights[:]
        random.shuffle(shuffled)
        by_weight = dict(zip(weights, largest_remainder(total, weights), strict=True))
        assert dict(zip(shuffled, largest_remainder(total, shuffled), strict=True)) == by_weight

    def test_gives_remainder_to_earlier_of_equal_weights(self) -> None:
        assert largest_remainder(2, [1, 1, 1]) == [1, 1, 0]

    @pytest.mark.parametrize(("total", "weights"), [(-1, [1]), (1, [1, -1])])
    def test_rejects_negative_values(self, total: int, weights: list[int]) -> None:
        with pytest.raises(ValueError):
            largest_remainder(total, weights)
