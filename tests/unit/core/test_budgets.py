"""Periods, states and run-out dates of budgets."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.budgets import (
    BudgetAction,
    BudgetPeriod,
    BudgetState,
    budget_state,
    calendar_period,
    project_run_out,
    stop_micro,
)

TODAY, ENDS = date(2026, 11, 20), date(2026, 12, 1)
INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis wants them so


class TestAPeriod:
    @pytest.mark.parametrize(
        ("kind", "at", "begin", "end"),
        [
            ("month", "2026-02-28T23:59:59", "2026-02-01", "2026-03-01"),
            ("month", "2026-12-01T00:00:00", "2026-12-01", "2027-01-01"),
            ("quarter", "2026-05-15T12:00:00", "2026-04-01", "2026-07-01"),
            ("quarter", "2026-12-31T23:59:59", "2026-10-01", "2027-01-01"),
        ],
    )
    def test_is_of_the_calendar(self, kind: str, at: str, begin: str, end: str) -> None:
        instant = datetime.fromisoformat(at).replace(tzinfo=UTC)
        found = calendar_period(BudgetPeriod(kind), instant)
        assert [str(one.date()) for one in found] == [begin, end]

    @given(st.sampled_from([BudgetPeriod.MONTH, BudgetPeriod.QUARTER]), INSTANTS)
    def test_holds_its_instant_and_meets_the_next(self, kind: BudgetPeriod, at: datetime) -> None:
        begin, end = calendar_period(kind, at)
        assert begin <= at < end
        assert calendar_period(kind, end)[0] == end

    def test_of_its_own_is_in_no_calendar(self) -> None:
        with pytest.raises(ValueError, match="custom"):
            calendar_period(BudgetPeriod.CUSTOM, datetime(2026, 1, 1, tzinfo=UTC))


class TestAState:
    @pytest.mark.parametrize(
        ("used", "state"),
        [
            (0, "open"), (79, "open"), (80, "notice"), (99, "notice"), (100, "full"),
            (119, "full"), (120, "stopped"), (500, "stopped"),
        ],
    )  # fmt: skip
    def test_begins_at_its_percent(self, used: int, state: str) -> None:
        assert budget_state(100, used) is BudgetState(state)

    def test_lets_rounds_promise_up_to_100_or_120_percent(self) -> None:
        assert stop_micro(1000, BudgetAction.BLOCK) == 1000
        assert stop_micro(1000, BudgetAction.WARN) == 1200


class TestAProjection:
    def test_is_the_rest_over_the_mean(self) -> None:
        projected = project_run_out([10, 20, 30], 100, today=TODAY, ends=ENDS)
        assert projected.on == date(2026, 11, 25)

    @pytest.mark.parametrize(
        ("days", "reason"),
        [
            ([10, 10], "2 whole days are known, 3 are needed"),
            ([], "0 whole days are known"),
            ([0, 0, 0, 0, 0, 0, 70], "the last 7 days are too uneven"),
        ],
    )
    def test_that_would_not_be_honest_is_none(self, days: list[int], reason: str) -> None:
        projected = project_run_out(days, 100, today=TODAY, ends=ENDS)
        assert projected.on is None
        assert reason in projected.reason

    def test_of_even_days_is_honest_and_of_old_ones_knows_nothing(self) -> None:
        old_burst = [10**6, *[10] * 7]
        assert project_run_out(old_burst, 50, today=TODAY, ends=ENDS).on == date(2026, 11, 25)

    def test_of_a_budget_that_lasts_names_no_day(self) -> None:
        assert project_run_out([10] * 7, 110, today=TODAY, ends=ENDS).on is None
        assert project_run_out([10] * 7, 109, today=TODAY, ends=ENDS).on == date(2026, 11, 30)
        assert project_run_out([0] * 7, 1, today=TODAY, ends=ENDS).on is None

    def test_of_a_budget_that_is_spent_is_today(self) -> None:
        assert project_run_out([], 0, today=TODAY, ends=ENDS).on == TODAY

    @given(st.lists(st.integers(0, 10**9), max_size=10), st.integers(-(10**9), 10**12))
    def test_names_a_day_of_the_period_or_none(self, days: list[int], left: int) -> None:
        projected = project_run_out(days, left, today=TODAY, ends=ENDS)
        assert projected.reason
        assert projected.on is None or TODAY <= projected.on < ENDS
