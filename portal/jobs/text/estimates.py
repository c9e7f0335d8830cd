"""Texts about a job's expected duration."""

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
    if estimate.source is EstimateSource.CAP:
        return f"Runs at most {takes}: the time of its maximum iterations, by {reports}."
    if estimate.metric:
        by = f"the curve of its {estimate.metric} and {reports} of iteration times"
        return f"Expected to run {takes}, by {by}."
    basis = {
        EstimateSource.MEASURED: f"by its iterations and {reports} of their times",
        EstimateSource.FITTED: (
            f"by its iterations and {reports} of their times on other numbers of GPUs"
        ),
        EstimateSource.HISTORY: f"from {plural(estimate.basis, 'measured run')}",
        EstimateSource.DECLARED: "as declared",
    }
    return f"Expected to run {takes}, {basis[estimate.source]}."
