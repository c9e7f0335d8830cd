"""The running and queued jobs on the dashboard: numbers, nodes and reasons."""

from collections.abc import Sequence

from portal.charts.figures import plural, thousands
from portal.charts.notes import Link, Note
from scheduling.selectors.tenants.dashboard import RunningJob, WaitingJobs


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


def wait_title(waits: Sequence[WaitingJobs]) -> str:
    """Return how many jobs are queued, as a heading."""
    jobs = sum(wait.jobs for wait in waits)
    if not jobs:
        return "No job is queued"
    return f"Why {plural(jobs, 'job is', 'jobs are')} queued"


def wait_note(wait: WaitingJobs, links: tuple[Link, ...]) -> Note:
    """Return why jobs are queued, in full."""
    text = f"{wait.why.sentence} {wait.why.next_step}"
    if wait.jobs > 1:
        text += " The numbers are those of the smallest job."
    return Note(wait.why.text.capitalize(), text=text, links=links)
