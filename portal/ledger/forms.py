"""The days that a statement is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.http import QueryDict

from billing.selectors import StatementPeriod

DAY = timedelta(days=1)
DEFAULT_DAYS = 7
PERIODS_MOST = 400
DAYS_IN = {StatementPeriod.DAY: 1, StatementPeriod.WEEK: 7, StatementPeriod.MONTH: 31}
WRITE_A_DAY = "Write a day such as 2026-11-20."


@dataclass(frozen=True, slots=True)
class StatementRequest:
    """From the beginning of one day to the end of another one, in pool time; by which period."""

    first: date
    last: date
    period: StatementPeriod
    typed_first: str
    typed_last: str
    errors: Mapping[str, str]

    @property
    def since(self) -> datetime:
        """The first instant."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def until(self) -> datetime:
        """The instant after the last one."""
        return datetime.combine(self.last, time(), UTC) + DAY

    @property
    def query(self) -> str:
        """Its address, after the question mark."""
        return f"from={self.first}&to={self.last}&by={self.period}"


def read_statement(asked: QueryDict, now: datetime) -> StatementRequest:
    """Read what was asked for; where something is wrong with it, the last days and the errors."""
    today = now.astimezone(UTC).date()
    errors: dict[str, str] = {}
    last = _day(asked, "to", today, errors)
    first = _day(asked, "from", _days_before(last), errors)
    by = asked.get("by", StatementPeriod.DAY.value)
    if by not in tuple(StatementPeriod):
        errors["by"] = f"Choose {', '.join(StatementPeriod)}."
        by = StatementPeriod.DAY.value
    period = StatementPeriod(by)
    if not errors and first > last:
        errors["to"] = "This is before the first day."
    elif not errors and (last - first).days > PERIODS_MOST * DAYS_IN[period]:
        longer = "" if period is StatementPeriod.MONTH else " Or sum by month."
        errors["from"] = f"Choose at most {PERIODS_MOST} {period}s.{longer}"
    typed = (asked.get("from") or str(first))[:40], (asked.get("to") or str(last))[:40]
    if errors:
        first, last = _days_before(today), today
    return StatementRequest(first, last, period, *typed, errors)


def _days_before(last: date) -> date:
    """The first of the days that are shown unless others are asked for."""
    return last - min((DEFAULT_DAYS - 1) * DAY, last - date.min)


def _day(asked: QueryDict, name: str, default: date, errors: dict[str, str]) -> date:
    raw = asked.get(name, "").strip()
    if not raw:
        return default
    try:
        value = date.fromisoformat(raw) if len(raw) == len("2026-11-20") else None
    except ValueError:
        value = None
    # The day after it must be one, too.
    if value is None or value >= date.max:
        errors[name] = WRITE_A_DAY
        return default
    return value


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A link to a stretch of time that is often asked for."""

    text: str
    query: str
    here: bool


def shortcuts(now: datetime, asked: StatementRequest) -> list[Shortcut]:
    """The last days, this month and the one before."""
    today = now.astimezone(UTC).date()
    month = today.replace(day=1)
    before = (month - DAY).replace(day=1)
    stretches = (
        ("Today", today, today),
        ("Last 7 days", today - 6 * DAY, today),
        ("Last 30 days", today - 29 * DAY, today),
        ("This month", month, today),
        ("Last month", before, month - DAY),
    )
    return [
        Shortcut(
            text,
            f"from={first}&to={last}&by={StatementPeriod.DAY}",
            (first, last) == (asked.first, asked.last),
        )
        for text, first, last in stretches
    ]
