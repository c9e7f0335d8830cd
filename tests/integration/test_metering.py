"""Test how terms become usage lines, shares and settlements."""

from __future__ import annotations

import pytest

from billing.ledger import LedgerError
from billing.metering import meter_pool
from billing.models import Entry, PostedPrice, Transfer, UsageLine, UsageShare
from billing.selectors.events import EventGapError
from billing.tasks import meter
from evenshare_core.money.fixed_point import to_micro
from scheduling.models import LeaseEvent, Pool, PoolFence
from tests.integration.metering_story import Story, at, lines_and_shares, swept_at_once

pytestmark = pytest.mark.django_db

HOUR_US = 3600 * 1_000_000


def only_line(meter: str = "borrowed") -> UsageLine:
    return UsageLine.objects.get(meter=meter)


class TestTerm:
    def test_is_charged_for_time_it_held_gpus(self) -> None:
        story = Story()
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.end(10, lease)
        story.post_round(15)
        assert story.meter().lines == 2
        line = only_line()
        assert (str(line.amount), line.gpus, line.starts_at, line.ends_at) == (
            "1.000000",  # charge: 2 GPUs x 3 credits x 10 minutes
            2,
            at(0),
            at(10),
        )
        assert (str(only_line("own").amount), only_line("own").gpus) == ("0.000000", 4)

    def test_begins_when_executor_started_it(self) -> None:
        story = Story()
        lease = story.grant(0, "a", borrowed=2, price="3.000000")
        story.start(5, lease)
        story.end(10, lease)
        story.post_round(15)
        story.meter()
        assert (only_line().starts_at, str(only_line().amount)) == (at(5), "0.500000")

    def test_renewal_closes_it_at_its_own_price(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=1, price="1.000000")
        story.post_round(30)
        story.renew(30, lease, price="2.000000")
        story.end(60, lease)
        story.post_round(61)
        story.meter()
        amounts = [str(line.amount) for line in UsageLine.objects.order_by("term")]
        assert amounts == ["0.500000", "1.000000"]

    def test_unstarted_term_costs_nothing_and_frees_reservation(self) -> None:
        story = Story()
        lease = story.grant(0, "a", borrowed=2, price="3.000000")
        assert story.budget("a") == ("0.000000", "3.000000")
        story.end(10, lease)
        story.post_round(15)
        story.meter()
        assert not UsageLine.objects.exists()
        assert story.budget("a") == ("0.000000", "0.000000")

    def test_term_renewed_before_start_is_charged_from_start(self) -> None:
        story = Story()
        lease = story.grant(0, "a", borrowed=1, price="1.000000")
        story.post_round(30)
        story.renew(30, lease)
        story.start(36, lease)
        story.end(66, lease)
        story.post_round(70)
        story.meter()
        assert (only_line().term, str(only_line().amount)) == (2, "0.500000")


class TestLenders:
    def test_are_paid_in_proportion_to_idle_quota(self) -> None:
        story = Story({"a": 4, "b": 4, "c": 4}, capacity=12)
        story.run(0, "b", own=2)  # b has 2 idle GPUs, c has 4, the operator none
        lease = story.run(0, "a", own=4, borrowed=3, price="4.000000")
        story.end(30, lease)
        story.post_round(30)
        story.meter()
        shares = UsageShare.objects.order_by("account__tenant_id")
        assert [(s.account.tenant.slug, str(s.amount)) for s in shares if s.account.tenant] == [
            ("b", "2.000000"),
            ("c", "4.000000"),
        ]
        assert [share.weight for share in shares] == [1, 2]
        assert sum(share.lent_gpu_us for share in shares) == 3 * HOUR_US // 2

    def test_earn_for_time_their_quota_was_idle(self) -> None:
        story = Story({"a": 0, "b": 4, "c": 4})
        lease = story.run(0, "a", borrowed=2, price="6.000000")
        busy = story.run(10, "b", own=4)  # b has idle GPUs for 20 of 30 minutes, c for all
        story.end(20, busy)
        story.end(30, lease)
        story.post_round(30)
        story.meter()
        story.settle()
        # Each gets half for the first 20 minutes; c gets everything for the last 10.
        assert [str(share.amount) for share in UsageShare.objects.order_by("account__tenant")] == [
            "2.000000",
            "4.000000",
        ]

    def test_lend_no_more_than_they_allow(self) -> None:
        story = Story({"a": 0, "b": 4, "c": 4})
        story.entitle(0, {"a": 0, "b": (4, 1), "c": (4, 0)}, 8)
        lease = story.run(0, "a", borrowed=1, price="2.000000")
        story.end(30, lease)
        story.post_round(30)
        story.meter()
        share = UsageShare.objects.get()
        assert (share.account.tenant_id, str(share.amount)) == (story.tenants["b"].pk, "1.000000")

    def test_operator_earns_for_gpus_without_quota(self) -> None:
        story = Story({"a": 0, "b": 2}, capacity=8)
        lease = story.run(0, "a", borrowed=4, price="2.000000")
        story.end(60, lease)
        story.post_round(120)
        story.meter()
        story.settle()
        assert story.balances() == {"a": "-8.000000", "b": "2.000000", "operator": "6.000000"}

    def test_operator_earns_all_if_no_quota_is_idle(self) -> None:
        story = Story({"a": 4, "b": 4})
        story.run(0, "b", own=4)
        lease = story.run(0, "a", own=4, borrowed=1, price="2.000000")
        story.end(60, lease)
        story.post_round(120)
        story.meter()
        story.settle()
        assert story.balances() == {"a": "-2.000000", "operator": "2.000000"}


class TestEvents:
    def test_out_of_order_events_give_exact_integrals(self) -> None:
        story = Story({"a": 0, "b": 4, "c": 4})
        busy = story.run(0, "b", own=4)
        lease = story.run(0, "a", borrowed=2, price="6.000000")
        story.post_round(5)
        story.end(25, lease)  # reported first, although it ended last
        story.end(15, busy)
        story.post_round(30)
        story.meter()
        weights = {s.account.tenant_id: s.weight for s in UsageShare.objects.all()}
        # Like c, b has idle GPUs for 10 of the 25 minutes.
        assert weights == {story.tenants["b"].pk: 1, story.tenants["c"].pk: 4}

    def test_late_reports_are_charged_exactly(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=2, price="3.000000")
        story.post_round(15)
        story.end(10, lease)
        story.post_round(20)
        story.meter()
        assert (str(only_line().amount), only_line().ends_at) == ("1.000000", at(10))

    def test_late_end_before_renewal_counts_from_renewal(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=2, price="3.000000")
        story.post_round(15)
        story.renew(15, lease)
        story.end(10, lease)
        story.post_round(20)
        story.meter()
        assert [str(x.amount) for x in UsageLine.objects.order_by("term")] == [
            "1.500000",
            "0.000000",
        ]
        assert story.budget("a") == ("0.000000", "1.500000")

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_give_same_lines_in_batches_of_any_size(self, limit: int) -> None:
        story = eventful()
        story.meter(limit)
        assert lines_and_shares() == swept_at_once(story.pool.pk) != []

    def test_wait_for_later_round_or_check(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=2, price="3.000000")
        story.post_round(5)
        story.end(10, lease)
        assert story.meter().lines == 0
        story.looked(11)
        assert story.meter().lines == 1

    def test_are_all_metered_without_fence(self) -> None:
        story = Story()
        story.end(10, story.run(0, "a", own=4, borrowed=2, price="3.000000"))
        story.post_round(60)
        PoolFence.objects.all().delete()
        assert story.meter().lines == 2
        assert story.settle().transfers == 1

    def test_gap_in_event_numbers_is_rejected(self) -> None:
        story = Story()
        story.fence.next_event += 1
        story.post_round(5)
        with pytest.raises(EventGapError):
            meter_pool(story.pool.pk)


class TestMeterTask:
    def test_continues_with_other_pools_if_one_fails(self) -> None:
        story = Story()
        lease = story.run(0, "a", borrowed=2, price="3.000000")
        story.end(10, lease)
        story.post_round(15)
        broken = Pool.objects.create(name="another", book="demo")
        Pool.objects.filter(pk=broken.pk).update(id=0)  # the first tenant in order
        data = {"valid_from_round": 1, "prices": []}
        LeaseEvent.objects.create(pool_id=0, number=7, kind="priced", at=at(0), data=data)
        assert meter("a later version's argument", another=1) == 1

    def test_settles_finished_hours(self) -> None:
        story = full_hours()
        meter()
        assert Transfer.objects.count() == 2
        assert story.balances() == {"a": "-4.000000", "b": "4.000000"}


def full_hours() -> Story:
    """Write two hours in which a borrows 2 GPUs from b at 1 credit, then a check of the pool."""
    story = Story({"a": 0, "b": 8})
    lease = story.run(0, "a", borrowed=2, price="1.000000")
    story.post_round(59)
    story.renew(59, lease)
    story.end(120, lease)
    story.post_round(180)
    return story


class TestPrices:
    def test_are_recorded_with_round_that_posted_them(self) -> None:
        story = Story()
        story.post_round(5, price="0.750000")
        story.meter()
        price = PostedPrice.objects.get()
        assert (str(price.price), price.valid_from_round, price.posted_at) == (
            "0.750000",
            2,
            at(5),
        )


class TestHour:
    def test_is_settled_once_after_its_end(self) -> None:
        story = Story()
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.end(10, lease)
        story.post_round(59)
        story.meter()
        assert story.settle().transfers == 0
        assert story.budget("a") == ("0.000000", "1.000000")
        story.looked(60)
        assert story.settle().transfers == 1
        assert story.balances() == {"a": "-1.000000", "b": "1.000000"}
        assert story.budget("a") == ("-1.000000", "0.000000")
        assert story.budget("b") == ("1.000000", "0.000000")
        assert story.settle().transfers == 0

    def test_gets_one_transfer_per_borrower(self) -> None:
        story = Story({"a": 0, "b": 0, "c": 8})
        leases = [story.run(0, name, borrowed=1, price="1.000000") for name in "aabb"]
        for lease in leases:
            story.end(30, lease)
        story.post_round(61)
        story.meter()
        assert story.settle().transfers == 2
        assert story.balances() == {"a": "-1.000000", "b": "-1.000000", "c": "2.000000"}
        assert {t.data["lines"] for t in Transfer.objects.all()} == {2}

    def test_transfer_summarizes_lines_of_borrower(self) -> None:
        story = Story({"a": 0, "b": 0, "c": 8})
        for name, gpus, minute in (("a", 1, 10), ("a", 2, 20), ("b", 3, 30), ("b", 1, 70)):
            story.end(minute, story.run(0, name, borrowed=gpus, price="1.000000"))
        story.post_round(121)
        story.meter()
        story.settle()
        minute_us = HOUR_US // 60
        told = {
            (tenant, hour): data
            for tenant, hour, data in Transfer.objects.values_list("tenant__slug", "hour", "data")
        }
        assert told == {
            ("a", at(0)): {"lines": 2, "borrowed_gpu_us": 50 * minute_us, "late_lines": 0},
            ("b", at(0)): {"lines": 1, "borrowed_gpu_us": 90 * minute_us, "late_lines": 0},
            ("b", at(60)): {"lines": 1, "borrowed_gpu_us": 70 * minute_us, "late_lines": 0},
        }
        times = Transfer.objects.values_list("effective_at", "hour").order_by("hour").distinct()
        assert list(times) == [(at(60), at(0)), (at(120), at(60))]
        assert {(row.book_id, row.pool_id, row.code) for row in Transfer.objects.all()} == {
            (story.book.pk, story.pool.pk, Transfer.Code.USAGE)
        }

    def test_omits_entries_of_zero(self) -> None:
        story = Story({"a": 0, "b": 4, "c": 4})
        story.end(0.12, story.run(0, "a", borrowed=1, price="0.000500"))
        story.post_round(61)
        story.meter()
        assert UsageShare.objects.filter(amount=0).exists()
        story.settle()
        assert all(entry.amount for entry in Entry.objects.all())
        assert story.balances() == {"a": "-0.000001", "b": "0.000001"}

    def test_several_hours_are_settled_at_once(self) -> None:
        story = Story({"a": 0, "b": 8})
        lease = story.run(0, "a", borrowed=2, price="1.000000")
        for minute in range(30, 1440, 30):
            story.post_round(minute)
            story.renew(minute, lease)
        story.end(1440, lease)
        story.post_round(1441)
        story.meter()
        settled = story.settle()
        # A term that ends on the hour is settled with the next hour, so the last term is still
        # open.
        assert (settled.transfers, settled.until) == (24, at(1440))
        story.looked(1500)
        story.settle()
        assert story.balances() == {"a": "-48.000000", "b": "48.000000"}

    def test_late_usage_goes_to_next_hour(self) -> None:
        story = Story()
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.post_round(65)
        story.meter()
        story.settle()
        story.end(10, lease)
        story.post_round(125)
        story.meter()
        assert (only_line().ends_at, only_line().hour) == (at(10), at(60))
        story.settle()
        transfer = Transfer.objects.get()
        assert (transfer.hour, transfer.data["late_lines"]) == (at(60), 1)

    def test_stays_open_while_its_event_waits_for_metering(self) -> None:
        story = Story()
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.post_round(5)
        story.end(10, lease)
        story.meter()  # the end is not metered yet, because no later round exists
        story.looked(65)
        assert story.settle().until == at(0)
        story.meter()
        story.settle()
        assert Transfer.objects.get().hour == at(0)

    def test_stays_open_while_its_event_is_unread(self) -> None:
        story = Story()
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.post_round(5)
        story.meter()
        story.end(10, lease)
        story.looked(65)
        assert story.settle().until == at(0)
        story.meter()
        story.settle()
        transfer = Transfer.objects.get()
        assert (transfer.hour, transfer.data["late_lines"]) == (at(0), 0)

    def test_pays_self_lending_tenant_on_both_sides(self) -> None:
        story = Story()
        # own is 0, so a and b each have 4 idle GPUs
        lease = story.run(0, "a", borrowed=2, price="2.000000")
        story.end(30, lease)
        story.post_round(60)
        story.meter()
        story.settle()
        amounts = sorted(str(entry.amount) for entry in Entry.objects.all())
        assert amounts == ["-2.000000", "1.000000", "1.000000"]
        assert story.balances() == {"a": "-1.000000", "b": "1.000000"}

    def test_amount_beyond_credit_limit_is_still_owed(self) -> None:
        story = Story()
        story.allow("a", 1)
        account = story.tenants["a"].accounts.get()
        story.limit("a", 0)
        lease = story.run(0, "a", own=4, borrowed=2, price="3.000000")
        story.end(30, lease)
        story.post_round(60)
        story.meter()
        story.settle()
        account.refresh_from_db()
        assert (str(account.balance), str(account.overrun)) == ("-2.000000", "2.000000")
        with pytest.raises(LedgerError):
            story.allow("a", -3)


def eventful() -> Story:
    """Write two borrowers and two lenders, ends out of order or late, a renewal, a remainder."""
    story = Story({"a": 1, "b": 3, "c": 4})
    story.post_round(0, price="1.234567")
    first = story.run(0, "a", own=1, borrowed=2, price="1.234567")
    second = story.run(3, "b", own=1, price="1.234567")
    story.post_round(5, price="0.333333")
    story.end(4, second)
    third = story.run(7.01, "c", own=2, borrowed=1, price="0.333333")
    story.post_round(10, price="2.000001")
    story.renew(15, first, own=0, borrowed=3, price="2.000001")
    story.post_round(15)
    story.end(19, first)
    story.end(17, third)
    story.post_round(20, price="0.100000")
    story.run(21, "b", own=3, borrowed=1, price="0.100000")
    story.post_round(25)
    return story


def test_money_is_conserved() -> None:
    story = eventful()
    story.meter()
    story.looked(120)
    story.settle()
    assert sum(to_micro(entry.amount) for entry in Entry.objects.all()) == 0
    charged = sum(to_micro(line.amount) for line in UsageLine.objects.all())
    earned = sum(to_micro(share.amount) for share in UsageShare.objects.all())
    assert charged == earned > 0
