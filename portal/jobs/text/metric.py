"""Data of templates/jobs/_metric.html: a job's stopping metric, and its expected end."""

from typing import Any

from evenshare_core.domain.estimates import EstimateSource
from portal.charts.explore.metrics import metric_chart
from portal.charts.figures import percent, plural, thousands
from portal.jobs.text.deadline import stop_criterion_text
from scheduling.models import Job
from scheduling.selectors.jobs.stop_forecasts import MetricView, read_metric

# Curves with less weight are not named.
LEAST_WEIGHT_MILLI = 100


def metric_context(job: Job) -> dict[str, Any]:
    """Return the sentence, chart and unusable reports; `metric` is None if the job has none."""
    view = read_metric(job)
    if view is None:
        return {"metric": None}
    criterion_text = stop_criterion_text(job)
    sentence = stop_sentence(view, criterion_text, is_active=job.is_active)
    return {
        "metric": view,
        "metric_sentence": sentence,
        "metric_curves": _curves(view),
        "metric_chart": metric_chart(
            view, title=sentence, criterion_text=criterion_text, file=f"metric-{job.uid}"
        )
        if view.points
        else None,
    }


def stop_sentence(view: MetricView, criterion_text: str, *, is_active: bool) -> str:
    """Return when a job stopped or is expected to stop, and the basis of the estimate."""
    cap = plural(view.criterion.cap, "iteration")
    if not view.points:
        return f"No evaluation of {view.metric} was reported"
    met = next((one for one in view.points if view.criterion.is_met(one.metric)), None)
    if met is not None:
        return f"Reached {criterion_text} after {plural(met.iteration, 'iteration')}"
    if not is_active:
        last = view.points[-1]
        end = plural(last.iteration, "iteration")
        return f"Ended without {criterion_text}: {last.metric:g} after {end}"
    stop = view.forecast
    if stop is None:
        return f"Counted with all of its {cap} until its {view.metric} is evaluated"
    if stop.source is EstimateSource.CAP:
        return f"Counted with all of its {cap}: {stop.note.removeprefix('the cap: ')}"
    return (
        f"Expected to reach {criterion_text} after {plural(stop.iterations, 'iteration')}"
        f" (10 % to 90 %: {thousands(stop.low)} to {thousands(stop.high)}),"
        f" from {plural(stop.evaluations, 'evaluation')}"
    )


def _curves(view: MetricView) -> str:
    named = [
        f"{name} {percent(weight / 1000)}"
        for name, weight in view.families
        if weight >= LEAST_WEIGHT_MILLI
    ]
    return ", ".join(named)
