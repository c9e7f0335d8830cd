"""A job type's profiling runs in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from portal.charts.figures import plural
from scheduling.models import Job
from scheduling.selectors.jobs.phases import STARTING


class RunRow(NamedTuple):
    """A profiling run, and what it does in a word."""

    job: Job
    text: str


def run_rows(runs: Sequence[Job], phases: Mapping[int, str]) -> list[RunRow]:
    """Return a job type's profiling runs as its page lists them."""
    return [
        RunRow(run, STARTING if phases[run.pk] == STARTING else run.get_state_display())
        for run in runs
    ]


def profiling_text(runs: Sequence[Job]) -> str:
    """Return how it stands with a job type's profiling runs, newest first; empty without any."""
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
