"""Texts of the list of jobs: its heading, its columns."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from portal.charts.figures import plural, thousands
from portal.jobs.text.job import STATE_BADGES
from scheduling.requests.job_filters import BY_VALUE, ME, NEWEST, OLDEST
from scheduling.selectors.jobs import tenant_jobs as read

# The columns that people may choose, in their order; name, state and deadline are always shown.
COLUMNS: Mapping[str, str] = {
    "submitter": "Submitter",
    "tags": "Tags",
    "position": "Position",
    "gpus": "GPUs",
    "submitted": "Submitted",
    "queue_time": "Queue time",
    "gpu_hours": "GPU-hours",
    "terms": "Terms",
    "own": "Own now",
    "borrowed": "Borrowed now",
    "ended": "Ended",
    "exit_code": "Exit code",
}
USUAL = ("gpus", "submitted")
LEFT_ALIGNED = frozenset({"submitter", "tags"})
# The order that a column's heading chooses; a column of the list's order is always shown.
SORTED_BY: Mapping[str, str] = {"submitted": NEWEST, **{name: name for name in BY_VALUE}}
SORTS: Mapping[str, str] = {
    NEWEST: "newest first",
    OLDEST: "oldest first",
    "gpu_hours": "most GPU-hours",
    "queue_time": "longest queue time",
    "ended": "last ended",
}
SORT_TEXTS: Mapping[str, str] = {
    "gpu_hours": "The newest 10,000 ended jobs, most GPU-hours first.",
    "queue_time": "The newest 10,000 ended jobs, longest queue time first.",
    "ended": "The newest 10,000 ended jobs, last ended first.",
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
            text=COLUMNS[name],
            url="" if is_queue or by is None else f"?{urlencode({**kept, 'sort': by})}",
            is_sorted=by == sort and not is_queue,
            is_number=name not in LEFT_ALIGNED,
        )
        for name in columns
        for by in (SORTED_BY.get(name),)
    ]


def match_text(wanted: read.JobFilter, matches: int) -> str:
    """Return the heading of a filtered list, with the number of matches."""
    query = wanted.query
    kind = f"{state_label(wanted.state).lower()} job" if wanted.state else "job"
    count = f"{thousands(matches)} or more {kind}s" if matches >= read.COUNTED else ""
    said = count or (plural(matches, kind) if matches else f"No {kind}")
    name = "their names" if matches > 1 else "its name"
    parts = [
        said,
        f"with “{query.text}” in {name}" if query.text else "",
        f"tagged {', '.join(query.tags)}" if query.tags else "",
        f"with exit code {query.exit_code}" if query.exit_code is not None else "",
        f"submitted by {'you' if query.submitter == ME else query.submitter}"
        if query.submitter
        else "",
        f"since {query.kept['since']}" if query.since else "",
        f"until {query.kept['until']}" if query.until else "",
        f"in {wanted.pool}" if wanted.pool else "",
    ]
    return f"{' '.join(part for part in parts if part)}."


def state_label(state: str) -> str:
    """Return the word for a state of the filter."""
    return STATE_BADGES[state].text if state in STATE_BADGES else "Running or starting"
