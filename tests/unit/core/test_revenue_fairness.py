"""Test revenue fairness alpha (Astraea-online 5.1) with examples and properties."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.revenue_fairness import (
    TenantRevenue,
    resource_parts,
    revenue_fairness,
)

# Case B of the paper: User 1 has j11 (96) and j12 (92, paid 16), user 2 has j21 (92). Each user
# owns half of everything and earns 8 of the 16.
CASE_B = {
    1: TenantRevenue(own_utility=96, income=8, borrowed_utility=92, cost=16),
    2: TenantRevenue(own_utility=92, income=8),
}
HALVES = {1: (4, 2), 2: (4, 2)}


class TestGain:
    def test_counts_payment_to_oneself_as_cost_and_income(self) -> None:
        assert [row.gain for row in CASE_B.values()] == [180, 100]

    def test_total_equals_utility_of_all_jobs(self) -> None:
        assert sum(row.gain for row in CASE_B.values()) == 96 + 92 + 92

    def test_is_exact_for_floats(self) -> None:
        assert TenantRevenue(own_utility=0.1, income=0.2).gain == Fraction(0.1) + Fraction(0.2)


class TestAlpha:
    def test_matches_case_b_of_paper(self) -> None:
        gains = {tenant: row.gain for tenant, row in CASE_B.items()}
        assert revenue_fairness(gains, HALVES) == {1: Fraction(9, 7), 2: Fraction(5, 7)}

    def test_uses_mean_of_worker_and_parameter_server_parts(self) -> None:
        quotas = {1: (3, 1), 2: (1, 1)}
        assert resource_parts(quotas) == {1: Fraction(5, 8), 2: Fraction(3, 8)}
        assert revenue_fairness({1: 5, 2: 3}, quotas) == {1: 1, 2: 1}

    def test_ignores_resource_without_quota(self) -> None:
        assert revenue_fairness({1: 1, 2: 1}, {1: (3, 0), 2: (1, 0)}) == {1: Fraction(2, 3), 2: 2}

    def test_is_none_without_quota_or_revenue(self) -> None:
        assert revenue_fairness({1: 4, 2: 1}, {1: (2,), 2: (0,)}) == {1: Fraction(4, 5), 2: None}
        assert revenue_fairness({}, {1: (2,)}) == {1: None}

    def test_uses_given_total(self) -> None:
        assert revenue_fairness({0: 2, 1: 8}, {1: (2,)}, total=10) == {1: Fraction(4, 5)}

    @pytest.mark.parametrize(
        ("gains", "quotas", "reason"),
        [
            ({1: 1}, {1: (1, 1), 2: (1,)}, "quota of each kind"),
            ({1: 1}, {1: (-1,)}, "at least 0"),
            ({0: 1}, {1: (1,)}, "give the total"),
        ],
    )
    def test_rejects_invalid_input(
        self, gains: dict[int, int], quotas: dict[int, tuple[int, ...]], reason: str
    ) -> None:
        with pytest.raises(ValueError, match=reason):
            revenue_fairness(gains, quotas)

    @given(
        st.lists(
            st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(0, 10**9)),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    def test_weighted_sum_over_tenants_is_one(self, rows: list[tuple[int, int, int]]) -> None:
        quotas = {tenant: row[:2] for tenant, row in enumerate(rows, start=1)}
        gains = {tenant: row[2] for tenant, row in enumerate(rows, start=1)}
        alphas = revenue_fairness(gains, quotas)
        if not sum(gains.values()):
            assert set(alphas.values()) == {None}
            return
        parts = resource_parts(quotas)
        assert sum(parts.values()) == 1
        assert sum((alphas[tenant] or 0) * part for tenant, part in parts.items()) == 1
