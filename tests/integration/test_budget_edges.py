"""Test that a budget counts its period's daily costs, also at edges and before settlement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.checks import CHECKS
from billing.models import UsageLine
from evenshare_core.money.fixed_point import to_micro, worst_case_micro
from evenshare_core.units import HOUR_US
from tenants.models import Budget, DailySpend
from tenants.selectors.credit import PeriodUse, credit_left
from tests.integration.metering_story import Story, at

pytestmark = pytest.mark.django_db
MIDNIGHT = 12 * 60  # in minutes after noon, when the recorded events start
DAY, LEASE_MIN = timedelta(days=1), 30
WORST = worst_case_micro(2, 3_000_000, HOUR_US // 2)


def use_at(story: Story, when: datetime) -> PeriodUse:
    use = credit_left("demo", [story.tenants["a"].pk], when)[story.tenants["a"].pk].period
    assert use is not None
    return use


def charged_from(begins: datetime) -> int:
    """Return the charges of hours in the period that starts at `begins`, settled or not."""
    lines = UsageLine.objects.filter(hour__gte=begins)
    return sum(to_micro(amount) for amount in lines.values_list("amount", flat=True))


@pytest.fixture
def story() -> Story:
    """Return a story with a posted price of 3 credits, to which tests add leases of tenant a."""
    story = Story()
    story.post_round(0, price="3.000000")
    return story


def budget_of_the_day(story: Story, day: datetime) -> None:
    begins = day.astimezone(UTC).replace(hour=0, minute=0)
    Budget.objects.filter(tenant=story.tenants["a"]).update(
        period_amount=5,
        period_kind="custom",
        period_action="block",
        period_starts_at=begins,
        period_ends_at=begins + DAY,
    )


@pytest.mark.parametrize("settles", [True, False])
def test_budget_counts_open_terms_and_charges_of_its_own_days(story: Story, settles: bool) -> None:
    """A round runs every 15 minutes, from two hours before midnight to two hours after it."""
    lease = story.run(MIDNIGHT - 120, "a", borrowed=2, price="3.000000")
    seen, expected = [], []
    for minute in range(MIDNIGHT - 105, MIDNIGHT + 120, 15):
        if minute % LEASE_MIN == 0:
            story.renew(minute, lease)
        story.post_round(minute, price="3.000000")
        story.meter()
        if settles:
            story.settle()
        budget_of_the_day(story, at(minute))
        use = use_at(story, at(minute))
        seen.append(use.used_micro)
        expected.append(charged_from(use.begins) + WORST)
    assert seen == expected
    assert CHECKS["daily_spend_equals_lines"]().violations == []


def test_unsettled_charges_do_not_reduce_next_period(story: Story) -> None:
    lease = story.run(MIDNIGHT - 50, "a", borrowed=4, price="3.000000")
    story.end(MIDNIGHT - 2, lease)
    story.post_round(MIDNIGHT + 1)
    story.meter()
    budget_of_the_day(story, at(MIDNIGHT + 1))
    use = use_at(story, at(MIDNIGHT + 1))
    assert (use.committed_micro, use.promisable_micro) == (0, 5_000_000)
    assert Decimal(story.budget("a")[1]) == Decimal("9.6")


def test_late_settlement_counts_in_old_period(story: Story) -> None:
    """The charge belongs to the day of use, although it is settled on the next day."""
    lease = story.run(MIDNIGHT - 50, "a", borrowed=4, price="3.000000")
    story.end(MIDNIGHT - 2, lease)
    story.post_round(MIDNIGHT + 1)
    story.meter()
    story.settle()
    rows = DailySpend.objects.filter(tenant=story.tenants["a"])
    assert list(rows.values_list("day", "amount", "unsettled")) == [
        (at(MIDNIGHT - 1).date(), Decimal("9.6"), Decimal(0))
    ]
