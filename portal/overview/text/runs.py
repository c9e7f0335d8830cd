"""The running jobs on the dashboard: their number and their nodes."""

from collections.abc import Sequence

from portal.charts.figures import plural, thousands
from scheduling.selectors.tenants.dashboard import RunningJob


def runs_title(runs: Sequence[RunningJob], gpus: int) -> str:
    """Return how many jobs run, and how many hold GPUs but have not started."""
    starting = sum(run.is_starting for run in runs)
    running = plural(len(runs) - starting, "job runs", "jobs run")
    if not starting:
        return f"{running} on {plural(gpus, 'GPU')}"
    starts = f"{thousands(starting)} {'is' if starting == 1 else 'are'} starting"
    return f"{running} and {starts}, on {plural(gpus, 'GPU')}"


def where(run: RunningJob) -> str:
    """Return the nodes of a lease, shortened."""
    if len(run.nodes) <= 2:
        return ", ".join(run.nodes)
    return f"{run.nodes[0]} and {len(run.nodes) - 1} more"
