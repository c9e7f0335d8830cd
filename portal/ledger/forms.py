"""Days, instants and periods of requested statements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.requests import GiftRequest
from billing.selectors.statements import StatementPeriod
from portal.common.days import DAY, DEFAULT_DAYS, Days, days_before, read_days
from portal.common.forms import Field, request_inputs
from portal.ledger.text.statement import NamedCounterparty
from tenants.models import Tenant

PERIODS_MOST = 400
MINUTE = "%Y-%m-%dT%H:%M"
DAYS_IN = {StatementPeriod.DAY: 1, StatementPeriod.WEEK: 7, StatementPeriod.MONTH: 31}
PERIOD_NAMES = {
    StatementPeriod.DAY: gettext_noop("day"),
    StatementPeriod.WEEK: gettext_noop("week"),
    StatementPeriod.MONTH: gettext_noop("month"),
}
TOO_LONG = {
    StatementPeriod.DAY: gettext_noop("Choose at most {most} days. Or sum by month."),
    StatementPeriod.WEEK: gettext_noop("Choose at most {most} weeks. Or sum by month."),
    StatementPeriod.MONTH: gettext_noop("Choose at most {most} months."),
}


@dataclass(frozen=True, slots=True)
class StatementRequest(Days):
    """Requested days, and the period by which they are summed."""

    period: StatementPeriod
    by_days = True

    @property
    def query(self) -> str:
        return days_query(self)


def read_statement(asked: QueryDict, now: datetime) -> StatementRequest:
    """Read the requested statement. If a field is invalid, return the last days with the errors."""
    days = read_days(asked, now)
    errors = dict(days.errors)
    period = _period(asked, days.last - days.first, errors)
    first, last = days.first, days.last
    if errors:
        last = now.astimezone(UTC).date()
        first = days_before(last)
    return StatementRequest(first, last, days.typed_first, days.typed_last, errors, period)


def _period(asked: QueryDict, length: timedelta, errors: dict[str, str]) -> StatementPeriod:
    """Read `by`; a range that is too long for it is an error."""
    by = asked.get("by", StatementPeriod.DAY.value)
    if by not in tuple(StatementPeriod):
        errors["by"] = _("Choose {periods}.").format(
            periods=", ".join(map(_, PERIOD_NAMES.values()))
        )
        by = StatementPeriod.DAY.value
    period = StatementPeriod(by)
    if not errors and length.days > PERIODS_MOST * DAYS_IN[period]:
        errors["from"] = _(TOO_LONG[period]).format(most=PERIODS_MOST)
    return period


def period_choices() -> list[tuple[str, str]]:
    """Return the periods of a statement with their names."""
    return [(period.value, _(name)) for period, name in PERIOD_NAMES.items()]


Asked: TypeAlias = "StatementRequest | ContributionRequest"


def days_query(asked: Asked) -> str:
    """Return the query that requests the same days from each view of a ledger."""
    last = asked.until - timedelta(microseconds=1)
    return f"from={asked.since.date()}&to={last.date()}&by={asked.period}"


# The text of a link to a frequently requested range, its query, and whether it is shown now.
Shortcut: TypeAlias = tuple[str, str, bool]


def shortcuts(now: datetime, asked: Asked) -> list[Shortcut]:
    """Return links to the last days, this month and the month before."""
    today = now.astimezone(UTC).date()
    month = today.replace(day=1)
    before = (month - DAY).replace(day=1)
    stretches = (
        (_("Last 7 days"), today - 6 * DAY, today),
        (_("Last 30 days"), today - 29 * DAY, today),
        (_("This month"), month, today),
        (_("Last month"), before, month - DAY),
    )
    here, day = (asked.since, asked.until), StatementPeriod.DAY
    return [
        (
            text,
            f"from={first}&to={last}&by={day}",
            (_midnight(first), _midnight(last) + DAY) == here,
        )
        for text, first, last in stretches
    ]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


# Years that both the database and Python's calendar represent, with some margin.
FIRST_YEAR, LAST_YEAR = 1970, 9998
WRITE_AN_INSTANT = gettext_noop("Enter a day or an instant such as 2026-11-20T14:30.")


@dataclass(frozen=True, slots=True)
class ContributionRequest:
    """A range of pool time [since, until), and the period by which its income is summed.

    `typed_first` and `typed_last` are as typed; `errors` by field: from, to, by.
    """

    since: datetime
    until: datetime
    typed_first: str
    typed_last: str
    period: StatementPeriod
    errors: Mapping[str, str]

    @property
    def query(self) -> str:
        return f"from={self.typed_first}&to={self.typed_last}&by={self.period}"

    @property
    def by_days(self) -> bool:
        """Return whether both ends were typed as days."""
        return max(len(self.typed_first), len(self.typed_last)) <= len("2026-11-20")


def read_contribution(asked: QueryDict, now: datetime) -> ContributionRequest:
    """Read `from` and `to`, days or instants of pool time, and `by`.

    A day as `to` includes that day. The default is a week up to today, also used with the errors
    after invalid input.
    """
    errors: dict[str, str] = {}
    today = _midnight(now.astimezone(UTC).date())
    until = _instant(asked, "to", today + DAY, errors, is_end=True)
    since = _instant(asked, "from", until - DEFAULT_DAYS * DAY, errors)
    period = _period(asked, until - since, errors)
    if not errors and since >= until:
        errors["to"] = _("The end must be after the start.")
    typed = asked.get("from") or _typed(since), asked.get("to") or _typed(until, is_end=True)
    if errors:
        until = today + DAY
        since = until - DEFAULT_DAYS * DAY
    return ContributionRequest(since, until, typed[0][:40], typed[1][:40], period, errors)


def _typed(at: datetime, *, is_end: bool = False) -> str:
    """Return an instant as typed: a day if it is the day's first, or the end of it."""
    if at.time() != time():
        return f"{at:{MINUTE}}"
    return str(at.date() - DAY if is_end else at.date())


def _instant(
    asked: QueryDict, name: str, default: datetime, errors: dict[str, str], *, is_end: bool = False
) -> datetime:
    raw = asked.get(name, "").strip()
    if not raw:
        return default
    try:
        value = datetime.fromisoformat(raw) if len(raw) >= len("2026-11-20") else None
    except ValueError:
        value = None
    if value is None or not FIRST_YEAR <= value.year <= LAST_YEAR:
        errors[name] = _(WRITE_AN_INSTANT)
        return default
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value + DAY if is_end and len(raw) == len("2026-11-20") else value


def read_counterparty(
    asked: QueryDict, parties: Mapping[str, NamedCounterparty]
) -> tuple[str, str]:
    """Return the key of the requested counterparty, or an empty one with the error."""
    key = asked.get("counterparty", "")
    if not key or key in parties:
        return key, ""
    return "", _("No counterparty “{name}”. Choose one from the list.").format(name=key[:40])


def gift_inputs(
    names: Iterable[Tenant], typed: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """Return the inputs of a transfer request; `names`: the possible recipients."""
    choices = (("", _("choose")), *((tenant.name, tenant.name) for tenant in names))
    return request_inputs(
        GiftRequest, ("to", "amount", "reason"), typed, errors, choices={"to": choices}
    )
