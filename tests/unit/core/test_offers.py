"""Test the entitlement that a tenant's own settings leave, and how lent GPUs return."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.offers import (
    Offer,
    OwnSharing,
    back_by_us,
    lower_limit,
    narrow,
    offered,
)

LIMITS = st.none() | st.integers(0, 12)
MODES = st.sampled_from(list(Mode))
QUOTAS = st.builds(
    Entitlement,
    tenant=st.just(1),
    gpu_type=st.just("v100"),
    gpus=st.integers(0, 12),
    mode=MODES,
    borrow_limit=LIMITS,
    lend_limit=LIMITS,
)
OWN = st.builds(
    OwnSharing, mode=MODES, borrow_limit=LIMITS, lend_limit=LIMITS, by_offer=st.booleans()
)
OFFERS = st.lists(st.builds(Offer, gpus=st.integers(1, 8), floor_micro=st.integers(0, 9)))
PRICES = st.integers(0, 9)


class TestNarrow:
    @given(QUOTAS, OWN, OFFERS, PRICES)
    def test_applies_stricter_of_both_limits(
        self, bounds: Entitlement, own: OwnSharing, offers: list[Offer], price: int
    ) -> None:
        row = narrow(bounds, own, offers, price)
        alone = Entitlement(1, "v100", bounds.gpus, own.mode, own.borrow_limit, own.lend_limit)
        assert row.gpus == bounds.gpus
        for idle in range(bounds.gpus + 1):
            most = min(bounds.lendable(idle), alone.lendable(idle))
            if own.by_offer:
                most = min(most, offered(offers, price))
            assert row.lendable(idle) == most
        limits = [one.may_borrow for one in (bounds, alone) if one.may_borrow is not None]
        assert row.may_borrow == min(limits, default=None)

    @given(QUOTAS)
    def test_keeps_entitlement_without_own_settings(self, bounds: Entitlement) -> None:
        assert narrow(bounds, OwnSharing(), [Offer(1, 0)], 5) == bounds

    @given(QUOTAS, OWN, OFFERS, PRICES, PRICES)
    def test_higher_price_never_lends_less(
        self, bounds: Entitlement, own: OwnSharing, offers: list[Offer], one: int, other: int
    ) -> None:
        low, high = (narrow(bounds, own, offers, price) for price in sorted((one, other)))
        assert low.lendable(bounds.gpus) <= high.lendable(bounds.gpus)

    def test_lends_only_at_or_above_floor_price(self) -> None:
        bounds, own = Entitlement(1, "v100", 8), OwnSharing(by_offer=True)
        offers = [Offer(2, 300), Offer(3, 500)]
        lends = [narrow(bounds, own, offers, price).lendable(8) for price in (299, 300, 499, 500)]
        assert lends == [0, 2, 2, 5]


class TestReturnTime:
    def test_is_now_without_borrowers(self) -> None:
        assert back_by_us([], at_us=7, round_us=10, notice_us=5, within_us=3) == 7

    def test_adds_round_and_notice_to_last_expiry(self) -> None:
        by = back_by_us([40, 90], at_us=7, round_us=10, notice_us=5, within_us=None)
        assert by == 105
        # An expired lease ends at the next round.
        assert back_by_us([3], at_us=7, round_us=10, notice_us=5, within_us=None) == 22

    def test_is_earlier_of_expiry_and_preemption(self) -> None:
        lengths = {"at_us": 7, "round_us": 10, "notice_us": 5}
        assert back_by_us([90], within_us=20, **lengths) == 27
        assert back_by_us([9], within_us=20, **lengths) == 24


class TestMaximumPrice:
    def test_is_lower_of_job_and_tenant_price(self) -> None:
        pairs = [(None, None), (5, None), (None, 4), (5, 4), (3, 4), (0, 4)]
        assert [lower_limit(*pair) for pair in pairs] == [None, 5, 4, 4, 3, 0]
