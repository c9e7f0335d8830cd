"""Test the periods, states and run-out dates of budgets."""

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


class TestCalendarPeriod:
    @pytest.mark.parametrize(
        ("kind", "at", "begin", "end"),
        [
            ("month", "2026-02-28T23:59:59", "2026-02-01", "2026-03-01"),
            ("month", "2026-12-01T00:00:00", "2026-12-01", "2027-01-01"),
            ("quarter", "2026-05-15T12:00:00", "2026-04-01", "2026-07-01"),
            ("quarter", "2026-12-31T23:59:59", "2026-10-01", "2027-01-01"),
        ],
    )
    def test_returns_calendar_bounds(self, kind: str, at: str, begin: str, end: str) -> None:
        instant = datetime.fromisoformat(at).replace(tzinfo=UTC)
        found = calendar_period(BudgetPeriod(kind), instant)
        assert [str(one.date()) for one in found] == [begin, end]

    @given(st.sampled_from([BudgetPeriod.MONTH, BudgetPeriod.QUARTER]), INSTANTS)
    def test_contains_instant_and_adjoins_next_period(
        self, kind: BudgetPeriod, at: datetime
    ) -> None:
        begin, end = calendar_period(kind, at)
        assert begin <= at < end
        assert calendar_period(kind, end)[0] == end

    def test_rejects_custom_period(self) -> None:
        with pytest.raises(ValueError, match="custom"):
            calendar_period(BudgetPeriod.CUSTOM, datetime(2026, 1, 1, tzinfo=UTC))


class TestBudgetState:
    @pytest.mark.parametrize(
        ("used", "state"),
        [
            (0, "open"), (79, "open"), (80, "notice"), (99, "notice"), (100, "full"),
            (119, "full"), (120, "stopped"), (500, "stopped"),
        ],
    )  # fmt: skip
    def test_changes_at_percent_thresholds(self, used: int, state: str) -> None:
        assert budget_state(100, used) is BudgetState(state)

    def test_block_stops_at_100_and_warn_at_120_percent(self) -> None:
        assert stop_micro(1000, BudgetAction.BLOCK) == 1000
        assert stop_micro(1000, BudgetAction.WARN) == 1200


class TestRunOutProjection:
    def test_divides_remaining_budget_by_mean_use(self) -> None:
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
    def test_names_no_date_and_gives_reason_for_unreliable_data(
        self, days: list[int], reason: str
    ) -> None:
        projected = project_run_out(days, 100, today=TODAY, ends=ENDS)
        assert projected.on is None
        assert reason in projected.reason

    def test_ignores_bursts_before_recent_days(self) -> None:
        old_burst = [10**6, *[10] * 7]
        assert project_run_out(old_burst, 50, today=TODAY, ends=ENDS).on == date(2026, 11, 25)

    def test_names_no_date_if_budget_lasts_the_period(self) -> None:
        assert project_run_out([10] * 7, 110, today=TODAY, ends=ENDS).on is None
        assert project_run_out([10] * 7, 109, today=TODAY, ends=ENDS).on == date(2026, 11, 30)
        assert project_run_out([0] * 7, 1, today=TODAY, ends=ENDS).on is None

    def test_spent_budget_runs_out_today(self) -> None:
        assert project_run_out([], 0, today=TODAY, ends=ENDS).on == TODAY

    @given(st.lists(st.integers(0, 10**9), max_size=10), st.integers(-(10**9), 10**12))
    def test_date_lies_within_period(self, days: list[int], left: int) -> None:
        projected = project_run_out(days, left, today=TODAY, ends=ENDS)
        assert projected.reason
        assert projected.on is None or TODAY <= projected.on < ENDS
