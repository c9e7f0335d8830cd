"""Data of templates/jobs/_metric.html: a job's stopping metric, and its expected end."""

import re
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evenshare_core.domain.estimates import EstimateSource
from portal.charts.explore.metrics import metric_chart
from portal.charts.figures import percent, plural, thousands
from portal.jobs.text.deadline import stop_criterion_text
from scheduling.models import Job
from scheduling.selectors.jobs.stop_forecasts import MetricView, StopView, read_metric

# Curves with less weight are not named.
LEAST_WEIGHT_MILLI = 100
# Why a forecast with enough evaluations is the maximum of iterations, as its note says.
REACHED = gettext_noop("the cap was reached")
UNFIT = gettext_noop("no curve could be fitted to its evaluations")
_NUMBERS = re.compile(r"\d+")


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
            view, title=sentence, criterion_text=criterion_text, file="metric-" + str(job.uid)
        )
        if view.points
        else None,
    }


def stop_sentence(view: MetricView, criterion_text: str, *, is_active: bool) -> str:
    """Return when a job stopped or is expected to stop, and the basis of the estimate."""
    cap = plural(view.criterion.cap, "iteration")
    if not view.points:
        return _("No evaluation of {metric} was reported").format(metric=view.metric)
    met = next((one for one in view.points if view.criterion.is_met(one.metric)), None)
    if met is not None:
        return _("Reached {criterion} after {iterations}").format(
            criterion=criterion_text, iterations=plural(met.iteration, "iteration")
        )
    if not is_active:
        last = view.points[-1]
        return _("Ended without {criterion}: {value} after {iterations}").format(
            criterion=criterion_text,
            value=f"{last.metric:g}",
            iterations=plural(last.iteration, "iteration"),
        )
    stop = view.forecast
    if stop is None:
        return _("Counted with all of its {cap} until its {metric} is evaluated").format(
            cap=cap, metric=view.metric
        )
    if stop.source is EstimateSource.CAP:
        return _capped_sentence(stop, cap)
    return _(
        "Expected to reach {criterion} after {iterations} (10 % to 90 %: {low} to {high}),"
        " from {evaluations}"
    ).format(
        criterion=criterion_text,
        iterations=plural(stop.iterations, "iteration"),
        low=thousands(stop.low),
        high=thousands(stop.high),
        evaluations=plural(stop.evaluations, "evaluation"),
    )


def _capped_sentence(stop: StopView, cap: str) -> str:
    numbers = _NUMBERS.findall(stop.note)
    if len(numbers) != 2:
        reason = _(stop.note.partition(": ")[2] or stop.note)
        return _("Counted with all of its {cap}: {reason}").format(cap=cap, reason=reason)
    count, needed = map(int, numbers)
    return ngettext(
        "Counted with all of its {cap}: {count} evaluation is too few, {needed} are needed",
        "Counted with all of its {cap}: {count} evaluations are too few, {needed} are needed",
        count,
    ).format(cap=cap, count=count, needed=needed)


def _curves(view: MetricView) -> str:
    named = [
        f"{name} {percent(weight / 1000)}"
        for name, weight in view.families
        if weight >= LEAST_WEIGHT_MILLI
    ]
    return ", ".join(named)
