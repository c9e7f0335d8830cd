"""Texts about a job type's profiling runs."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from portal.charts.figures import plural, uncapitalized
from portal.jobs.text.job import state_badge
from scheduling.models import Job


def run_rows(runs: Sequence[Job], phases: Mapping[int, str]) -> list[tuple[Job, str]]:
    """Return a job type's profiling runs, each with its phase."""
    badges = [state_badge(phases[run.pk], is_quarantined=False) for run in runs]
    return [(run, uncapitalized(badge.text)) for run, badge in zip(runs, badges, strict=True)]


def profiling_text(runs: Sequence[Job]) -> str:
    """Return the state of a job type's newest profiling run; empty without runs."""
    if not runs:
        return ""
    newest = runs[0]
    if newest.state == Job.State.PENDING:
        text = _("A profiling run on {gpus} is queued.")
    elif newest.is_active:
        text = _("A profiling run on {gpus} is running.")
    elif newest.state == Job.State.SUCCEEDED:
        text = _("Last profiled on {gpus}.")
    else:
        text = _("Its last profiling run, on {gpus}, failed.")
    return text.format(gpus=plural(newest.gpus, "GPU"))
