"""Test that the operator pays for terms that no round ended in time.

The tests cover the books, budgets and checks of late terms.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import Transfer, UsageLine
from scheduling.models import Lease
from tenants.scopes import site_scope
from tests.factories import cluster
from tests.integration.metering_story import Story, at

# 2 GPUs at 3 credits per hour cost 3 credits for the lease's half hour, and 27 for 4.5 hours.
LATE_MIN, OUTAGE_MIN = 2, 270


def violations() -> list[str]:
    return [text for result in run_checks() for text in result.violations]


def outage(*, renewed: bool = False) -> Story:
    """Tenant a borrows 2 of b's GPUs for half an hour; the next round comes after 4.5 hours."""
    story = Story({"a": 0, "b": 8}, late_min=LATE_MIN)
    story.post_round(0, price="3.000000")
    lease = story.run(0, "a", borrowed=2, price="3.000000")
    if renewed:
        story.renew(OUTAGE_MIN, lease)
    else:
        story.end(OUTAGE_MIN, lease)
    story.post_round(OUTAGE_MIN, price="3.000000")
    return story


@pytest.mark.django_db
class TestLateRound:
    def test_charges_operator_for_time_after_expiry(self) -> None:
        story = outage()
        story.meter()
        story.looked(OUTAGE_MIN + 60)
        story.settle()
        assert story.balances() == {"a": "-3.000000", "b": "27.000000", "operator": "-24.000000"}
        assert violations() == []

    def test_line_has_both_end_times(self) -> None:
        outage().meter()
        line = UsageLine.objects.get()
        assert (line.ends_at, line.charged_until) == (at(OUTAGE_MIN), at(30))
        assert (str(line.amount), str(line.borne)) == ("3.000000", "24.000000")

    def test_transfer_shows_uncharged_time(self) -> None:
        story = outage()
        story.meter()
        story.looked(OUTAGE_MIN + 60)
        story.settle()
        hours_us = 2 * (OUTAGE_MIN - 30) * 60 * 1_000_000
        assert Transfer.objects.get(code="usage").data["borne_gpu_us"] == hours_us

    def test_uses_no_more_budget_than_reserved(self) -> None:
        story = outage()
        assert story.budget("a") == ("0.000000", "3.000000")
        story.meter()
        assert story.budget("a") == ("0.000000", "3.000000")
        story.looked(OUTAGE_MIN + 60)
        story.settle()
        assert story.budget("a") == ("-3.000000", "0.000000")
        assert violations() == []

    def test_renewal_begins_next_term_at_late_round(self) -> None:
        story = outage(renewed=True)
        story.end(OUTAGE_MIN + 30, Lease.objects.get())
        story.post_round(OUTAGE_MIN + 30, price="3.000000")
        story.meter()
        story.looked(OUTAGE_MIN + 120)
        story.settle()
        assert story.balances() == {"a": "-6.000000", "b": "30.000000", "operator": "-24.000000"}
        assert violations() == []


class TestEngineRound:
    """Real rounds every 10 s on a clock that the test moves, with leases of 900 s."""

    @pytest.mark.parametrize(("after_s", "late"), [(20, False), (16_200, True)])
    def test_renewal_after_expiry_is_on_time_or_late(
        self, committed_db: str, after_s: int, late: bool
    ) -> None:
        lab = cluster({"a": 0, "b": 8}, policy="ltgf")
        job = lab.submit("a", 4, 100_000)
        lab.rounds(2, every_s=10)  # the first term is free, because no price is posted yet
        lab.round(after_s=890)
        expires_at = Lease.objects.get(job=job).expires_at
        lab.round(after_s=900 + after_s)
        with site_scope():
            meter_pool(lab.pool.pk)
            line = UsageLine.objects.get(job=job, term=2)
            charged_until = line.charged_until or line.ends_at
            assert line.ends_at == expires_at + timedelta(seconds=after_s)
            assert charged_until == (expires_at if late else line.ends_at)
            assert line.price > 0
            assert (line.borne > 0) is late
            assert violations() == []

    def test_end_of_job_is_on_time_even_if_metered_late(self, committed_db: str) -> None:
        lab = cluster({"a": 0, "b": 8}, policy="ltgf", lease_s=25)
        # the job ends after its lease expired, before the round that records this
        lab.submit("a", 4, 28)
        lab.rounds(12, every_s=10)
        with site_scope():
            meter_pool(lab.pool.pk)
            line = UsageLine.objects.get()
            assert line.ends_at - line.starts_at == timedelta(seconds=28)
            assert line.charged_until is None
