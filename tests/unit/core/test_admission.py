"""Test the admission of jobs just below and above each limit."""

from __future__ import annotations

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.units import HOUR_US
from tests.unit.core.snapshots import job, snapshot


class TestWorstCaseCost:
    def test_rounds_up(self) -> None:
        assert worst_case_micro(1, 1, 1) == 1
        assert worst_case_micro(2, 3, HOUR_US // 4 + 1) == 2
        assert worst_case_micro(2, 3, HOUR_US) == 6


class TestAdmission:
    def test_accepts_price_equal_to_maximum(self) -> None:
        admission = Admission.of(
            snapshot([], nodes={1: 8}, quotas=[Entitlement(1, "v100", 0)], price_micro=5)
        )
        assert admission.check(job(1, 4, max_price_micro=5), "v100") is None
        assert admission.check(job(1, 4, max_price_micro=4), "v100") is not None

    def test_owner_may_use_own_unlent_quota(self) -> None:
        """The tenant does not lend its 4 idle GPUs, but its own gang of 8 may use them."""
        own = Entitlement(1, "v100", 4, lend_limit=0)
        admission = Admission.of(
            snapshot([], nodes={1: 8}, quotas=[own, Entitlement(2, "v100", 4)])
        )
        assert admission.check(job(1, 8), "v100") is None
        assert admission.check(job(2, 8, tenant=2), "v100") is not None

    def test_reserves_only_unused_quota_for_owner(self) -> None:
        keeper = Entitlement(2, "v100", 4, mode=Mode.RESERVE)
        admission = Admission.of(
            snapshot([], nodes={1: 12}, quotas=[Entitlement(1, "v100", 4), keeper])
        )
        assert admission.take(2, "v100", 1) == (1, 0)
        refusal = admission.check(job(1, 9), "v100")
        assert refusal is not None
        assert refusal.numbers["kept"] == 3
        assert admission.take(2, "v100", 3) == (3, 0)
        assert admission.check(job(1, 8), "v100") is None
