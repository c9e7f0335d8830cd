"""Test posted prices against eq. (8) of Astraea-online with a pool's utilisation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.pricing import posted_price_micro


class TestPostedPrice:
    @pytest.mark.parametrize(
        ("base", "theta_milli", "used", "capacity", "expected"),
        [
            (1_000_000, 2000, 0, 8, 0),  # an idle pool
            (1_000_000, 2000, 8, 8, 1_000_000),  # a full pool costs base x (theta - 1)
            (1_000_000, 1000, 5, 8, 0),  # with theta 1, everything is free of charge
            (1_000_000, 16_000, 2, 8, 1_000_000),  # section 4.2: 16^(2/8) - 1 = 1
            (1_000_000, 2000, 4, 8, 414_214),  # sqrt 2 - 1
            (10**19, 2000, 4, 8, 4_142_135_623_730_950_488),  # to the last digit
            (3, 1500, 8, 8, 2),  # 1.5 rounds half to even
            (1, 1500, 8, 8, 0),  # 0.5 rounds half to even as well
            (1_000_000, 2000, 9, 8, 1_000_000),  # nodes were lost: counts as full
            (1_000_000, 2000, 0, 0, 1_000_000),  # no GPUs: counts as full
            (0, 2000, 4, 8, 0),
        ],
    )
    def test_matches_worked_examples(
        self, base: int, theta_milli: int, used: int, capacity: int, expected: int
    ) -> None:
        assert posted_price_micro(base, theta_milli, used, capacity) == expected

    @given(
        st.integers(0, 10**12),
        st.integers(1001, 100_000),
        st.integers(1, 5000),
        st.integers(0, 5000),
    )
    def test_never_falls_as_use_grows(
        self, base: int, theta_milli: int, capacity: int, used: int
    ) -> None:
        price = posted_price_micro(base, theta_milli, used, capacity)
        assert 0 <= price <= posted_price_micro(base, theta_milli, used + 1, capacity)

    @pytest.mark.parametrize("bad", [(-1, 2000, 0, 8), (1, 999, 0, 8), (1, 2000, -1, 8)])
    def test_rejects_invalid_parameters(self, bad: tuple[int, int, int, int]) -> None:
        with pytest.raises(ValueError, match="must be"):
            posted_price_micro(*bad)
