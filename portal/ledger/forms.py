"""The days and periods that a statement is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import QueryDict

from billing.requests import GiftRequest
from billing.selectors import StatementPeriod
from portal.site.days import DAY, Days, days_before, read_days
from portal.site.forms import Field, request_inputs
from tenants.models import Tenant

PERIODS_MOST = 400
DAYS_IN = {StatementPeriod.DAY: 1, StatementPeriod.WEEK: 7, StatementPeriod.MONTH: 31}


@dataclass(frozen=True, slots=True)
class StatementRequest(Days):
    """Some days, and by which period they are summed."""

    period: StatementPeriod

    @property
    def query(self) -> str:
        """Its address, after the question mark."""
        return f"from={self.first}&to={self.last}&by={self.period}"


def read_statement(asked: QueryDict, now: datetime) -> StatementRequest:
    """Read what was asked for; where something is wrong with it, the last days and the errors."""
    days = read_days(asked, now)
    errors = dict(days.errors)
    by = asked.get("by", StatementPeriod.DAY.value)
    if by not in tuple(StatementPeriod):
        errors["by"] = f"Choose {', '.join(StatementPeriod)}."
        by = StatementPeriod.DAY.value
    period = StatementPeriod(by)
    if not errors and (days.last - days.first).days > PERIODS_MOST * DAYS_IN[period]:
        longer = "" if period is StatementPeriod.MONTH else " Or sum by month."
        errors["from"] = f"Choose at most {PERIODS_MOST} {period}s.{longer}"
    first, last = days.first, days.last
    if errors:
        last = now.astimezone(UTC).date()
        first = days_before(last)
    return StatementRequest(first, last, days.typed_first, days.typed_last, errors, period)


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


def gift_inputs(
    names: Iterable[Tenant], typed: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """Return the inputs of a request for a transfer; `names`: who may get the credits."""
    choices = (("", "choose"), *((tenant.name, tenant.name) for tenant in names))
    return request_inputs(
        GiftRequest, ("to", "amount", "reason"), typed, errors, choices={"to": choices}
    )
