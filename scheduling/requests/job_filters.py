"""The filters of job lists, which the page's URL and REST share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from django.utils.translation import gettext as _

from scheduling.requests.job_tags import read_tags, split_tags
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

TEXT_MAX, NAME_MAX = 80, 150
ME = "me"
NEWEST, OLDEST = "newest", "oldest"
# Orders of ended jobs, with the largest value first.
BY_VALUE = ("gpu_hours", "queue_time", "ended")
SORTS = (NEWEST, OLDEST, *BY_VALUE)
# In the order of a link.
NAMES = ("q", "submitter", "since", "until", "exit_code", "tag", "sort")
EXIT_CODES = 2**31
TIME_HINT = gettext_noop("Enter a day such as 2026-12-01, or a time such as 2026-12-01T08:00:00Z.")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The filters of a list beyond state, pool and tenant; empty values do not filter.

    `submitter`: a login name, or `me`. `until` is exclusive. `asked`: the values as they were
    typed, by name, for links and forms.
    """

    text: str = ""
    submitter: str = ""
    since: datetime | None = None
    until: datetime | None = None
    exit_code: int | None = None
    tags: tuple[str, ...] = ()
    sort: str = NEWEST
    asked: Mapping[str, str] | None = None

    @property
    def is_by_value(self) -> bool:
        """Whether the list has only ended jobs, in the order of a value."""
        return self.sort in BY_VALUE

    @property
    def kept(self) -> Mapping[str, str]:
        """The values for a link to the same list, by name; empty for a missing one."""
        return self.asked or dict.fromkeys(NAMES, "")


def read_job_query(given: Mapping[str, str], errors: FieldErrors) -> JobQuery:
    """Read filters from the texts of a URL; an invalid one does not filter, and adds an error."""
    asked = {name: given.get(name, "").replace("\x00", "").strip() for name in NAMES}
    code = asked["exit_code"]
    is_whole = code.removeprefix("-").isdecimal() and code.isascii() and len(code) < 12
    exit_code = int(code) if is_whole and -EXIT_CODES <= int(code) < EXIT_CODES else None
    if code and exit_code is None:
        errors.add("exit_code", _("must be a whole number"))
    sort = asked["sort"].lower() or NEWEST
    if sort not in SORTS:
        errors.add(
            "sort",
            _("is not a valid choice"),
            _("Choose one of {sorts}.").format(sorts=", ".join(SORTS)),
        )
        sort = NEWEST
    query = JobQuery(
        text=asked["q"][:TEXT_MAX],
        submitter=asked["submitter"][:NAME_MAX],
        since=_instant(asked, "since", errors, is_end=False),
        until=_instant(asked, "until", errors, is_end=True),
        exit_code=exit_code,
        tags=read_tags(split_tags(asked["tag"]), errors, "tag"),
        sort=sort,
        asked=asked,
    )
    if query.since and query.until and query.since >= query.until:
        errors.add("until", _("is not after the start"))
    return query


def refuse_active(query: JobQuery, errors: FieldErrors, *, has_ended: bool) -> JobQuery:
    """Return the query; add an error and sort newest first if it sorts jobs that run or wait."""
    if has_ended or not query.is_by_value:
        return query
    errors.add("sort", _("orders ended jobs only"), _("Choose a state of ended jobs, or no state."))
    return replace(query, sort=NEWEST)


def _instant(
    asked: Mapping[str, str], name: str, errors: FieldErrors, *, is_end: bool
) -> datetime | None:
    """Read a day or a time; the day of an end belongs to the range."""
    text = asked[name]
    if not text:
        return None
    try:
        if len(text) <= len("2026-12-01"):
            day = date.fromisoformat(text) + timedelta(days=is_end)
            return datetime.combine(day, time(), UTC)
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        errors.add(name, _("is not a day or a time"), _(TIME_HINT))
        return None
