"""Budgets of a period: the current period, the action at a usage, and the projected last day.

A budget is the amount of credits that a tenant plans to spend on borrowed GPUs in a period. The
period is a month, a quarter, or lies between two instants of pool time. The amount spent is the
settled charges. The amount committed is reserved by rounds: the worst case of running terms, and
unsettled charges of the period.

| spent + committed | action |
|---|---|
| `NOTICE_PERCENT` | a notice |
| `FULL_PERCENT` | `block`: rounds promise no more; `warn`: a notice |
| `STOP_PERCENT` | `warn`: rounds promise no more |

Amounts are whole micro-credits; no clock is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

NOTICE_PERCENT, FULL_PERCENT, STOP_PERCENT = 80, 100, 120
ALL_PERCENT = 100
# The maximum and minimum number of days before today from which a projection is computed.
DAYS_MOST, DAYS_LEAST = 7, 3
MONTHS_OF_QUARTER, MONTHS_OF_YEAR = 3, 12


class BudgetPeriod(StrEnum):
    """The period of a budget. Names are part of the API."""

    MONTH = "month"
    QUARTER = "quarter"
    CUSTOM = "custom"


class BudgetAction(StrEnum):
    """The action when a budget is used up. Names are part of the API."""

    WARN = "warn"
    BLOCK = "block"


class BudgetState(StrEnum):
    """The usage state of a budget. Names are part of the API."""

    OPEN = "open"
    NOTICE = "notice"
    FULL = "full"
    STOPPED = "stopped"


def calendar_period(kind: BudgetPeriod, at: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of the calendar month or quarter that contains a UTC instant.

    Raises:
        ValueError: the period is custom.
    """
    if kind is BudgetPeriod.CUSTOM:
        raise ValueError("a custom period has its own begin and end")
    months = MONTHS_OF_QUARTER if kind is BudgetPeriod.QUARTER else 1
    first = (at.month - 1) // months * months + 1
    begin = at.replace(month=first, day=1, hour=0, minute=0, second=0, microsecond=0)
    later = first + months
    if later > MONTHS_OF_YEAR:
        return begin, begin.replace(year=begin.year + 1, month=later - MONTHS_OF_YEAR)
    return begin, begin.replace(month=later)


def stop_micro(amount_micro: int, action: BudgetAction) -> int:
    """Return the usage in micro-credits at which rounds stop promising credit from a budget."""
    percent = FULL_PERCENT if action is BudgetAction.BLOCK else STOP_PERCENT
    return amount_micro * percent // ALL_PERCENT


def budget_state(amount_micro: int, used_micro: int) -> BudgetState:
    """Return the state of a budget from the amount spent and committed."""
    reached = used_micro * ALL_PERCENT
    if reached >= amount_micro * STOP_PERCENT:
        return BudgetState.STOPPED
    if reached >= amount_micro * FULL_PERCENT:
        return BudgetState.FULL
    return BudgetState.NOTICE if reached >= amount_micro * NOTICE_PERCENT else BudgetState.OPEN


@dataclass(frozen=True, slots=True)
class RunOut:
    """The projected last day of a budget. `on` is None if the budget lasts or has no projection.

    `reason` states the basis of the projection, or why there is none.
    """

    on: date | None
    reason: str


def project_run_out(
    daily_micro: Sequence[int], left_micro: int, *, today: date, ends: date
) -> RunOut:
    """Return the day on which `left_micro` is spent if the next days cost as much as the last ones.

    `daily_micro` has the cost of each known whole day before `today`, the oldest first; the last
    `DAYS_MOST` count. `ends` is the first day after the period. No projection is possible from
    fewer than `DAYS_LEAST` days, or from days whose standard deviation is above their mean.
    """
    if left_micro <= 0:
        return RunOut(today, "Nothing of it is left.")
    days = list(daily_micro)[-DAYS_MOST:]
    if len(days) < DAYS_LEAST:
        reason = (
            f"No reliable projection: {len(days)} whole days are known, {DAYS_LEAST} are needed."
        )
        return RunOut(None, reason)
    total, count = sum(days), len(days)
    if not total:
        return RunOut(None, f"Nothing was spent in the last {count} days, so it lasts.")
    # The variance exceeds the squared mean: n x sum of squares - total^2 > total^2, in integers.
    if count * sum(day * day for day in days) > 2 * total * total:
        reason = f"No reliable projection: the last {count} days are too uneven."
        return RunOut(None, reason)
    lasts = left_micro * count // total
    rests_on = f"As in the last {count} days."
    if lasts >= (ends - today).days:
        return RunOut(None, f"It lasts until the period ends. {rests_on}")
    return RunOut(today + timedelta(days=lasts), rests_on)
