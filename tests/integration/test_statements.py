"""Test that an account's statement has the same sum by period, by counterparty and by line."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Entry, Transfer, UsageShare
from billing.selectors.accounts import account_summary
from billing.selectors.statements import StatementPeriod, account_statement, statement_lines
from tests.integration.metering_story import Story, at

pytestmark = pytest.mark.django_db
ZERO = Decimal(0)
LATER = at(10 * 365 * 24 * 60)


@pytest.fixture
def story() -> Story:
    """Write three days of transfers: a borrows from b and c, then b from all, itself included."""
    story = Story({"a": 4, "b": 4, "c": 2}, capacity=12)
    story.post_round(0, price="3.000000")
    first = story.run(0, "a", own=4, borrowed=2, price="3.000000")
    story.post_round(90, price="1.234567")
    story.end(90, first)
    second = story.run(24 * 60, "b", borrowed=5, price="1.234567")
    story.post_round(25 * 60 + 7, price="0.500000")
    story.end(25 * 60 + 7, second)
    third = story.run(49 * 60, "a", borrowed=1, price="0.500000")
    story.post_round(52 * 60, price="0.500000")
    story.end(50 * 60, third)
    story.post_round(53 * 60)
    story.meter()
    story.settle()
    return story


def entries(slug: str | None, since: datetime, until: datetime) -> list[Entry]:
    """Return the entries of an account, read one by one."""
    rows = Entry.objects.select_related("transfer").filter(account__tenant__slug=slug)
    return [row for row in rows if since <= row.transfer.effective_at < until]


def whole(story: Story, slug: str, **asked: Any) -> Any:
    return account_statement(
        story.tenants[slug].pk, "demo", **{"since": at(-9999), "until": LATER, **asked}
    )


class TestStatement:
    def test_sums_to_entries_of_its_time_range(self, story: Story) -> None:
        for slug in "abc":
            for first, last in ((0, 9999), (0, 13), (20, 30), (25, 26), (60, 70)):
                hours = at(60 * first), at(60 * last)
                self.sums(story, slug, *hours)

    def sums(self, story: Story, slug: str, since: datetime, until: datetime) -> None:
        shown = whole(story, slug, since=since, until=until)
        mine = entries(slug, since, until)
        assert shown.earned == sum((row.amount for row in mine if row.amount > 0), ZERO)
        assert shown.paid == -sum((row.amount for row in mine if row.amount < 0), ZERO)
        before = entries(slug, at(-9999), since)
        assert shown.opening == sum((row.amount for row in before), ZERO)
        assert shown.closing == shown.opening + sum((row.amount for row in mine), ZERO)
        for column in ("earned", "paid"):
            others = sum((getattr(row, column) for row in shown.counterparties), ZERO)
            assert others == getattr(shown, column)
        tenant = story.tenants[slug].pk
        opening, lines = statement_lines(tenant, "demo", since=since, until=until, limit=1000)
        assert opening == (shown.opening if lines else ZERO)
        assert sum((line.earned for line in lines), ZERO) == shown.earned
        assert sum((line.paid for line in lines), ZERO) == shown.paid
        assert {line.transfer for line in lines} == {row.transfer_id for row in mine}

    def test_names_each_counterparty_with_amounts(self, story: Story) -> None:
        expected: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        shares = UsageShare.objects.filter(amount__gt=0)
        for share in shares.select_related("line__tenant", "account__tenant"):
            lender = share.account.tenant.slug if share.account.tenant else ""
            expected[share.line.tenant.slug, lender] += share.amount
        assert len(expected) >= 5
        for slug in "abc":
            shown = whole(story, slug).counterparties
            paid = {(slug, row.name): row.paid for row in shown if row.paid}
            earned = {(row.name, slug): row.earned for row in shown if row.earned}
            assert paid == {pair: sum_ for pair, sum_ in expected.items() if pair[0] == slug}
            assert earned == {pair: sum_ for pair, sum_ in expected.items() if pair[1] == slug}

    def test_has_row_for_each_period_with_transfer(self, story: Story) -> None:
        days = whole(story, "a").periods
        assert len(days) == len({row.begins_at.date() for row in days}) > 1
        assert all(row.begins_at.hour == row.begins_at.minute == 0 for row in days)
        months = whole(story, "a", period=StatementPeriod.MONTH).periods
        assert [(row.begins_at.month, row.begins_at.day) for row in months] == [(5, 1)]
        assert months[0].net == sum((row.net for row in days), ZERO)
        weeks = whole(story, "a", period=StatementPeriod.WEEK).periods
        assert [row.begins_at.weekday() for row in weeks] == [0]

    def test_shows_allowances_separately(self, story: Story) -> None:
        story.allow("a", 5)
        given = [row for row in whole(story, "a").counterparties if row.code != "usage"]
        assert [(row.code, row.earned, row.paid) for row in given] == [
            (Transfer.Code.ALLOWANCE, Decimal(5), ZERO)
        ]

    def test_shows_borrowed_and_lent_gpu_hours(self, story: Story) -> None:
        summary = account_summary(story.tenants["b"].pk, "demo", since=at(-9999))
        _, lines = statement_lines(
            story.tenants["b"].pk, "demo", since=at(-9999), until=LATER, limit=1000
        )
        lent = sum((line.lent_gpu_h or ZERO for line in lines), ZERO)
        borrowed = sum((line.borrowed_gpu_h or ZERO for line in lines), ZERO)
        assert lent == summary.lent_gpu_h > 0
        assert borrowed == summary.borrowed_gpu_h > 0

    def test_is_empty_without_account(self) -> None:
        shown = account_statement(999, "demo", since=at(0), until=at(1))
        assert (shown.opening, shown.periods, shown.counterparties) == (ZERO, (), ())
        assert statement_lines(999, "demo", since=at(0), until=at(1), limit=9) == (ZERO, [])

    def test_query_count_is_independent_of_transfers(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(6):  # two queries set the tenant scope
            whole(story, "a")
