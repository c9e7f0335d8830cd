"""A certificate's lines in words."""

from __future__ import annotations

from typing import Any

from evenshare_core.fairness.certificate import Basis, Property, Verdict
from portal.rounds.text.certificate import _envy, _sentence
from scheduling.selectors.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def seen(name: str) -> VisibleTenant:
    return VisibleTenant(id=1, number=1, name=name, initials=name[:2], swatch=0)


def closest(tenant: str, other: str) -> str:
    return _envy(
        CertificateItemView(
            name=Property.ENVY_FREE, verdict=Verdict.HOLDS, basis=Basis.IDEALS, checked=6, count=0,
            worst=0.0, tenant=seen(tenant), other=seen(other), in_gpus=None, total=None, named=(),
            hidden=False, why="",
        )
    )  # fmt: skip


class TestTheClosestPair:
    def test_of_two_tenants(self) -> None:
        assert closest("red", "blue") == "Closest of 6 pairs: red would do the same with blue's."

    def test_of_one_tenants_job_types_is_told_as_such(self) -> None:
        told = "Closest of 6 pairs: red would do the same with that of another of its job types."
        assert closest("red", "red") == told


def market_line(name: Property, **fields: Any) -> str:
    row = {
        "verdict": Verdict.HOLDS, "basis": Basis.TERMS, "checked": 2, "count": 0, "worst": None,
        "tenant": seen("red"), "other": None, "in_gpus": None, "total": 3.0, "named": (),
        "hidden": False, "why": "", **fields,
    }  # fmt: skip
    return _sentence(CertificateItemView(name=name, **row))


class TestAMarket:
    QUOTAS, WORTH = Property.QUOTA_GUARANTEE, Property.INDIVIDUAL_RATIONALITY

    def test_says_by_when_a_node_is_clear(self) -> None:
        way = "no lease that borrows began or went on in the way"
        assert market_line(self.QUOTAS, worst=600.0) == (
            f"2 queued jobs are owed GPUs of a quota: {way}. A node is clear for red in 10 min at"
            " most."
        )
        assert market_line(self.QUOTAS, checked=1) == (
            f"1 queued job is owed GPUs of a quota: {way}."
        )
        nobody = "Nobody waits for GPUs of its quota, and none of it was charged."
        assert market_line(self.QUOTAS, checked=0) == nobody

    def test_says_before_whom_a_borrower_went(self) -> None:
        said = market_line(self.QUOTAS, count=1, named=(seen("blue"),))
        assert said == "A lease that borrows went before blue, or own quota was charged."

    def test_says_how_close_the_price_is(self) -> None:
        said = market_line(self.WORTH, worst=0.25)
        assert said == (
            "2 new terms borrow: to its job, each GPU-hour is worth 0.25 credits more than the"
            " price at least."
        )

    def test_says_it_without_the_number_that_is_anothers(self) -> None:
        said = market_line(self.WORTH, checked=1, hidden=True, tenant=None)
        assert said == "1 new term borrows, none above what a GPU-hour is worth to its job."

    def test_says_who_borrowed_at_a_loss(self) -> None:
        said = market_line(self.WORTH, count=2, hidden=True)
        assert said == "2 tenants borrowed at more than a GPU-hour was worth to the job."
