"""Texts of the list of jobs: its heading, its columns."""

from collections.abc import Mapping

from portal.charts.figures import plural, thousands
from portal.jobs.text.job import STATE_BADGES
from scheduling.requests.job_filters import ME
from scheduling.selectors.jobs import tenant_jobs as read

# The columns that people may choose, in their order; name, state and deadline are always shown.
COLUMNS: Mapping[str, str] = {
    "submitter": "Submitter",
    "tags": "Tags",
    "position": "Position",
    "gpus": "GPUs",
    "submitted": "Submitted",
    "queue_time": "Queue time",
    "terms": "Terms",
    "own": "Own now",
    "borrowed": "Borrowed now",
    "ended": "Ended",
    "exit_code": "Exit code",
}
USUAL = ("position", "gpus", "submitted", "queue_time", "terms", "own", "borrowed", "ended")


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
