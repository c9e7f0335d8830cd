"""A tenant's statement: income and payments between two days, by period and counterparty."""

from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Transfer
from billing.selectors.contribution import OTHERS
from billing.selectors.statements import (
    LATE,
    CounterpartyTotal,
    PeriodTotal,
    StatementLine,
    StatementPeriod,
)
from portal.charts.figures import credits_text
from portal.common.files import Columns
from scheduling.selectors.visibility import OTHER_TENANT, Visibility

ITSELF = gettext_noop("itself, on its own idle quota")
OPERATOR = gettext_noop("operator, for unallocated quota")
OPERATOR_LATE = gettext_noop("operator, for time without rounds")
OPERATOR_START = gettext_noop("operator, for a late start")


class VisibleNames:
    """Names of a book's tenants, as a viewer may see them.

    A name is visible only if all pools of the book show it. Otherwise a sum over several pools
    could reveal a name that one of them hides. A pool in which the tenant has no quota does not
    count, unless the pool hides other tenants.
    """

    def __init__(self, tenant_id: int, visibilities: Sequence[Visibility]) -> None:
        self._tenant_id, self._visibilities = tenant_id, visibilities

    def of(self, tenant_id: int | None) -> str | None:
        """Return the name of a tenant, or None if it is hidden."""
        if tenant_id is None:
            return _(OPERATOR)
        if tenant_id == self._tenant_id:
            return _(ITSELF)
        seen = [(visibility, visibility.of(tenant_id)) for visibility in self._visibilities]
        names = {one.name if one else None for pool, one in seen if one or pool.hides}
        return names.pop() if len(names) == 1 else None


def counterparty_rows(
    totals: Iterable[CounterpartyTotal], names: VisibleNames
) -> list[CounterpartyTotal]:
    """Name the counterparties; hidden ones are one row, the last."""
    rows, hidden = [], []
    for total in totals:
        if total.code == LATE:
            name: str | None = _(OPERATOR_LATE)
        elif total.code != Transfer.Code.USAGE:
            name = str(Transfer.Code(total.code).label)
        else:
            name = names.of(total.tenant_id)
        if name is None:
            hidden.append(total)
        else:
            rows.append(replace(total, name=name))
    if hidden:
        others = replace(
            hidden[0],
            name=_(OTHERS),
            transfers=sum(row.transfers for row in hidden),
            earned=sum((row.earned for row in hidden), Decimal(0)),
            paid=sum((row.paid for row in hidden), Decimal(0)),
        )
        rows.append(others)
    return rows


def period_rows(
    periods: Iterable[PeriodTotal],
    opening: Decimal,
    period: StatementPeriod,
    asked: tuple[date, date],
) -> list[tuple[PeriodTotal, str, Decimal, str]]:
    """Return the periods in time order: each with its name, the balance at its end, its query.

    The query has the days of the period that are within the first and the last of `asked`.
    """
    rows, balance = [], opening
    for total in periods:
        balance += total.net
        first, last = _days_of(total.begins_at, period)
        days = f"from={max(first, asked[0])}&to={min(last, asked[1])}&by={period}"
        rows.append((total, period_text(total.begins_at, period), balance, days))
    return rows


def _days_of(begins_at: datetime, period: StatementPeriod) -> tuple[date, date]:
    first = begins_at.astimezone(UTC).date()
    if period is StatementPeriod.MONTH:
        return first, first.replace(day=monthrange(first.year, first.month)[1])
    return first, first + timedelta(days=6 if period is StatementPeriod.WEEK else 0)


def period_text(begins_at: datetime, period: StatementPeriod) -> str:
    """Return a period's name: a day, a week by its Monday, or a month."""
    at = begins_at.astimezone(UTC)
    if period is StatementPeriod.MONTH:
        return date_format(at, "F Y")
    day = _date_text(at)
    return _("week of {day}").format(day=day) if period is StatementPeriod.WEEK else day


def headline(tenant: str, earned: Decimal, paid: Decimal, first: date, last: date) -> str:
    """Return a statement's headline."""
    when = _("on {day}") if first == last else _("from {first} to {last}")
    if earned and paid:
        text = _("{tenant} earned {earned} and was charged {paid} credits {when}.")
    elif earned:
        text = _("{tenant} earned {earned} credits {when}.")
    elif paid:
        text = _("{tenant} was charged {paid} credits {when}.")
    else:
        text = _("{tenant} neither earned nor was charged anything {when}.")
    return text.format(
        tenant=tenant,
        earned=credits_text(earned),
        paid=credits_text(paid),
        when=when.format(day=_date_text(last), first=_date_text(first), last=_date_text(last)),
    )


def _date_text(day: date) -> str:
    return date_format(day, _("j M Y"))


class TransferLine(NamedTuple):
    """A transfer, and the balance after it."""

    line: StatementLine
    balance: Decimal


def transfer_lines(lines: Iterable[StatementLine], balance: Decimal) -> Iterator[TransferLine]:
    """Yield each transfer with the balance after it; `balance` is before the first."""
    for line in lines:
        balance += line.net
        yield TransferLine(line, balance)


def file_columns(names: VisibleNames, tenant_id: int) -> Columns:
    """Return the columns of a tenant's file of transfers."""

    def what(line: StatementLine) -> str:
        if line.code != Transfer.Code.USAGE:
            return str(Transfer.Code(line.code).label)
        return "borrowed" if line.borrower_id == tenant_id else "lent"

    def counterparty(line: StatementLine) -> str:
        if line.code != Transfer.Code.USAGE:
            return ""
        # A term may have several lenders; the statement's table lists each.
        if line.borrower_id == tenant_id:
            return "lenders"
        return names.of(line.borrower_id) or _(OTHER_TENANT)

    return {
        "effective_at": "line.effective_at",
        "transfer": "line.transfer",
        "what": lambda row: what(row.line),
        "pool": "line.pool",
        "hour": "line.hour",
        "counterparty": lambda row: counterparty(row.line),
        "borrowed_gpu_h": "line.borrowed_gpu_h",
        "lent_gpu_h": "line.lent_gpu_h",
        "earned_credits": "line.earned",
        "paid_credits": "line.paid",
        "net_credits": "line.net",
        "balance_credits": "balance",
        "not_charged_gpu_h": "line.not_charged_gpu_h",
        "earned_borne_credits": "line.earned_borne",
    }
