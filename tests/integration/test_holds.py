"""Test that credit is reserved once, whatever rounds of other pools do at the same time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from evenshare_core.domain.decision import Grant, Key
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US
from scheduling.engine import rounds as engine
from scheduling.engine.apply import apply_round
from scheduling.engine.holds import hold_credit, write_reserved
from scheduling.engine.write import RoundPlan, RoundWrite
from scheduling.models import Job, Lease, LeaseEvent, Round
from tenants.models import Budget, DailySpend, Tenant
from tenants.scopes import engine_scope, site_scope
from tests.factories import BEGIN, Cluster, cluster
from tests.integration.test_ledger import in_threads
from tests.round_states import left_by

pytestmark = pytest.mark.usefixtures("committed_db")


def two_pools() -> tuple[Cluster, Cluster]:
    """Return two pools of one book, in each of which `a` has a job above its quota."""
    labs = cluster({"a": 0, "b": 4}), cluster({"a": 0, "b": 4})
    for lab in labs:
        lab.submit("b", 4, 10_000)
        lab.round()
    for lab in labs:
        lab.submit("a", 2, 10_000)
    return labs


def limit_to_one_term(lab: Cluster) -> int:
    """Give `a` credit for 1.5 terms; return the highest cost of a term in micro-credits."""
    (price,) = left_by(lab.pool).prices
    micro = worst_case_micro(2, price["price_micro"], lab.pool.lease_s * SECOND_US)
    assert micro > 0
    Budget.objects.filter(tenant=lab.tenants["a"]).update(credit_limit=to_credits(micro * 3 // 2))
    return micro


def take_credit(lab: Cluster) -> None:
    """Set the credit of `a` to zero."""
    with site_scope():
        Budget.objects.filter(tenant=lab.tenants["a"]).update(credit_limit=0)


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    """Run `work` once between a round's snapshot and its first write."""

    def late(plan: RoundPlan) -> Round:
        monkeypatch.setattr(engine, "apply_round", apply_round)
        work()
        return apply_round(plan)

    monkeypatch.setattr(engine, "apply_round", late)


class TestTwoPools:
    def test_do_not_promise_same_credit_of_shared_book(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = two_pools()
        micro = limit_to_one_term(first)
        meanwhile(monkeypatch, lambda: second.round(after_s=10))
        result = first.round(after_s=10)
        budget = Budget.objects.get(tenant=first.tenants["a"])
        assert to_micro(budget.reserved) == micro
        assert budget.overrun == 0
        assert [lease.pool for lease in Lease.objects.filter(tenant=first.tenants["a"])] == [
            second.pool
        ]
        assert result.round is not None
        job = Job.objects.get(tenant=first.tenants["a"], pool=first.pool)
        assert result.round.superseded == [
            {
                "item": "grant",
                "id": job.pk,
                "why": "its tenant's credit was promised elsewhere since the snapshot",
            }
        ]
        assert (job.state, job.reason_code) == ("pending", "budget")

    def test_own_quota_needs_no_credit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A term within quota costs nothing, so it needs no credit."""
        lab = cluster({"a": 4, "b": 4})
        lab.submit("a", 4, 10_000)
        meanwhile(monkeypatch, lambda: take_credit(lab))
        lab.round()
        assert Lease.objects.get().own == 4

    def test_unaffordable_renewal_ends_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 0, "b": 4}, lease_s=20, policy="ltgf")
        lab.submit("b", 4, 10_000)
        lab.round()
        job = lab.submit("a", 2, 10_000)
        lab.round(after_s=10)
        lease = Lease.objects.get(job=job)
        assert lease.borrowed == 2
        meanwhile(monkeypatch, lambda: take_credit(lab))
        result = lab.round(after_s=20)
        lease.refresh_from_db()
        assert (lease.term, lease.end_reason) == (1, "budget")
        assert result.round is not None
        (row,) = [row for row in result.round.superseded if row["id"] == lease.pk]
        assert (row["item"], row["ends"]) == ("renewal", True)
        job.refresh_from_db()
        assert job.reason_code == "budget"
        assert LeaseEvent.objects.filter(lease=lease, kind="stop_asked").exists()


class TestPeriodBudget:
    def budget(self, lab: Cluster, amount: str, **fields: Any) -> None:
        Budget.objects.filter(tenant=lab.tenants["a"]).update(
            **{"period_amount": Decimal(amount), "period_action": "block", **fields}
        )

    @pytest.fixture
    def lab(self) -> Cluster:
        lab = cluster({"a": 2, "b": 6})
        lab.submit("b", 4, 100_000)
        lab.round()
        return lab

    def test_stops_borrowing_but_not_own_quota(self, lab: Cluster) -> None:
        self.budget(lab, "0.000001")
        own, borrowed = lab.submit("a", 2, 10_000), lab.submit("a", 2, 10_000)
        lab.round(after_s=10)
        borrowed.refresh_from_db()
        own.refresh_from_db()
        assert (own.state, borrowed.state) == ("running", "pending")
        assert borrowed.reason_code == "budget"

    @pytest.mark.parametrize(("action", "state"), [("block", "pending"), ("warn", "running")])
    def test_block_stops_at_100_percent_and_warn_continues(
        self, lab: Cluster, action: str, state: str
    ) -> None:
        self.budget(lab, "10", period_action=action)
        DailySpend.objects.create(
            tenant=lab.tenants["a"], book="main", day=BEGIN.date(), amount=Decimal("9.999999")
        )
        job = lab.submit("a", 3, 10_000)
        lab.round(after_s=10)
        job.refresh_from_db()
        assert job.state == state

    def test_restarts_with_next_month(self, lab: Cluster) -> None:
        self.budget(lab, "10")
        DailySpend.objects.create(
            tenant=lab.tenants["a"], book="main", day=BEGIN.date(), amount=Decimal(50)
        )
        job = lab.submit("a", 3, 10_000)
        lab.round(after_s=10)
        job.refresh_from_db()
        assert job.state == "pending"
        lab.round(after_s=int(timedelta(days=31).total_seconds()))
        job.refresh_from_db()
        assert job.state == "running"


NOTHING: Any = None


class _Hold:
    """The steps of a round's writer that reserve credit, without the rest of the round."""

    def __init__(self, tenant: Tenant, price_micro: int) -> None:
        self.tenant, self.price_micro = tenant, price_micro

    def __call__(self) -> int:
        """Reserve a term of one GPU for an hour; return the amount in micro-credits."""
        grant = Grant(
            *(1, 1, self.tenant.pk, "v100", ((1, 1),), Key(None, None)),
            borrowed=1,
            price_micro=self.price_micro,
        )
        with engine_scope(1), connection.cursor() as cursor:
            write = RoundWrite(plan_of(grant), NOTHING, cursor, BEGIN, NOTHING)
            hold_credit(write)
            if not write.unfunded_jobs:
                write.reserve(grant)
            write_reserved(write)
        return sum(write.reserved.values())


def plan_of(grant: Grant) -> Any:
    """Return the part of a round's plan that `hold_credit` reads."""
    decision = SimpleNamespace(renewals=(), grants=(grant,), lengths=())
    snapshot = SimpleNamespace(lease_us=HOUR_US)
    return SimpleNamespace(snapshot=snapshot, decision=decision, book="demo")


class TestHolds:
    CONNECTIONS, EACH = 40, 5

    @pytest.mark.parametrize("what", ["credit", "budget"])
    def test_concurrent_holds_never_exceed_limit(self, what: str) -> None:
        tenant = Tenant.objects.create(slug="a", name="a", initials="A")
        price, room = 3 * CREDIT_MICRO, 100
        fields = {"credit_limit": room} if what == "credit" else {
            "period_amount": room, "period_action": "block"
        }  # fmt: skip
        Budget.objects.create(tenant=tenant, book="demo", **fields)
        hold = _Hold(tenant, price)
        results = in_threads(lambda: [hold() for _ in range(self.EACH)], self.CONNECTIONS)
        held = [micro for result in results for micro in result]
        assert len(held) == self.CONNECTIONS * self.EACH
        assert sorted(set(held)) == [0, price]
        assert held.count(price) == room // 3
        budget = Budget.objects.get()
        assert to_micro(budget.reserved) == sum(held)
        assert budget.overrun == 0

    def test_database_rejects_holds_beyond_limit(self) -> None:
        tenant = Tenant.objects.create(slug="a", name="a", initials="A")
        Budget.objects.create(tenant=tenant, book="demo", credit_limit=1)
        within = "budget_promises_within_credit"
        with pytest.raises(IntegrityError, match=within), transaction.atomic():
            Budget.objects.update(reserved=Decimal("1.000001"))


class TestUnstorablePromise:
    def test_is_not_made_and_others_still_borrow(self) -> None:
        """The next term would overflow the reservation's column, but other tenants can borrow."""
        lab = cluster({"a": 0, "b": 4, "c": 0}, nodes=1, gpus=8, lease_s=30 * 86_400)
        most = Decimal(10) ** 14 - Decimal("0.000001")
        Budget.objects.filter(tenant=lab.tenants["a"]).update(reserved=most)
        lab.submit("b", 4, 10**6)
        lab.round()
        lab.submit("a", 1, 10**6)
        other = lab.submit("c", 1, 10**6)
        first, second = (lab.round(after_s=10).round for _ in range(2))
        assert first is not None
        assert second is not None
        assert list(Lease.objects.values_list("tenant__slug", flat=True).order_by("id")) == [
            "b",
            "c",
        ]
        other.refresh_from_db()
        assert other.state != "pending"
        assert {row["why"] for row in first.superseded + second.superseded} == {
            SupersededReason.UNSTORABLE
        }
        assert Budget.objects.get(tenant=lab.tenants["a"]).reserved == most
