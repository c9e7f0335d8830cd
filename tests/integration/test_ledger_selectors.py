"""Test the data of money pages, and the number of queries that each page needs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from billing.models import PostedPrice, Transfer
from billing.selectors.accounts import account_summary, ledger_page, ledger_row
from billing.selectors.hours import account_hours
from billing.selectors.income import lines_of_transfer
from billing.selectors.prices import price_history, prices_now
from billing.selectors.usage import job_charges, job_costs
from scheduling.models import GpuType
from tenants.models import Budget
from tests.integration.metering_story import Story, at

pytestmark = pytest.mark.django_db


def plain(*amounts: Decimal) -> list[str]:
    return [f"{amount.normalize():f}" for amount in amounts]


@pytest.fixture
def story() -> Story:
    """Write a settled hour in which a pays 3 credits to b and c, and half of the open next hour."""
    story = Story({"a": 4, "b": 4, "c": 2}, capacity=10)
    story.post_round(0, price="3.000000")
    lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
    story.post_round(30)
    story.renew(30, lease, price="1.000000")
    story.post_round(60, price="2.000000")
    story.renew(60, lease, price="2.000000")
    story.end(90, lease)
    story.post_round(90, price="0.500000")
    story.meter()
    story.settle()
    return story


class TestAccountSummary:
    def test_shows_paid_earned_and_open_amounts(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(6):  # two queries set the tenant scope
            payer = account_summary(story.tenants["a"].pk, "demo", since=at(0))
        assert plain(payer.paid, payer.open_paid, payer.net) == ["6", "3", "-6"]
        assert plain(payer.borrowed_gpu_h, payer.own_gpu_h) == ["3", "6"]
        # The term that ended at 13:00 is settled with the next hour, which is still open.
        assert plain(payer.balance) == ["-3"]
        lender = account_summary(story.tenants["b"].pk, "demo", since=at(0))
        assert plain(lender.earned, lender.open_earned) == ["4", "2"]
        assert plain(lender.lent_gpu_h, lender.balance) == ["2", "2"]

    def test_omits_older_amounts_but_not_open_ones(self, story: Story) -> None:
        later = account_summary(story.tenants["a"].pk, "demo", since=at(120))
        assert plain(later.paid, later.open_paid) == ["0", "3"]

    def test_reserves_for_running_terms_only(self, story: Story) -> None:
        tenant = story.tenants["a"]
        Budget.objects.update_or_create(
            tenant=tenant, book="demo", defaults={"reserved": Decimal("3.250000")}
        )
        payer = account_summary(tenant.pk, "demo", since=at(0))
        assert plain(payer.reserved, payer.open_paid, payer.reserved_for_open_terms) == [
            "3.25",
            "3",
            "0.25",
        ]

    def test_is_empty_without_account(self, story: Story) -> None:
        assert account_summary(999, "demo", since=at(0)).balance == 0


class TestAccountHours:
    def test_add_up_to_account_summary(self, story: Story, django_assert_num_queries: Any) -> None:
        payer = story.tenants["a"].pk
        with django_assert_num_queries(5):  # two queries set the tenant scope
            hours = account_hours(payer, "demo", since=at(0))
        assert [(row.hour, *plain(row.earned, row.paid)) for row in hours] == [
            (at(0), "0", "3"),
            (at(60), "0", "3"),
        ]
        for tenant in story.tenants.values():
            whole = account_summary(tenant.pk, "demo", since=at(0))
            rows = account_hours(tenant.pk, "demo", since=at(0))
            assert sum(row.net for row in rows) == whole.net
            assert sum(row.earned for row in rows) == whole.earned

    def test_begin_with_requested_hour(self, story: Story) -> None:
        hours = account_hours(story.tenants["b"].pk, "demo", since=at(75))
        assert [(row.hour, *plain(row.earned)) for row in hours] == [(at(60), "2")]

    def test_are_empty_without_account(self, story: Story) -> None:
        assert account_hours(999, "demo", since=at(0)) == []


class TestLedgerPage:
    def test_shows_each_transfer_with_all_sides(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(7):  # two queries set the tenant scope
            (row,), following = ledger_page(story.tenants["a"].pk, "demo")
        assert plain(row.paid, row.earned) == ["3", "0"]
        assert (row.borrower, row.hour) == ("a", at(0))
        assert [(e.tenant, str(e.amount)) for e in row.entries] == [
            ("a", "-3.000000"),
            ("b", "2.000000"),
            ("c", "1.000000"),
        ]
        assert following is None

    def test_shows_lender_what_it_lent_itself(self, story: Story) -> None:
        sides = {
            slug: ledger_page(story.tenants[slug].pk, "demo")[0][0] for slug in ("a", "b", "c")
        }
        assert sides["a"].borrowed_gpu_h == Decimal("1.000000")
        assert sides["a"].lent_gpu_h is None
        assert [sides[slug].borrowed_gpu_h for slug in ("b", "c")] == [None, None]
        lent = [sides[slug].lent_gpu_h or Decimal(0) for slug in ("b", "c")]
        assert plain(*lent) == ["0.666667", "0.333333"]
        summary = account_summary(story.tenants["b"].pk, "demo", since=at(0))
        assert summary.lent_gpu_h > lent[0]  # including the open hour

    def test_pages_by_key_without_loss_or_repetition(self, story: Story) -> None:
        lease = story.run(100, "a", borrowed=2, price="1.000000")  # including payments to itself
        for minute in range(120, 600, 30):
            story.post_round(minute)
            story.renew(minute, lease)
        story.post_round(720)
        story.meter()
        story.settle()
        tenant = story.tenants["a"].pk
        seen, before = [], None
        while True:
            rows, before = ledger_page(tenant, "demo", before=before, limit=2)
            seen += [row.transfer for row in rows]
            if before is None:
                break
        touching = Transfer.objects.filter(entries__account__tenant_id=tenant).distinct()
        assert len(seen) == len(set(seen)) == touching.count() > 8

    def test_hides_transfer_from_uninvolved_tenant(self, story: Story) -> None:
        transfer = Transfer.objects.get()
        assert ledger_row(transfer.pk, tenant_id=story.tenants["b"].pk) is not None
        assert ledger_row(transfer.pk, tenant_id=999) is None


class TestJobCharges:
    def test_list_each_term_with_its_lenders(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        job = story.pool.jobs.get()
        with django_assert_num_queries(5):  # two queries set the tenant scope
            terms = job_charges(job.pk)
        assert [(t.term, str(t.charge), t.settled, t.own_gpus) for t in terms] == [
            (1, "3.000000", True, 4),
            (2, "1.000000", False, 4),
            (3, "2.000000", False, 4),
        ]
        assert [(s.tenant_id, str(s.amount)) for s in terms[0].lenders] == [
            (story.tenants["b"].pk, "2.000000"),
            (story.tenants["c"].pk, "1.000000"),
        ]

    def test_add_up_to_costs_of_job(self, story: Story) -> None:
        job = story.pool.jobs.get()
        terms = job_charges(job.pk)
        hours = sum(term.own_gpu_h + term.borrowed_gpu_h for term in terms)
        charge = sum(term.charge for term in terms)
        assert hours > 0
        assert job_costs([job.pk, 0]) == {job.pk: (hours, charge)}


class TestTransferLines:
    def test_add_up_to_entries(self, story: Story, django_assert_num_queries: Any) -> None:
        transfer = Transfer.objects.select_related("book").get()
        tenants = {slug: story.tenants[slug].pk for slug in "abc"}
        with django_assert_num_queries(7):  # four queries set tenant scopes
            paid, earned = lines_of_transfer(transfer, tenants["a"])
        assert ([str(line.paid) for line in paid], earned) == (["3.000000"], [])
        for slug, amount in (("b", "2.000000"), ("c", "1.000000")):
            paid, earned = lines_of_transfer(transfer, tenants[slug])
            assert (paid, [str(line.earned) for line in earned]) == ([], [amount])


class TestPrices:
    def test_current_prices_are_last_posted(
        self, story: Story, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(1):
            (price,) = prices_now(story.pool.pk)
        assert (str(price.price), price.posted_at) == ("0.500000", at(90))

    def test_current_prices_begin_with_slowest_type(self, story: Story) -> None:
        newer = PostedPrice.objects.latest("pk")
        GpuType.objects.update(rank=3)
        for name, rank in (("a100", 5), ("t4", 1)):
            newer.pk, newer.gpu_type = None, GpuType.objects.create(name=name, rank=rank)
            newer.save()
        assert [point.gpu_type for point in prices_now(story.pool.pk)] == ["t4", "v100", "a100"]

    def test_past_prices_are_thinned_for_chart(self, story: Story) -> None:
        every = price_history(story.pool.pk, "v100", since=at(0), until=at(91))
        assert [str(p.price) for p in every] == ["3.000000", "1.000000", "2.000000", "0.500000"]
        two = price_history(story.pool.pk, "v100", since=at(0), until=at(91), points=2)
        assert [str(p.price) for p in two] == ["1.000000", "0.500000"]
