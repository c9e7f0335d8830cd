"""The days of a page or a file, on a pool's clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

DAY = timedelta(days=1)
DEFAULT_DAYS = 7
WRITE_A_DAY = gettext_noop("Enter a day such as 2026-11-20.")


@dataclass(frozen=True, slots=True)
class Days:
    """From the start of one day to the end of another, in pool time.

    `typed_first` and `typed_last` are the requested texts; `errors` has keys "from" and "to".
    """

    first: date
    last: date
    typed_first: str
    typed_last: str
    errors: Mapping[str, str]

    @property
    def since(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def until(self) -> datetime:
        """Return the instant after the last day."""
        return datetime.combine(self.last, time(), UTC) + DAY


def read_days(asked: QueryDict, now: datetime) -> Days:
    """Read `from` and `to`, by default the week up to today; invalid values become errors."""
    errors: dict[str, str] = {}
    last = _day(asked, "to", now.astimezone(UTC).date(), errors)
    first = _day(asked, "from", days_before(last), errors)
    if not errors and first > last:
        errors["to"] = _("The last day must not be before the first.")
    typed = (asked.get("from") or str(first))[:40], (asked.get("to") or str(last))[:40]
    return Days(first, last, *typed, errors)


def days_before(last: date) -> date:
    """Return the first of the days shown by default."""
    return last - min((DEFAULT_DAYS - 1) * DAY, last - date.min)


def _day(asked: QueryDict, name: str, default: date, errors: dict[str, str]) -> date:
    raw = asked.get(name, "").strip()
    if not raw:
        return default
    try:
        value = date.fromisoformat(raw) if len(raw) == len("2026-11-20") else None
    except ValueError:
        value = None
    # The next day must be a valid date, too.
    if value is None or value >= date.max:
        errors[name] = _(WRITE_A_DAY)
        return default
    return value
