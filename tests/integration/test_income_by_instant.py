"""Test income over time with carried remainders, from events to checked books.

The tests include books that were written before this rule.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from billing.checks import run_checks
from billing.metering.cursor import lock_cursor
from billing.metering.lines import write_terms
from billing.metering.meter import meter_pool
from billing.models import MeterCursor, UsageLine, UsageShare
from billing.selectors.events import hour_of, read_events
from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.revenue.terms import Sweep
from tenants.scopes import engine_scope
from tests.integration.metering_story import Story, lines_and_shares, swept_at_once
from tests.integration.test_metering import eventful

pytestmark = pytest.mark.django_db


def violations() -> list[str]:
    return [what for result in run_checks() for what in result.violations]


def amounts(story: Story, line: UsageLine) -> dict[str, str]:
    names = {tenant.pk: name for name, tenant in story.tenants.items()}
    shares = UsageShare.objects.filter(line=line).select_related("account")
    return {names.get(s.account.tenant_id or 0, "operator"): str(s.amount) for s in shares}


class TestTermOfTwoHalves:
    def test_pays_3_and_1(self) -> None:
        """b and c have (1, 0) idle GPUs, later (2, 2).

        By the former rule they would get 12/5 and 8/5.
        """
        story = Story({"a": 0, "b": 1, "c": 0}, capacity=1)
        story.post_round(0, price="4.000000")
        lease = story.run(0, "a", borrowed=1, price="4.000000")
        story.entitle(30, {"a": 0, "b": 2, "c": 2}, 4)
        story.end(60, lease)
        story.post_round(61)
        story.meter()
        line = UsageLine.objects.get()
        assert amounts(story, line) == {"b": "3.000000", "c": "1.000000"}
        assert sorted(line.shares.values_list("weight", flat=True)) == [1, 3]
        assert sorted(line.shares.values_list("lent_gpu_us", flat=True)) == [
            900_000_000,
            2_700_000_000,
        ]
        assert violations() == []


class TestShortTerms:
    @pytest.mark.parametrize("limit", [1, 5000])
    def test_one_lease_carries_remainders(self, limit: int) -> None:
        """Each of 40 terms of one second costs 0.1 micro-credits at 0.00036 an hour, 4 in total."""
        story = Story({"a": 0, "b": 8})
        story.post_round(0, price="0.000360")
        lease = story.run(0, "a", borrowed=1, price="0.000360")
        for second in range(1, 40):
            story.renew(second / 60, lease)
        story.end(40 / 60, lease)
        story.post_round(1)
        story.meter(limit)
        lines = UsageLine.objects.order_by("term")
        assert sum(to_micro(line.amount) for line in lines) == 4
        carried = [line.carried for line in lines]
        assert carried[:3] == [0, 360_000_000, 720_000_000]
        assert carried[5] == 5 * 360_000_000 - 3_600_000_000
        story.looked(130)
        story.settle()
        assert story.balances() == {"a": "-0.000004", "b": "0.000004"}
        assert story.budget("a") == ("-0.000004", "0.000000")
        assert violations() == []

    def test_separate_leases_share_no_remainder(self) -> None:
        story = Story({"a": 0, "b": 8})
        for second in range(3):
            lease = story.run(second / 60, "a", borrowed=1, price="0.000720")
            story.end((second + 1) / 60, lease)
        story.post_round(1)
        story.meter()
        assert set(UsageLine.objects.values_list("carried", "amount")) == {(0, Decimal(0))}


class TestLongWeights:
    def test_are_rounded_to_18_places_and_pass_checks(self) -> None:
        quotas = {"a": 0, **{f"t{number}": 7 for number in range(9)}}
        story = Story(quotas, capacity=70)
        story.post_round(0, price="1234.567891")
        lease = story.run(0, "a", borrowed=3, price="1234.567891")
        for number in range(9):
            for own in range(1, 8):
                story.run(1 + number + own / 9, f"t{number}", own=1)
        story.end(29.0123, lease)
        story.post_round(30)
        story.meter(7)
        line = UsageLine.objects.get(lease=lease)
        assert sum(line.shares.values_list("weight", flat=True)) == 10**18
        assert lines_and_shares() == swept_at_once(story.pool.pk)
        assert violations() == []


def version_1(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep's state in the format of the former rule."""
    state = sweep.to_state()
    types = {}
    for name, sums in sweep._types.items():
        rates = sums.rates()
        integrals = sums.integrals(sums.now_us).sums
        types[name] = {key: state["types"][name][key] for key in ("capacity", "quotas", "own")} | {
            "now_us": sums.now_us,
            "sums": {
                str(key): [integrals.get(key, 0), sums.now_us, rates.get(key, 0)]
                for key in integrals.keys() | rates.keys()
            },
        }
    opened = {lease: row[:9] for lease, row in state["open"].items()}
    return {**state, "version": 1, "types": types, "open": opened}


def meter_as_before(story: Story, until: int) -> None:
    """Meter the first events by the former rule."""
    with engine_scope(story.pool.pk):
        cursor = lock_cursor(story.pool.pk)
        assert cursor is not None
        events = read_events(story.pool.pk, after=0, limit=until)
        sweep = Sweep(by_integrals=True)
        closed = [term for event in events for term in sweep.feed(event)]
        cursor.settled_until = hour_of(from_us(events[0].at_us))
        write_terms(cursor, events, closed)
        cursor.event_number = until
        cursor.state = {"sweep": version_1(sweep), "rests": []}
        cursor.save()


class TestBooksOfFormerRule:
    @pytest.mark.parametrize("until", [1, 4, 9, 12, 15, 18])
    def test_stay_unchanged_and_continue_by_present_rule(self, until: int) -> None:
        story = eventful()
        meter_as_before(story, until)
        before = lines_and_shares()
        assert set(UsageLine.objects.values_list("carried", flat=True)) <= {None}
        assert violations() == []
        story.meter(4)
        story.looked(150)
        story.settle()
        assert [row for row in lines_and_shares() if row in before] == before
        assert MeterCursor.objects.get().state["rule_since"] == [until, 0]
        assert violations() == []

    def test_are_checked_by_rule_of_each_line(self) -> None:
        """A term that was open when the rule changed pays its lenders by the former rule."""
        story = Story({"a": 0, "b": 1, "c": 0}, capacity=1)
        story.post_round(0, price="4.000000")
        lease = story.run(0, "a", borrowed=1, price="4.000000")
        meter_as_before(story, 4)
        story.entitle(15, {"a": 0, "b": 2, "c": 2}, 4)
        story.renew(30, lease)
        story.end(60, lease)
        story.post_round(61)
        meter_pool(story.pool.pk)
        former, present = UsageLine.objects.order_by("term")
        assert amounts(story, former) == {"b": "1.200000", "c": "0.800000"}
        assert amounts(story, present) == {"b": "1.000000", "c": "1.000000"}
        assert (former.carried, present.carried) == (None, 0)
        assert violations() == []

    def test_rule_change_in_idle_pool_passes_checks(self) -> None:
        story = Story({"a": 0, "b": 4, "c": 4})
        story.post_round(0, price="4.000000")
        lease = story.run(0, "a", borrowed=1, price="4.000000")
        story.post_round(5)
        meter_as_before(story, 5)
        busy = story.run(6, "b", own=4)
        story.end(10, lease)
        story.end(12, busy)
        story.meter()
        story.looked(20)
        story.meter()
        assert UsageLine.objects.count() == 2
        assert violations() == []
