"""Test a market: a job is refused at a high price, and admitted when the price falls.

The tests also cover every way to declare a job's utility, and every place that shows its plan.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command

from billing.metering import meter_pool
from billing.models import PostedPrice
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.market.thetas import THETA_MAX_MILLI
from evenshare_core.units import CREDIT_MICRO
from scheduling.engine.snapshots import next_number, read_snapshot
from scheduling.models import Job, JobPlan, Lease
from scheduling.selectors.deadlines.plans import PlanRow, read_plan
from scheduling.selectors.tenants.prospects import prospects
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

LEASE_S = 60
ETA = {used: posted_price_micro(CREDIT_MICRO, 2000, used, 8) for used in range(9)}


def pool(**options: object) -> Cluster:
    """Return a pool of two tenants with a round every half minute; a can borrow only from b."""
    return cluster(
        {"a": 0, "b": 8}, nodes=1, gpus=8, round_s=30, lease_s=LEASE_S, policy="market",
        options={"theta": "fixed", "interval_s": 0, "horizon_s": LEASE_S, **options},
    )  # fmt: skip


def run(lab: Cluster, seconds: int) -> None:
    for _ in range(seconds // 30):
        lab.at += timedelta(seconds=30)
        lab.round()


def bid(price: str) -> dict[str, str]:
    return {"kind": "bid", "per_gpu_hour": price}


def plan_of(job: Job) -> PlanRow:
    job.refresh_from_db()
    plan = read_plan(job)
    assert plan is not None
    return plan


class TestSteepestCurve:
    def test_highest_theta_is_posted_and_stored(self) -> None:
        """Rounds and books continue after the highest possible bid."""
        lab = pool(theta="history", theta_factor=10.0)
        lab.submit("b", 6, 600, utility=bid("1000000000"))
        run(lab, 60)
        meter_pool(lab.pool.pk)
        row = PostedPrice.objects.order_by("-valid_from_round")[0]
        assert row.theta == Decimal("999999999.999")
        field = PostedPrice._meta.get_field("theta")
        assert 10**field.max_digits - 1 == THETA_MAX_MILLI
        assert field.decimal_places == 3
        call_command("check_ledger")


class TestMarketJob:
    def test_is_refused_at_high_price_and_admitted_at_low_price(self) -> None:
        lab = pool()
        lab.submit("b", 6, 150)
        lab.at = BEGIN + timedelta(seconds=30)
        lab.round()
        poor = lab.submit("a", 2, 90, after_s=1, utility=bid("0.8"))
        run(lab, 30)
        poor.refresh_from_db()
        assert (poor.state, poor.reason_code) == ("pending", "price_above_value")
        plan = plan_of(poor)
        assert plan.is_refused
        assert (plan.needed, plan.lowest) == (Decimal("0.8"), Decimal(1))
        run(lab, 150)
        plan = plan_of(poor)
        assert (poor.state, plan.kind, plan.borrowed) == ("running", "borrowed", 2)
        lease = Lease.objects.get(job=poor)
        assert lease.price <= Decimal("0.8")
        assert plan.gain == plan.value - plan.cost > 0
        run(lab, 180)
        poor.refresh_from_db()
        assert poor.state == "succeeded"
        assert read_plan(poor) is None
        call_command("check_ledger")

    def test_borrower_yields_to_owner_at_end_of_lease(self) -> None:
        lab = pool()
        guest = lab.submit("a", 8, 600, utility=bid("5"))
        run(lab, 30)
        guest.refresh_from_db()
        assert guest.state == "running"
        owner = lab.submit("b", 8, 600, after_s=1)
        run(lab, 120)
        states = {job.pk: job.state for job in Job.objects.all()}
        assert states == {guest.pk: "pending", owner.pk: "running"}
        ended = Lease.objects.get(job=guest)
        assert ended.end_reason == "not_renewed"
        assert ended.started_at is not None
        assert ended.ended_at == ended.started_at + timedelta(seconds=LEASE_S)

    def test_only_declared_utilities_change_snapshot(self) -> None:
        lab = pool()
        plain = lab.submit("b", 1, 60)
        before = read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)
        assert (before.schema, before.utilities) == (2, ())
        stated = lab.submit("a", 1, 60, utility=bid("0.8"))
        seen = read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)
        assert seen.utilities == (Utility(stated.pk, UtilityKind.BID, 800_000),)
        assert {row.id for row in seen.jobs} == {plain.pk, stated.pk}
        assert seen.schema == 6

    def test_unreadable_utility_quarantines_only_its_job(self) -> None:
        lab = pool()
        bad = lab.submit("a", 1, 60, utility={"kind": "steep"})
        good = lab.submit("b", 1, 60)
        run(lab, 60)
        good.refresh_from_db()
        bad.refresh_from_db()
        assert good.state == "running"
        assert "kind must be one of" in bad.quarantine

    def test_unstorable_loss_does_not_stop_round(self) -> None:
        """The job's value falls for twelve years of pool time.

        A fast clock reaches them in a day.
        """
        lab = pool()
        lost = lab.submit("b", 2, 60, utility={"kind": "linear", "k": "-1000000000", "g": "1"})
        Job.objects.filter(pk=lost.pk).update(submitted_at=BEGIN - timedelta(days=12 * 366))
        run(lab, 30)
        plan = plan_of(lost)
        assert (lost.state, plan.value) == ("running", Decimal(-(10**9)))

    def test_planned_later_shows_start_and_current_price(self) -> None:
        lab = pool(horizon_s=3600)
        lab.submit("b", 6, 100, estimate_s=100)
        lab.at = BEGIN + timedelta(seconds=30)
        lab.round()
        poor = lab.submit("a", 2, 30, after_s=1, utility=bid("0.8"))
        run(lab, 30)
        plan = plan_of(poor)
        assert poor.reason_code == "planned_later"
        assert plan.starts_at is not None
        assert plan.starts_at > lab.at
        assert plan.lowest == Decimal(1)
        assert JobPlan.objects.get(job=poor).tenant_id == poor.tenant_id


class TestPriceOfOneMoreGpu:
    def test_uses_theta_of_policy_from_history(self) -> None:
        """A job bid 9 credits, so the policy's theta is higher than the operator's."""
        lab = pool(theta="history")
        lab.submit("b", 4, 600)
        lab.submit("a", 2, 600, utility=bid("9"))
        run(lab, 30)
        (start,) = prospects(lab.pool.pk, lab.tenants["a"].pk, at=lab.at)
        assert start.theta == 10
        assert to_micro(start.price) == posted_price_micro(CREDIT_MICRO, 10_000, 6, 8)
        assert to_micro(start.price_with(1)) == posted_price_micro(CREDIT_MICRO, 10_000, 7, 8)
