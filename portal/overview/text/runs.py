"""The running and queued jobs on the dashboard: numbers, nodes and reasons."""

from collections.abc import Sequence

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import plural, thousands
from portal.charts.notes import Link, Note, PoolClocks
from scheduling.selectors.tenants.dashboard import RunningJob, WaitingJobs


def runs_title(runs: Sequence[RunningJob], gpus: int) -> str:
    """Return how many jobs run, and how many hold GPUs but have not started."""
    starting = sum(run.is_starting for run in runs)
    running, held = plural(len(runs) - starting, "job runs", "jobs run"), plural(gpus, "GPU")
    if not starting:
        return _("{jobs_run} on {gpus}").format(jobs_run=running, gpus=held)
    text = ngettext(
        "{jobs_run} and {count} is starting, on {gpus}",
        "{jobs_run} and {count} are starting, on {gpus}",
        starting,
    )
    return text.format(jobs_run=running, count=thousands(starting), gpus=held)


def where(run: RunningJob) -> str:
    """Return the nodes of a lease, shortened."""
    if len(run.nodes) <= 2:
        return ", ".join(run.nodes)
    return _("{node} and {count} more").format(
        node=run.nodes[0], count=thousands(len(run.nodes) - 1)
    )


def wait_title(waits: Sequence[WaitingJobs]) -> str:
    """Return how many jobs are queued, as a heading."""
    jobs = sum(wait.jobs for wait in waits)
    if not jobs:
        return _("No job is queued")
    return _("Why {jobs_are_queued}").format(
        jobs_are_queued=plural(jobs, "job is queued", "jobs are queued")
    )


def wait_note(wait: WaitingJobs, links: tuple[Link, ...], times: PoolClocks) -> Note:
    """Return why jobs are queued, in full."""
    text = f"{wait.why.sentence} {wait.why.next_step}"
    if wait.jobs > 1:
        text = " ".join((text, _("The numbers are those of the smallest job.")))
    return Note(capfirst(wait.why.text), text=text, links=links, times=times)
