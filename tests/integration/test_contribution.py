"""Test that a contribution statement has the ledger's sums and covers the whole quota."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection

from billing.models import Account, Entry, Transfer
from billing.selectors import revenue
from billing.selectors.contribution import Contribution, contribution
from billing.selectors.income import income_lines
from billing.selectors.quota_use import counted_quota
from billing.selectors.revenue import FairnessStep, revenue_history
from billing.selectors.statements import StatementPeriod
from billing.services.corrections import correct_transfer
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.units import HOUR_US
from tests.integration.metering_story import Story, at

pytestmark = pytest.mark.django_db
ZERO = Decimal(0)
BEGIN, LATER = at(-9999), at(10 * 365 * 24 * 60)


@pytest.fixture
def story() -> Story:
    """Play three days: a borrows from b and c, later b borrows from all, itself included.

    An hour is open.
    """
    story = Story({"a": 4, "b": 4, "c": 2}, capacity=12)
    story.entitle(0, {"a": 4, "b": 4, "c": (2, 1)}, 12)
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
    fourth = story.run(52 * 60, "a", own=4, borrowed=3, price="0.700000")
    story.end(52 * 60 + 20, fourth)
    story.run(52 * 60 + 25, "c", own=1)
    story.post_round(52 * 60 + 30)
    story.meter()
    story.settle()
    return story


def statement(story: Story, slug: str, **asked: Any) -> Contribution:
    times = {"since": BEGIN, "until": LATER, **asked}
    return contribution(story.tenants[slug].pk, story.pool.pk, "demo", **times)


def lines(story: Story, slug: str, **asked: Any) -> list[Any]:
    times = {"since": BEGIN, "until": LATER, "limit": 1000, **asked}
    return income_lines(story.tenants[slug].pk, story.pool.pk, "demo", **times)


def earned(slug: str, since: datetime = BEGIN, until: datetime = LATER) -> Decimal:
    """Return the sum of the account's usage entries."""
    rows = Entry.objects.filter(
        account__tenant__slug=slug, amount__gt=0, transfer__code="usage",
        transfer__effective_at__gte=since, transfer__effective_at__lt=until,
    )  # fmt: skip
    return sum((row.amount for row in rows), ZERO)


class TestContributionTotal:
    def test_matches_ledger_for_any_time_range(self, story: Story) -> None:
        seen = ZERO
        for slug in "abc":
            for first, last in ((-9, 9999), (0, 1.5), (1.5, 2), (0.3, 26), (25, 26), (26, 52.2)):
                since, until = at(60 * first), at(60 * last)
                shown = statement(story, slug, since=since, until=until)
                assert shown.reconciliation.ledger == earned(slug, since, until)
                assert shown.reconciliation.difference == ZERO
                assert shown.total.earned == (
                    shown.reconciliation.settled + shown.reconciliation.open
                )
                seen += shown.total.earned
        assert seen > 0

    def test_shows_unsettled_income_as_open(self, story: Story) -> None:
        before = {slug: statement(story, slug).reconciliation for slug in "abc"}
        assert before["b"].open > 0
        story.looked(54 * 60)
        story.settle()
        for slug in "abc":
            after = statement(story, slug).reconciliation
            assert after.open == ZERO
            assert after.settled == before[slug].settled + before[slug].open == after.ledger

    def test_shows_corrections_separately(self, story: Story) -> None:
        source = Transfer.objects.filter(code="usage").order_by("hour")[0]
        accounts = {row.tenant.slug: row.pk for row in Account.objects.all() if row.tenant}
        correct_transfer(
            source, entries=[(accounts["a"], 250_000), (accounts["b"], -250_000)],
            effective_at=at(60 * 30), why="a node was slow",
        )  # fmt: skip
        shown = statement(story, "b").reconciliation
        assert (shown.corrections, shown.corrections_count) == (Decimal("-0.250000"), 1)
        assert shown.difference == ZERO
        assert statement(story, "b", until=at(60 * 30)).reconciliation.corrections_count == 0

    def test_matches_sums_by_every_grouping(self, story: Story) -> None:
        for slug in "abc":
            shown = statement(story, slug, period=StatementPeriod.WEEK)
            for sums in (shown.periods, shown.gpu_types, shown.borrowers):
                assert sum(row.lines for row in sums) == shown.total.lines > 0
                assert sum((row.earned for row in sums), ZERO) == shown.total.earned
        days = statement(story, "b").periods
        assert [row.key.day for row in days if isinstance(row.key, datetime)] == [4, 5, 6]

    def test_matches_plain_sql_over_lines_and_weights(self, story: Story) -> None:
        """SQL computes shares again from GPUs, price, time and weights, to a micro-credit."""
        with connection.cursor() as cursor:
            cursor.execute(
                """
                SELECT tenant.slug, count(*), sum(share.amount),
                       sum(line.gpus * line.price * extract(epoch FROM
                               line.ends_at - line.starts_at)::numeric / 3600
                           * share.weight / every.weights)
                FROM billing_usageshare share
                JOIN billing_usageline line ON line.id = share.line_id
                JOIN billing_account account ON account.id = share.account_id
                JOIN tenants_tenant tenant ON tenant.id = account.tenant_id
                CROSS JOIN LATERAL (SELECT sum(one.weight) AS weights
                                    FROM billing_usageshare one WHERE one.line_id = line.id) every
                GROUP BY tenant.slug
                """
            )
            rows = {slug: row for slug, *row in cursor.fetchall()}
        assert set(rows) == set("abc")
        for slug, (count, stored, computed) in rows.items():
            total = statement(story, slug).total
            assert (total.lines, total.earned) == (count, stored)
            assert abs(total.earned - computed) <= Decimal("0.0000015") * count

    def test_is_empty_without_account(self, story: Story) -> None:
        shown = contribution(999, story.pool.pk, "demo", since=BEGIN, until=LATER)
        assert (shown.total.lines, shown.periods) == (0, ())
        assert income_lines(999, story.pool.pk, "demo", since=BEGIN, until=LATER) == []

    def test_query_count_is_independent_of_lines(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(6):  # two queries set the tenant scope
            statement(story, "b")
        with django_assert_num_queries(4):
            lines(story, "b")


class TestIncomeLine:
    def test_is_share_x_price_x_gpus_x_time(self, story: Story) -> None:
        for slug in "abc":
            every = lines(story, slug)
            assert sum((line.earned for line in every), ZERO) == earned(slug) + (
                statement(story, slug).reconciliation.open
            )
            for line in every:
                held = Fraction(
                    (line.ends_at - line.starts_at) // timedelta(microseconds=1), HOUR_US
                )
                charge = line.gpus * Fraction(line.price) * held + Fraction(line.carried) / 10**6
                assert abs(charge - Fraction(line.charge)) <= Fraction(1, 10**6)
                part = Fraction(line.weight, line.weights)
                assert abs(Fraction(line.charge) * part - Fraction(line.earned)) < Fraction(
                    1, 10**6
                )

    def test_names_round_lease_and_transfer(self, story: Story) -> None:
        (newest, *_, oldest) = lines(story, "b")
        assert (newest.transfer, newest.round, newest.lease, newest.term) == (None, 5, 1, 1)
        transfer = Transfer.objects.get(pk=oldest.transfer)
        assert (transfer.hour, transfer.tenant_id) == (oldest.hour, oldest.borrower_id)
        assert transfer.effective_at == oldest.counted_at

    def test_appears_on_exactly_one_page(self, story: Story) -> None:
        every, key, pages = lines(story, "b"), None, []
        while page := lines(story, "b", before=key, limit=1):
            pages += page
            key = page[-1].key
        assert pages == every
        assert len(pages) > 2


class TestQuotaUse:
    def test_is_counted_exactly_over_time(self, story: Story) -> None:
        """In the first 90 minutes a uses its whole quota.

        Two GPUs are borrowed; b could lend 4 and c 1.
        """
        shown = {slug: self.of(story, slug, 0, 90) for slug in "abc"}
        quarter = 90 * 60 * 10**6
        assert shown["a"].own_us == shown["a"].quota_us == 4 * quarter
        # Lendable GPUs: 4 of b, 1 of c, 2 unallocated.
        assert shown["b"].lent_us == Fraction(4, 7) * 2 * quarter
        assert shown["c"].kept_us == quarter
        assert shown["c"].lent_us == Fraction(1, 7) * 2 * quarter
        assert shown["b"].free_us == 4 * quarter - shown["b"].lent_us

    def of(self, story: Story, slug: str, first: float, last: float) -> Any:
        counted = counted_quota(
            story.tenants[slug].pk, story.pool.pk, since=at(first), until=at(last)
        )
        return counted.by_type["v100"]

    def test_counts_running_terms_up_to_metered_time(self, story: Story) -> None:
        counted = counted_quota(
            story.tenants["c"].pk, story.pool.pk, since=at(52 * 60), until=at(60 * 60)
        )
        assert counted.until == at(52 * 60 + 30)
        assert counted.by_type["v100"].own_us == 5 * 60 * 10**6

    def test_matches_lent_quota_of_lines(self, story: Story) -> None:
        """Over whole terms the lines and the sums over time give the same lent quota."""
        for slug in "abc":
            use = self.of(story, slug, 0, 52 * 60 + 30)
            lent = sum((line.lent_gpu_h for line in lines(story, slug)), ZERO)
            assert abs(Fraction(lent) - use.lent_us / HOUR_US) < Fraction(1, 10**5)

    def test_rejects_range_over_31_days(self, story: Story) -> None:
        with pytest.raises(ValueError, match="31 days"):
            counted_quota(1, story.pool.pk, since=BEGIN, until=LATER)


class TestRevenueFairness:
    def test_is_income_share_over_quota_share(self, story: Story) -> None:
        history = revenue_history(
            story.pool.pk, since=at(0), until=at(3 * 24 * 60), step=FairnessStep.DAY
        )
        assert history is not None
        ids = {slug: tenant.pk for slug, tenant in story.tenants.items()} | {"": 0}
        whole = history.whole
        assert whole.parts == {
            ids["a"]: Fraction(4, 12), ids["b"]: Fraction(4, 12), ids["c"]: Fraction(2, 12),
            0: Fraction(2, 12),
        }  # fmt: skip
        assert {slug: whole.income[ids[slug]] for slug in "abc"} == {
            slug: to_micro(earned(slug)) for slug in "abc"
        }
        total = sum(whole.income.values())
        for tenant, part in whole.parts.items():
            assert whole.alpha[tenant] == Fraction(whole.income.get(tenant, 0), total) / part
        # The average of the alphas, weighted by their parts of the time, is 1.
        assert sum(whole.parts[one] * (whole.alpha[one] or 0) for one in whole.parts) == 1

    def test_has_value_for_each_step(self, story: Story) -> None:
        history = revenue_history(
            story.pool.pk, since=at(0), until=at(3 * 24 * 60), step=FairnessStep.DAY
        )
        assert history is not None
        assert [period.begins_at.day for period in history.periods] == [4, 5, 6]
        for tenant in history.whole.income:
            parts = [period.income.get(tenant, 0) for period in history.periods]
            assert sum(parts) == history.whole.income[tenant]
        assert history.until == at(53 * 60)

    def test_has_no_steps_before_pool_existed(
        self, story: Story, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each step takes time, and a tenant may request decades in steps of an hour."""
        made = []

        def counted(*args: Any) -> revenue.RevenuePeriod:
            made.append(args)
            return count(*args)

        count = revenue._period
        monkeypatch.setattr(revenue, "_period", counted)
        until, step = at(3 * 24 * 60), FairnessStep.HOUR
        long_before = at(0) - timedelta(days=20 * 365)
        decades = revenue_history(story.pool.pk, since=long_before, until=until, step=step)
        assert len(made) <= 3 * 24 + 1
        close = revenue_history(story.pool.pk, since=at(0), until=until, step=step)
        assert decades is not None
        assert close is not None
        assert decades.periods == close.periods

    def test_is_none_without_settled_income(self, story: Story) -> None:
        nowhere = revenue_history(999, since=BEGIN, until=LATER, step=FairnessStep.DAY)
        assert nowhere is None

    def test_alpha_is_none_if_no_tenant_earned(self, story: Story) -> None:
        quiet = revenue_history(
            story.pool.pk, since=at(60 * 5), until=at(60 * 9), step=FairnessStep.HOUR
        )
        assert quiet is not None
        assert set(quiet.whole.alpha.values()) == {None}
