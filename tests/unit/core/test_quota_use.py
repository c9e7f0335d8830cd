"""Test the use of quotas against worked examples and a model that computes each instant."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.quota_use import EntitledStep, QuotaUse, UseStep, quota_time, quota_use
from evenshare_core.money.revenue.idle import OPERATOR, IdleSums, LendableQuota, weights_between


class TestWorkedExamples:
    """Tenant `a` has quota 4 and lends at most 2; `b` has quota 4.

    Two of the 10 GPUs are unallocated.
    """

    QUOTAS = (EntitledStep(0, 10, {1: (4, 2), 2: (4, None)}),)

    def test_splits_quota_of_tenant_that_lends_a_part(self) -> None:
        # `a` uses 1 of its quota, so 3 are idle: 2 may be lent, 1 is reserved. `b` uses all 4. With
        # the 2 unallocated GPUs, 4 can be lent. 3 are borrowed: `a` lends 2/4 of them, and 2/4 of
        # the free GPU belong to `a`.
        uses = (UseStep(0, 1, 1, 0), UseStep(0, 2, 4, 3))
        assert quota_use(1, self.QUOTAS, uses, since_us=0, until_us=10) == QuotaUse(
            quota_us=40, own_us=10, kept_us=10, lent_us=Fraction(15), free_us=Fraction(5)
        )

    def test_operator_lends_unallocated_gpus(self) -> None:
        uses = (UseStep(0, 1, 1, 0), UseStep(0, 2, 4, 3))
        result = quota_use(OPERATOR, self.QUOTAS, uses, since_us=0, until_us=10)
        assert result == QuotaUse(quota_us=20, lent_us=Fraction(15), free_us=Fraction(5))

    def test_counts_quota_without_gpus_during_outage(self) -> None:
        """Four of eight GPUs are out of service, so no GPUs back the idle quota."""
        quotas = (
            EntitledStep(0, 8, {1: (4, None), 2: (4, None)}),
            EntitledStep(5, 4, {1: (4, None)}),
        )
        uses = (UseStep(0, 2, 4, 0),)
        result = quota_use(1, quotas, uses, since_us=0, until_us=10)
        assert result == QuotaUse(quota_us=40, free_us=Fraction(20), without_gpu_us=Fraction(20))

    def test_counts_only_the_requested_period(self) -> None:
        uses = (UseStep(-5, 1, 4, 0), UseStep(8, 1, -4, 0), UseStep(30, 2, 4, 0))
        result = quota_use(1, self.QUOTAS, uses, since_us=6, until_us=10)
        assert (result.quota_us, result.own_us) == (16, 8)

    def test_rejects_period_that_ends_before_it_begins(self) -> None:
        with pytest.raises(ValueError, match="ends before"):
            quota_use(1, (), (), since_us=1, until_us=0)


STEPS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(0, 4), st.integers(0, 3),
              st.integers(1, 12)),
    max_size=8,
)  # fmt: skip
QUOTAS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 12),
        st.dictionaries(
            st.integers(1, 3), st.tuples(st.integers(0, 5), st.none() | st.integers(0, 5))
        ),
    ),
    max_size=4,
)


def terms(rows: list[tuple[int, int, int, int, int]]) -> list[UseStep]:
    """Return terms (begin, tenant, own, borrowed, length) as steps."""
    uses = []
    for at_us, tenant, own, borrowed, length in rows:
        uses += [
            UseStep(at_us, tenant, own, borrowed),
            UseStep(at_us + length, tenant, -own, -borrowed),
        ]
    return uses


class TestProperties:
    @given(quotas=QUOTAS, rows=STEPS, since=st.integers(0, 20), span=st.integers(0, 20))
    def test_parts_add_up_to_quota(
        self,
        quotas: list[tuple[int, int, dict[int, LendableQuota]]],
        rows: list[tuple[int, int, int, int, int]],
        since: int,
        span: int,
    ) -> None:
        steps = [EntitledStep(*row) for row in quotas]
        last = {step.at_us: step for step in steps}
        kept = [last[at_us] for at_us in sorted(last)]
        times = {"since_us": since, "until_us": since + span}
        for tenant in range(4):
            result = quota_use(tenant, kept, terms(rows), **times)
            parts = (result.own_us, result.kept_us, result.lent_us, result.free_us)
            assert sum(parts) + result.without_gpu_us == result.quota_us
            assert all(part >= 0 for part in (*parts, result.without_gpu_us))
            assert result.quota_us == quota_time(kept, **times).get(tenant, 0)

    @given(rows=STEPS, cut=st.integers(0, 30))
    def test_adjacent_periods_add_up(
        self, rows: list[tuple[int, int, int, int, int]], cut: int
    ) -> None:
        quotas, uses = (EntitledStep(0, 9, {1: (4, 3), 2: (3, None)}),), terms(rows)
        whole = quota_use(1, quotas, uses, since_us=0, until_us=30)
        first = quota_use(1, quotas, uses, since_us=0, until_us=cut)
        rest = quota_use(1, quotas, uses, since_us=cut, until_us=30)
        for name in ("quota_us", "own_us", "kept_us", "lent_us", "free_us", "without_gpu_us"):
            assert getattr(first, name) + getattr(rest, name) == getattr(whole, name)

    @given(rows=STEPS)
    def test_lent_time_matches_revenue_weights(
        self, rows: list[tuple[int, int, int, int, int]]
    ) -> None:
        """A GPU is always borrowed.

        So the time that a tenant lends is its weight in equation (2).
        """
        quotas = {1: (4, 3), 2: (5, None)}
        uses = [step._replace(borrowed=0) for step in terms(rows)]
        sums = IdleSums()
        sums.entitle(0, 20, quotas)
        begin = sums.mark(0)
        for step in sorted(uses, key=lambda step: step.at_us):
            if step.at_us < 30:
                sums.use(step.at_us, step.tenant, step.own)
        end = sums.mark(30)
        weights = weights_between(begin, end)
        steps = (EntitledStep(0, 20, quotas),)
        for tenant in (OPERATOR, 1, 2):
            result = quota_use(tenant, steps, [*uses, UseStep(0, 3, 0, 1)], since_us=0, until_us=30)
            assert result.lent_us == Fraction(weights.get(tenant, 0), end.scale)
