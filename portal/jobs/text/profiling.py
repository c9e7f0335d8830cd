"""A job type's profiling runs in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from portal.charts.figures import plural
from scheduling.models import Job


def profiling_text(runs: Sequence[Job]) -> str:
    """Return how it stands with a job type's profiling runs, newest first; empty without any."""
    if not runs:
        return ""
    newest = runs[0]
    gpus = plural(newest.gpus, "GPU")
    if newest.state == Job.State.PENDING:
        return f"A profiling run on {gpus} is queued."
    if newest.is_active:
        return f"It is being profiled on {gpus}."
    if newest.state == Job.State.SUCCEEDED:
        return f"It was profiled on {gpus} last."
    return f"Its last profiling run, on {gpus}, did not end as it should."
