"""Test that intervals of idle quota from a part of a pool's events equal those from all events."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.models import UsageShare
from billing.selectors import factors as factors_module
from billing.selectors.factors import income_factors
from billing.selectors.income import IncomeLine, income_lines
from evenshare_core.domain.instants import to_us
from evenshare_core.money.revenue.factors import CountedSpan, IdleStep, part_of
from scheduling.models import Lease
from tests.integration.metering_story import NOON, Story
from tests.integration.test_metering import eventful
from tests.patience import some

pytestmark = pytest.mark.django_db
TIME: dict[str, Any] = {"since": NOON - timedelta(days=9), "until": NOON + timedelta(days=9)}


def lines_of(story: Story, tenant: str) -> list[IncomeLine]:
    return income_lines(
        story.tenants[tenant].pk, story.pool.pk, story.pool.book, limit=10_000, **TIME
    )


def check(story: Story) -> int:
    """Compare shares' weights with their intervals, read singly and together; count the shares."""
    count = 0
    for name, tenant in story.tenants.items():
        lines = lines_of(story, name)
        together = income_factors(tenant.pk, story.pool.pk, lines)
        alone = [income_factors(tenant.pk, story.pool.pk, [line]) for line in lines]
        for index, row in enumerate(together.lines):
            (by_itself,) = alone[index].lines
            assert by_itself.span == row.span is not None
            assert row.span is not None
            for steps in (together.steps["v100"], alone[index].steps["v100"]):
                assert stated(row.line) == part(row.span.of(tenant.pk), steps, row.span)
            count += 1
    return count


def stated(line: IncomeLine) -> Fraction:
    return Fraction(line.weight, line.weights)


def part(then: IdleStep | None, steps: tuple[IdleStep, ...], span: CountedSpan) -> Fraction:
    if then is not None:
        return Fraction(then.own, then.total)
    return part_of(steps, span.from_us, span.until_us) / (span.until_us - span.from_us)


class TestIdleIntervals:
    def test_match_weights_with_ends_out_of_order(self) -> None:
        story = eventful()
        story.meter()
        assert check(story) == UsageShare.objects.exclude(account__tenant=None).count() > 3

    def test_start_at_last_round_before_first_term(self) -> None:
        story = eventful()
        for minute in range(30, 230, 10):
            lease = story.run(minute, "a", borrowed=1, price="1.000000")
            story.end(minute + 5, lease)
            story.post_round(minute + 6)
        story.meter()
        newest = lines_of(story, "c")[:1]
        with CaptureQueriesContext(connection) as few:
            income_factors(story.tenants["c"].pk, story.pool.pk, newest)
        assert not any("LATE" in query["sql"] for query in few.captured_queries)
        read = [query for query in few.captured_queries if '"number" >' in query["sql"]]
        assert len(read) == 1
        (after,) = [part.split()[0] for part in read[0]["sql"].split('"number" > ')[1:]]
        assert int(after) > 60

    def test_count_lease_until_late_end_was_reported(self) -> None:
        """The end at minute 5 is reported after minute 20; b's lease counts until minute 10."""
        story = Story({"a": 0, "b": 4})
        busy = story.run(0, "b", own=4)
        story.post_round(1)
        lease = story.run(10, "a", borrowed=1, price="2.000000")
        story.post_round(20)
        story.end(5, busy)
        story.post_round(25)
        story.end(30, lease)
        story.post_round(31)
        story.meter()
        assert check(story) == 1
        (row,) = income_factors(story.tenants["b"].pk, story.pool.pk, lines_of(story, "b")).lines
        assert stated(row.line) == Fraction(1, 2)

    def test_look_further_ahead_for_very_late_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The report is two hours late.

        Reading few events gives a wrong weight, so more are read.
        """
        story = Story({"a": 0, "b": 4, "c": 4})
        busy = story.run(0, "b", own=4)
        story.post_round(1)
        story.post_round(125)
        lease = story.run(130, "a", borrowed=1, price="2.000000")
        story.post_round(140)
        story.end(150, lease)
        story.post_round(151)
        story.end(2, busy)
        story.post_round(160)
        story.meter()
        assert Lease.objects.get(pk=busy.pk).ended_at is not None
        assert check(story) == 1  # b's lease used its whole quota until its end was reported
        monkeypatch.setattr(factors_module, "LATE", factors_module.LATE[:1])
        with pytest.raises(AssertionError):
            check(story)

    def test_are_single_instant_if_both_ends_came_late(self) -> None:
        story = Story({"a": 0, "b": 3, "c": 1})
        lease = story.grant(0, "a", borrowed=2, price="3.000000")
        other = story.run(1, "a", borrowed=1, price="3.000000")
        story.post_round(15)
        story.end(16, other)
        story.post_round(20)
        story.start(5, lease)
        story.end(8, lease)
        story.post_round(25)
        story.meter()
        assert check(story) == 4
        rows = income_factors(story.tenants["b"].pk, story.pool.pk, lines_of(story, "b")).lines
        late = [row.span for row in rows if row.span and row.span.rates]
        assert [span.of(story.tenants["b"].pk) for span in late] == [
            IdleStep(to_us(NOON + timedelta(minutes=16)), 3, 8)
        ]

    def test_are_empty_without_lines(self) -> None:
        story = Story()
        assert income_factors(story.tenants["a"].pk, story.pool.pk, []).lines == ()


class TestRandomStory:
    @settings(
        max_examples=some(),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.data())
    def test_reproduces_stored_weights(self, db: None, data: st.DataObject) -> None:
        assert db is None
        with transaction.atomic():
            story = play(data)
            story.meter()
            check(story)
            # History cannot be deleted, so each example needs another name.
            transaction.set_rollback(True)


def play(data: st.DataObject) -> Story:
    """Draw terms of three tenants; reports arrive in any order, early or late, between rounds."""
    quota = st.integers(0, 4)
    story = Story({name: data.draw(quota) for name in "abc"}, capacity=10)
    minute = 0
    running: dict[Lease, int] = {}  # the minute at which the term starts
    for _ in range(data.draw(st.integers(3, 6))):
        story.post_round(minute)
        for lease in list(running):
            what = data.draw(st.sampled_from(["keep", "renew", "end"]))
            if what == "renew":
                own = data.draw(st.integers(0, lease.gpus))
                story.renew(minute, lease, own=own, borrowed=lease.gpus - own, price="7.654321")
            elif what == "end":
                story.end(max(minute - data.draw(st.integers(0, 90)), running.pop(lease)), lease)
        if data.draw(st.booleans()):
            story.entitle(minute, {name: data.draw(quota) for name in "abc"}, 10)
        for _ in range(data.draw(st.integers(0, 2))):
            own, borrowed = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
            if own + borrowed:
                lease = story.grant(
                    minute, data.draw(st.sampled_from("abc")),
                    own=own, borrowed=borrowed, price="1.234567",
                )  # fmt: skip
                running[lease] = minute + data.draw(st.integers(0, 3))
                story.start(running[lease], lease)
        minute += data.draw(st.integers(1, 50))
    for lease, since in running.items():
        story.end(max(minute, since), lease)
    story.post_round(minute + 1)
    return story
