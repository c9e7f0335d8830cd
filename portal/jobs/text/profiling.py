"""Texts about a job type's profiling runs."""

from collections.abc import Mapping, Sequence

from portal.charts.figures import plural
from scheduling.models import Job
from scheduling.selectors.jobs.phases import STARTING


def run_rows(runs: Sequence[Job], phases: Mapping[int, str]) -> list[tuple[Job, str]]:
    """Return a job type's profiling runs, each with its phase."""
    return [
        (run, STARTING if phases[run.pk] == STARTING else run.get_state_display()) for run in runs
    ]


def profiling_text(runs: Sequence[Job]) -> str:
    """Return the state of a job type's newest profiling run; empty without runs."""
    if not runs:
        return ""
    newest = runs[0]
    gpus = plural(newest.gpus, "GPU")
    if newest.state == Job.State.PENDING:
        return f"A profiling run on {gpus} is queued."
    if newest.is_active:
        return f"A profiling run on {gpus} is running."
    if newest.state == Job.State.SUCCEEDED:
        return f"Last profiled on {gpus}."
    return f"Its last profiling run, on {gpus}, failed."
