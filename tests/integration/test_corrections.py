"""Test that a correction of a charge counts in the budget of the charged day."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction

from billing.checks import CHECKS
from billing.ledger import CreditLimitError
from billing.models import Account, Transfer
from billing.selectors.corrections import corrected_charges
from billing.services.corrections import OverCorrectedError, correct_transfer
from evenshare_core.money.fixed_point import to_micro
from tenants.models import Budget, DailySpend
from tenants.selectors.credit import credit_left
from tests.integration.metering_story import NOON, Story, at

pytestmark = pytest.mark.django_db
CREDIT = 10**6
DAY, NEXT_MONTH = NOON.date(), at(60 * 24 * 40)
CHARGED = 9 * CREDIT  # the charge of 2 GPUs for an hour and a half at 3 credits


@pytest.fixture
def story() -> Story:
    """On the first day b lends all GPUs that a borrows. On the second day b borrows from itself."""
    story = Story()
    story.post_round(0, price="3.000000")
    lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
    story.post_round(90, price="1.000000")
    story.end(90, lease)
    story.post_round(24 * 60, price="1.000000")
    lease = story.run(24 * 60, "b", borrowed=3, price="1.000000")
    story.post_round(25 * 60, price="1.000000")
    story.end(25 * 60, lease)
    story.post_round(30 * 60)
    story.meter()
    story.settle()
    return story


def spent(story: Story, tenant: str = "a", day: date = DAY) -> int:
    rows = DailySpend.objects.filter(tenant=story.tenants[tenant], day=day)
    return to_micro(rows.values_list("amount", flat=True).first() or Decimal(0))


def charge_of(story: Story, tenant: str = "a") -> Transfer:
    return Transfer.objects.get(code="usage", tenant=story.tenants[tenant])


def correct(source: Transfer, why: str = "a node was slow", **micro: int) -> Transfer:
    """Post a correction: each named tenant receives its amount, or pays it if it is negative."""
    accounts = {row.tenant.slug: row.pk for row in Account.objects.all() if row.tenant}
    entries = [(accounts[name], amount) for name, amount in micro.items()]
    return correct_transfer(source, entries=entries, effective_at=NEXT_MONTH, why=why)


def broken() -> list[str]:
    names = ("daily_spend_equals_lines", "balances_equal_entries", "transfers_sum_to_zero")
    return [line for name in names for line in CHECKS[name]().violations]


class TestCorrection:
    def test_counts_on_day_of_charge(self, story: Story) -> None:
        assert spent(story) == CHARGED
        correct(charge_of(story), a=2 * CREDIT, b=-2 * CREDIT)
        assert spent(story) == 7 * CREDIT
        correct(charge_of(story), "the price was too low", a=-CREDIT, b=CREDIT)
        assert spent(story) == 8 * CREDIT
        assert [row.day for row in DailySpend.objects.filter(tenant=story.tenants["a"])] == [DAY]
        assert broken() == []

    def test_frees_budget_of_charged_period_only(self, story: Story) -> None:
        Budget.objects.filter(tenant=story.tenants["a"]).update(period_amount=10)
        correct(charge_of(story), a=2 * CREDIT, b=-2 * CREDIT)
        left = {
            when: credit_left("demo", [story.tenants["a"].pk], when)[story.tenants["a"].pk].period
            for when in (at(24 * 60), NEXT_MONTH)
        }
        assert [use.spent_micro for use in left.values() if use] == [7 * CREDIT, 0]

    def test_is_idempotent(self, story: Story) -> None:
        first = correct(charge_of(story), a=CREDIT, b=-CREDIT)
        assert correct(charge_of(story), a=CREDIT, b=-CREDIT) == first
        assert spent(story) == 8 * CREDIT

    def test_correction_of_correction_counts_too(self, story: Story) -> None:
        wrong = correct(charge_of(story), a=4 * CREDIT, b=-4 * CREDIT)
        correct(wrong, "it was the other node", a=-4 * CREDIT, b=4 * CREDIT)
        assert spent(story) == CHARGED
        assert broken() == []

    def test_rejects_more_than_was_charged(self, story: Story) -> None:
        charge = charge_of(story)
        correct(charge, a=5 * CREDIT, b=-5 * CREDIT)
        with pytest.raises(OverCorrectedError, match="refund the excess as an allowance"):
            correct(charge, "once more", a=4 * CREDIT + 1, b=-4 * CREDIT - 1)
        assert (spent(story), Transfer.objects.filter(code="correction").count()) == (4 * CREDIT, 1)
        correct(charge, "all of it", a=4 * CREDIT, b=-4 * CREDIT)
        assert spent(story) == 0
        assert broken() == []

    def test_self_paid_charge_counts_in_full(self, story: Story) -> None:
        """b was charged 3 credits, of which 1.5 went to b. The correction returns all 3."""
        charge = charge_of(story, "b")
        own = charge.entries.filter(account__tenant=story.tenants["b"])
        assert sorted(own.values_list("amount", flat=True)) == [-3, Decimal("1.5")]
        back = [(entry.account_id, -to_micro(entry.amount)) for entry in charge.entries.all()]
        correct_transfer(charge, entries=back, effective_at=NEXT_MONTH, why="never ran")
        assert spent(story, "b", DAY + timedelta(days=1)) == 0
        assert broken() == []

    def test_correction_without_borrower_changes_no_spending(self, story: Story) -> None:
        accounts = {row.tenant_id: row.pk for row in Account.objects.all()}
        entries = [(accounts[None], CREDIT), (accounts[story.tenants["b"].pk], -CREDIT)]
        correct_transfer(charge_of(story), entries=entries, effective_at=NOON, why="whose node")
        assert (spent(story), corrected_charges()) == (CHARGED, [])

    def test_correction_of_allowance_is_not_spending(self, story: Story) -> None:
        story.allow("a", 20)
        accounts = {row.tenant_id: row.pk for row in Account.objects.all()}
        entries = [(accounts[None], 5 * CREDIT), (accounts[story.tenants["a"].pk], -5 * CREDIT)]
        source = Transfer.objects.get(code="allowance")
        correct_transfer(source, entries=entries, effective_at=NOON, why="too many")
        assert spent(story) == CHARGED

    def test_rejects_correction_below_credit_limit(self, story: Story) -> None:
        balance = Account.objects.get(tenant=story.tenants["a"]).balance
        Budget.objects.filter(tenant=story.tenants["a"]).update(credit_limit=-balance)
        with pytest.raises(CreditLimitError):
            correct(charge_of(story), a=-CREDIT, b=CREDIT)
        assert spent(story) == CHARGED


class TestDailySpendCheck:
    def test_finds_day_without_its_correction(self, story: Story) -> None:
        correct(charge_of(story), a=CREDIT, b=-CREDIT)
        DailySpend.objects.filter(tenant=story.tenants["a"]).update(amount=9)
        (line,) = broken()
        assert line.endswith("lines and corrections say 8.000000, kept 9.000000")

    def test_database_rejects_negative_day(self, story: Story) -> None:
        rows = DailySpend.objects.filter(tenant=story.tenants["a"])
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.update(amount=-1)
