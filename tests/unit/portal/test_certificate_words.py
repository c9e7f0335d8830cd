"""Test the text of a certificate's lines."""

from __future__ import annotations

from typing import Any

from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.fairness.certificate import Basis, Property, Verdict
from portal.rounds.text.certificate import _sentence
from portal.rounds.text.share_lines import envy_sentence
from portal.site.core_texts import stored_reasons
from scheduling.selectors.rounds.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def seen(name: str) -> VisibleTenant:
    return VisibleTenant(id=1, number=1, name=name, initials=name[:2], swatch=0)


def closest(tenant: str, other: str) -> str:
    return envy_sentence(
        CertificateItemView(
            name=Property.ENVY_FREE, verdict=Verdict.HOLDS, basis=Basis.IDEALS, checked=6, count=0,
            worst=0.0, tenant=seen(tenant), other=seen(other), in_gpus=None, total=None, named=(),
            hidden=False, why="",
        )
    )  # fmt: skip


class TestClosestPair:
    def test_of_two_tenants(self) -> None:
        assert (
            closest("red", "blue")
            == "Closest of 6 pairs: red would do the same with the share of blue."
        )

    def test_of_two_job_types_of_one_tenant(self) -> None:
        stated = (
            "Closest of 6 pairs: red would do the same with the share of another of its job types."
        )
        assert closest("red", "red") == stated


def market_line(name: Property, **fields: Any) -> str:
    row = {
        "verdict": Verdict.HOLDS, "basis": Basis.TERMS, "checked": 2, "count": 0, "worst": None,
        "tenant": seen("red"), "other": None, "in_gpus": None, "total": 3.0, "named": (),
        "hidden": False, "why": "", **fields,
    }  # fmt: skip
    return _sentence(CertificateItemView(name=name, **row))


class TestOrderLine:
    ORDER = Property.LONG_TERM_ORDER

    def test_names_jobs_compared_with_picks(self) -> None:
        assert market_line(self.ORDER, checked=5, total=1.0, tenant=None) == (
            "5 picks compared with the 1 job that was left queued: no tenant further below its"
            " share could have been served before, and none could use the idle GPUs."
        )

    def test_of_older_certificate_reports_only_replay(self) -> None:
        assert market_line(self.ORDER, checked=5, total=None, tenant=None) == (
            "5 picks replayed in order: each was its turn."
        )

    def test_names_overtaken_tenants(self) -> None:
        broken = {"verdict": Verdict.VIOLATED, "count": 1}
        assert market_line(self.ORDER, **broken, other=seen("blue")) == (
            "blue was served before red, which was further below its share and could have been"
            " served."
        )
        assert market_line(self.ORDER, **broken, worst=4.0) == (
            "red waits although there is room for a job of up to 4 GPUs."
        )
        assert market_line(self.ORDER, **broken, tenant=None, worst=4.0, hidden=True) == (
            "1 tenant was served before a tenant further below its share, or left waiting"
            " although a job fitted the idle GPUs."
        )


class TestPromisedStarts:
    STARTS = Property.PROMISED_STARTS

    def test_shows_gpus_kept_for_promises(self) -> None:
        assert market_line(self.STARTS) == (
            "2 jobs have a promised start, and none is late. 3 free GPUs are kept for them."
        )

    def test_hides_gpus_of_other_tenants(self) -> None:
        assert market_line(self.STARTS, checked=1, total=None) == (
            "1 job has a promised start, and none is late."
        )

    def test_names_tenants_of_broken_promises(self) -> None:
        broken = {"verdict": Verdict.VIOLATED, "count": 1}
        assert market_line(self.STARTS, **broken, named=(seen("blue"),)) == (
            "1 promise of a start is broken: of blue."
        )
        assert market_line(self.STARTS, **broken | {"count": 2}) == (
            "2 promises of starts are broken."
        )


class TestMisreports:
    OVER, UNDER = Property.OVERSTATING, Property.UNDERSTATING

    def test_show_best_result_of_search(self) -> None:
        tried = {"of": 15, "factor": 2.0, "gpu_type": "v100"}
        start = "Best of 2 out of 15 misreports of red tried here:"
        assert market_line(self.OVER, **tried, worst=0.339, count=1) == (
            f"{start} \N{MULTIPLICATION SIGN}2 on v100 would gain 0.34 over 3.00 (11.3 %)."
        )
        assert market_line(self.UNDER, **tried | {"factor": 0.25, "gpu_type": ""}, worst=-1.0) == (
            f"{start} \N{MULTIPLICATION SIGN}0.25 on all but the slowest type loses 1.00 of 3.00."
        )

    def test_are_exact_only_with_known_bound(self) -> None:
        tried = {"of": 15, "factor": 2.0, "gpu_type": "v100", "worst": 0.0}
        text = market_line(self.OVER, **tried, bound="OEF, theorem 5.4")
        assert text.endswith("No overstating gains at all: exact, by OEF, theorem 5.4.")
        assert "exact" not in market_line(self.OVER, **tried)
        # The line shows the violation instead of the theorem.
        gained = market_line(self.OVER, **tried | {"worst": 1.0}, count=1, bound="a theorem")
        assert "theorem" not in gained

    def test_of_older_certificate_are_not_called_best(self) -> None:
        assert market_line(self.OVER, checked=1, worst=0.0) == (
            "1 misreport of red tried: none of them gains over 3.00."
        )


class TestMarketLines:
    QUOTAS, WORTH = Property.QUOTA_GUARANTEE, Property.INDIVIDUAL_RATIONALITY

    def test_quota_line_shows_when_node_is_free(self) -> None:
        way = "no borrowing lease started or went on in their way"
        assert market_line(self.QUOTAS, worst=600.0) == (
            f"2 queued jobs are owed GPUs of a quota: {way}. A node is free for red within 10 min."
        )
        assert market_line(self.QUOTAS, checked=1) == (
            f"1 queued job is owed GPUs of a quota: {way}."
        )
        nobody = "No tenant waits for GPUs of its quota, and no own quota was charged."
        assert market_line(self.QUOTAS, checked=0) == nobody

    def test_quota_line_names_overtaken_tenant(self) -> None:
        said = market_line(self.QUOTAS, count=1, named=(seen("blue"),))
        assert said == "A borrowing lease was ahead of blue, or own quota was charged."

    def test_value_line_shows_smallest_margin(self) -> None:
        said = market_line(self.WORTH, worst=0.25)
        assert said == (
            "2 new terms borrow: to each job, a GPU-hour is worth at least 0.25 credits more than"
            " the price."
        )

    def test_value_line_hides_numbers_of_other_tenants(self) -> None:
        said = market_line(self.WORTH, checked=1, hidden=True, tenant=None)
        assert said == "1 new term borrows, none above the value of a GPU-hour to its job."

    def test_value_line_counts_tenants_borrowing_at_loss(self) -> None:
        said = market_line(self.WORTH, count=2, hidden=True)
        assert said == "2 tenants borrowed above the value of a GPU-hour to the job."


class TestStoredReasons:
    def test_are_those_of_core(self) -> None:
        reasons = set(stored_reasons())
        assert set(SupersededReason) < reasons
        assert {"only one has jobs", "no start was promised"} < reasons
        assert not any("{" in reason for reason in reasons)
