"""Texts about a job's expected duration."""

from django.utils.translation import gettext as _

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.units import ONE_MILLI
from portal.charts.figures import duration, percent, plural
from scheduling.models import Job
from scheduling.selectors.jobs.estimates import EstimateView


def declared_apart(job: Job, estimate: EstimateView | None) -> int | None:
    """Return the owner's estimate in seconds, or None if it equals the portal's estimate.

    Also None for a profiling run, whose duration is not declared.
    """
    is_said = estimate is not None and estimate.source is EstimateSource.DECLARED
    return None if is_said or job.profiling_s else job.estimate_s


def estimate_text(estimate: EstimateView | None) -> str:
    """Return a job's expected duration, its error, and its basis; empty without an estimate."""
    if estimate is None:
        return ""
    takes = duration(estimate.work_s)
    if estimate.error_milli < ONE_MILLI:
        takes = f"{takes} ± {percent(estimate.error_milli / ONE_MILLI)}"
    reports = plural(estimate.basis, "report")
    runs = plural(estimate.basis, "measured run")
    text = _text(estimate)
    return text.format(time=takes, reports=reports, runs=runs, metric=estimate.metric)


def _text(estimate: EstimateView) -> str:
    if estimate.source is EstimateSource.CAP:
        return _("Runs at most {time}: the time of its maximum iterations, by {reports}.")
    if estimate.metric:
        return _(
            "Expected to run {time}, by the curve of its {metric} and {reports} of iteration times."
        )
    texts = {
        EstimateSource.MEASURED: _(
            "Expected to run {time}, by its iterations and {reports} of their times."
        ),
        EstimateSource.FITTED: _(
            "Expected to run {time}, by its iterations and {reports} of their times on other"
            " numbers of GPUs."
        ),
        EstimateSource.HISTORY: _("Expected to run {time}, from {runs}."),
        EstimateSource.DECLARED: _("Expected to run {time}, as declared."),
    }
    return texts[estimate.source]
