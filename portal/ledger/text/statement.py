"""A tenant's statement: income and payments between two days, by period and counterparty."""

from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    Counterparty,
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
OWN, HIDDEN = "itself", "others"


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

    def by_key(self) -> dict[str, tuple[int, str]]:
        """Return the visible other tenants and their names, by their keys in a query.

        A key has the tenant's number in a pool: its slug and its id may be hidden.
        """
        keys: dict[int, tuple[str, str]] = {}
        for place, visibility in enumerate(self._visibilities):
            for one in visibility.known.values():
                name = None if one.id == self._tenant_id else self.of(one.id)
                if name is not None:
                    key = f"tenant-{one.number}-{place}" if place else f"tenant-{one.number}"
                    keys.setdefault(one.id, (key, name))
        return {key: (tenant, name) for tenant, (key, name) in keys.items()}


@dataclass(frozen=True, slots=True)
class NamedCounterparty:
    """A counterparty with the name that the viewer sees."""

    name: str
    counterparty: Counterparty


def named_counterparties(names: VisibleNames, own_id: int) -> dict[str, NamedCounterparty]:
    """Return the possible counterparties of a tenant by their keys in a query.

    The hidden tenants are one counterparty.
    """
    tenants = names.by_key()
    usage = Transfer.Code.USAGE.value
    shown: list[tuple[str, str, frozenset[int | None]]] = [
        (key, name, frozenset({tenant})) for key, (tenant, name) in tenants.items()
    ]
    shown += [
        (OWN, _(ITSELF), frozenset({own_id})),
        ("operator", _(OPERATOR), frozenset({None})),
    ]
    visible = frozenset({own_id, None, *(tenant for tenant, _name in tenants.values())})
    others = {
        code.value: NamedCounterparty(str(code.label), Counterparty(code.value))
        for code in Transfer.Code
        if code is not Transfer.Code.USAGE
    }
    return {
        **{key: NamedCounterparty(name, Counterparty(usage, ids)) for key, name, ids in shown},
        LATE: NamedCounterparty(_(OPERATOR_LATE), Counterparty(LATE)),
        **others,
        HIDDEN: NamedCounterparty(_(OTHERS), Counterparty(usage, visible, is_except=True)),
    }


def counterparty_rows(
    totals: Iterable[CounterpartyTotal], parties: Mapping[str, NamedCounterparty]
) -> list[CounterpartyTotal]:
    """Name the counterparties, each with its key; hidden ones are one row, the last."""
    rows: dict[str, CounterpartyTotal] = {}
    for total in totals:
        key, party = next(
            (key, party) for key, party in parties.items() if party.counterparty.includes(total)
        )
        before = rows.get(key)
        rows[key] = replace(
            total,
            name=party.name,
            transfers=total.transfers + (before.transfers if before else 0),
            earned=total.earned + (before.earned if before else Decimal(0)),
            paid=total.paid + (before.paid if before else Decimal(0)),
            key=key,
        )
    return sorted(rows.values(), key=lambda row: row.key == HIDDEN)


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


def most_text(rows: Sequence[CounterpartyTotal]) -> str:
    """Return the largest amount earned from, or paid to, another counterparty, with its name."""
    sums = [(row.earned, True, row.name) for row in rows if row.key != OWN]
    sums += [(row.paid, False, row.name) for row in rows if row.key != OWN]
    amount, is_earned, name = max(sums, default=(Decimal(0), True, ""))
    if not amount:
        return _("By counterparty")
    earned = _("Most was earned from {name}: {amount} credits")
    paid = _("Most was paid to {name}: {amount} credits")
    return (earned if is_earned else paid).format(name=name, amount=credits_text(amount))


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
