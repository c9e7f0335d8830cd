"""Texts of the list of jobs: its heading, its columns."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural, thousands, uncapitalized
from portal.jobs.text.job import STATE_BADGES, state_badge
from scheduling.requests.job_filters import BY_VALUE, ME, NEWEST, OLDEST
from scheduling.selectors.jobs import tenant_jobs as read
from tenants.input.errors import FieldError

# The columns that people may choose, in their order; name, state and deadline are always shown.
COLUMNS: Mapping[str, str] = {
    "submitter": gettext_noop("Submitter"),
    "tags": gettext_noop("Tags"),
    "position": gettext_noop("Position"),
    "gpus": gettext_noop("GPUs"),
    "submitted": gettext_noop("Submitted"),
    "queue_time": gettext_noop("Queue time"),
    "gpu_hours": gettext_noop("GPU-hours"),
    "terms": gettext_noop("Terms"),
    "own": gettext_noop("Own now"),
    "borrowed": gettext_noop("Borrowed now"),
    "ended": gettext_noop("Ended"),
    "exit_code": gettext_noop("Exit code"),
}
# The labels of the filters that may be invalid, by their names in the URL.
FILTERS: Mapping[str, str] = {
    "exit_code": gettext_noop("Exit code"),
    "since": gettext_noop("Submitted from"),
    "until": gettext_noop("Submitted to"),
    "tag": gettext_noop("Tags"),
    "sort": gettext_noop("Order"),
}
USUAL = ("gpus", "submitted")
LEFT_ALIGNED = frozenset({"submitter", "tags"})
# The order that a column's heading chooses; a column of the list's order is always shown.
SORTED_BY: Mapping[str, str] = {"submitted": NEWEST, **{name: name for name in BY_VALUE}}
SORTS: Mapping[str, str] = {
    NEWEST: gettext_noop("newest first"),
    OLDEST: gettext_noop("oldest first"),
    "gpu_hours": gettext_noop("most GPU-hours"),
    "queue_time": gettext_noop("longest queue time"),
    "ended": gettext_noop("last ended"),
}
SORT_TEXTS: Mapping[str, str] = {
    "gpu_hours": gettext_noop("The newest 10,000 ended jobs, most GPU-hours first."),
    "queue_time": gettext_noop("The newest 10,000 ended jobs, longest queue time first."),
    "ended": gettext_noop("The newest 10,000 ended jobs, last ended first."),
}


class ColumnHead(NamedTuple):
    """A column's heading. `url`: the list in the column's order; "" if it has none."""

    text: str
    url: str
    is_sorted: bool
    is_number: bool


def columns_of(chosen: Collection[str], sort: str) -> list[str]:
    """Return the columns to show, in their order: the chosen ones, and that of the order."""
    shown = [name for name in COLUMNS if name in chosen] or list(USUAL)
    return [name for name in COLUMNS if name in shown or name == sort]


def column_heads(columns: Iterable[str], kept: Mapping[str, str]) -> list[ColumnHead]:
    """Return the headings of columns; `kept` is the list's filter as the values of a URL."""
    sort = kept.get("sort") or NEWEST
    is_queue = kept.get("state") == "pending"
    return [
        ColumnHead(
            text=_(COLUMNS[name]),
            url="" if is_queue or by is None else f"?{urlencode({**kept, 'sort': by})}",
            is_sorted=by == sort and not is_queue,
            is_number=name not in LEFT_ALIGNED,
        )
        for name in columns
        for by in (SORTED_BY.get(name),)
    ]


def match_text(wanted: read.JobFilter, matches: int) -> str:
    """Return the heading of a filtered list, with the number of matches."""
    if matches >= read.COUNTED:
        jobs = _("{count} or more jobs").format(count=thousands(matches))
    else:
        jobs = plural(matches, "job") if matches else _("No match")
    filters = ", ".join(_filters(wanted))
    return f"{jobs}: {filters}." if filters else f"{jobs}."


def ignored_text(error: FieldError) -> str:
    """Return an error of a filter, with the filter's label in place of its name."""
    label = _(FILTERS[error.top_field])
    return str(replace(error, field=f"“{label}”"))


def _filters(wanted: read.JobFilter) -> list[str]:
    """Return the filters that are set, each as a text."""
    query = wanted.query
    code = "" if query.exit_code is None else str(query.exit_code)
    texts = [
        (wanted.state, state_label(wanted.state)),
        (query.text, _("with “{text}” in the name").format(text=query.text)),
        (query.tags, _("tagged {tags}").format(tags=", ".join(query.tags))),
        (code, _("with exit code {code}").format(code=code)),
        (query.submitter, _submitter(query.submitter)),
        (query.since, _("since {time}").format(time=query.kept["since"])),
        (query.until, _("until {time}").format(time=query.kept["until"])),
        (wanted.pool, _("in {pool}").format(pool=wanted.pool)),
    ]
    return [text for is_set, text in texts if is_set]


def _submitter(name: str) -> str:
    return _("submitted by you") if name == ME else _("submitted by {name}").format(name=name)


def state_label(state: str) -> str:
    """Return the word for a state of the filter, as inside a sentence."""
    if state in STATE_BADGES:
        return uncapitalized(state_badge(state, is_quarantined=False).text)
    return _("running or starting")
