"""A tenant's statement: what came in and went out between two days, by period and counterparty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.http import QueryDict

from billing.models import Transfer
from billing.selectors import CounterpartyTotal, PeriodTotal, StatementLine, StatementPeriod
from portal.charts.figures import credits_text
from scheduling.selectors.visibility import Visibility
from tenants.api.times import time_text

DAY = timedelta(days=1)
DEFAULT_DAYS = 7
# Periods of a table; rows of a file.
PERIODS_MOST, LINES_MOST = 400, 100_000
OTHERS, ITSELF = "other tenants", "itself, on idle quota of its own"
OPERATOR = "operator, for unallocated quota"
WRITE_A_DAY = "Write a day such as 2026-11-20."
COLUMNS = (
    "effective_at",
    "transfer",
    "what",
    "pool",
    "hour",
    "counterparty",
    "borrowed_gpu_h",
    "lent_gpu_h",
    "earned_credits",
    "paid_credits",
    "net_credits",
    "balance_credits",
)


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
    typed = asked.get("from", str(first))[:40], asked.get("to", str(last))[:40]
    if errors:
        first, last = _days_before(today), today
    return StatementRequest(first, last, period, *typed, errors)


def _days_before(last: date) -> date:
    """The first of the days that are shown unless others are asked for."""
    return last - min((DEFAULT_DAYS - 1) * DAY, last - date.min)


DAYS_IN = {StatementPeriod.DAY: 1, StatementPeriod.WEEK: 7, StatementPeriod.MONTH: 31}


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


@dataclass(frozen=True, slots=True)
class CounterpartyRow:
    """One counterparty as the viewer may see it."""

    name: str
    transfers: int
    earned: Decimal
    paid: Decimal

    @property
    def net(self) -> Decimal:
        """Earned less paid."""
        return self.earned - self.paid


class VisibleNames:
    """How a viewer may read the tenants of a book: the same in all of its pools, or not at all.

    A sum over several pools would otherwise show in one what another one hides.
    """

    def __init__(self, tenant_id: int, visibilities: Sequence[Visibility]) -> None:
        self._tenant_id, self._visibilities = tenant_id, visibilities

    def of(self, tenant_id: int | None) -> str | None:
        """The name of a tenant; None where it is not to be seen."""
        if tenant_id is None:
            return OPERATOR
        if tenant_id == self._tenant_id:
            return ITSELF
        seen = [visibility.of(tenant_id) for visibility in self._visibilities]
        names = {one.name if one else None for one in seen}
        return names.pop() if len(names) == 1 else None


def counterparty_rows(
    totals: Iterable[CounterpartyTotal], names: VisibleNames
) -> list[CounterpartyRow]:
    """Tell who was on the other side; those out of sight are one row, the last."""
    rows, hidden = [], []
    for total in totals:
        row = CounterpartyRow("", total.transfers, total.earned, total.paid)
        if total.code != Transfer.Code.USAGE:
            name: str | None = str(Transfer.Code(total.code).label)
        else:
            name = names.of(total.tenant_id)
        if name is None:
            hidden.append(row)
        else:
            rows.append(CounterpartyRow(name, row.transfers, row.earned, row.paid))
    if hidden:
        columns = zip(*((row.transfers, row.earned, row.paid) for row in hidden), strict=True)
        transfers, earned, paid = (sum(column) for column in columns)
        rows.append(CounterpartyRow(OTHERS, int(transfers), Decimal(earned), Decimal(paid)))
    return rows


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """One period of the table, with the balance at its end."""

    total: PeriodTotal
    text: str
    balance: Decimal


def period_rows(
    periods: Iterable[PeriodTotal], opening: Decimal, period: StatementPeriod
) -> list[PeriodRow]:
    """Tell each period in time order."""
    rows, balance = [], opening
    for total in periods:
        balance += total.net
        rows.append(PeriodRow(total, period_text(total.begins_at, period), balance))
    return rows


def period_text(begins_at: datetime, period: StatementPeriod) -> str:
    """A period as a row is named: a day, a week by its Monday, a month."""
    at = begins_at.astimezone(UTC)
    if period is StatementPeriod.MONTH:
        return f"{at:%B %Y}"
    day = f"{at.day} {at:%b %Y}"
    return f"week of {day}" if period is StatementPeriod.WEEK else day


def headline(tenant: str, earned: Decimal, paid: Decimal, asked: StatementRequest) -> str:
    """The finding of a statement as a sentence."""
    when = f"on {_date_text(asked.first)}"
    if asked.first != asked.last:
        when = f"from {_date_text(asked.first)} to {_date_text(asked.last)}"
    parts = []
    if earned:
        parts.append(f"earned {credits_text(earned)}")
    if paid:
        parts.append(f"paid {credits_text(paid)}")
    did = f"{' and '.join(parts)} credits" if parts else "neither earned nor paid anything"
    return f"{tenant} {did} {when}."


def _date_text(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


def statement_csv(
    lines: Sequence[StatementLine], opening: Decimal, names: VisibleNames, tenant_id: int
) -> str:
    """Each transfer as a line, exact to the micro-credit, with the balance after it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    balance = opening
    for line in lines:
        balance += line.earned - line.paid
        writer.writerow(_cells(line, balance, names, tenant_id))
    return out.getvalue()


def _cells(line: StatementLine, balance: Decimal, names: VisibleNames, tenant_id: int) -> list[Any]:
    usage = line.code == Transfer.Code.USAGE
    borrows = usage and line.borrower_id == tenant_id
    # What was borrowed may have several lenders; the statement's table tells each.
    counterparty = "lenders" if borrows else names.of(line.borrower_id) or "another tenant"
    return [
        time_text(line.effective_at),
        line.transfer,
        ("borrowed" if borrows else "lent") if usage else Transfer.Code(line.code).label,
        line.pool,
        time_text(line.hour) or "",
        counterparty if usage else "",
        "" if line.borrowed_gpu_h is None else f"{line.borrowed_gpu_h:f}",
        "" if line.lent_gpu_h is None else f"{line.lent_gpu_h:f}",
        f"{line.earned:f}",
        f"{line.paid:f}",
        f"{line.earned - line.paid:f}",
        f"{balance:f}",
    ]
