"""What holds GPUs now, on the dashboard: how many jobs, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from portal.charts.figures import plural, thousands
from scheduling.selectors.tenants.dashboard import RunningJob


def runs_title(runs: Sequence[RunningJob], gpus: int) -> str:
    """How many run, and how many of those that hold GPUs have no program yet."""
    starting = sum(run.is_starting for run in runs)
    running = plural(len(runs) - starting, "job runs", "jobs run")
    if not starting:
        return f"{running} on {plural(gpus, 'GPU')}"
    starts = f"{thousands(starting)} {'is' if starting == 1 else 'are'} starting"
    return f"{running} and {starts}, on {plural(gpus, 'GPU')}"


def where(run: RunningJob) -> str:
    """The nodes of a lease, short."""
    if len(run.nodes) <= 2:
        return ", ".join(run.nodes)
    return f"{run.nodes[0]} and {len(run.nodes) - 1} more"
