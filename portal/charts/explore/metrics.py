"""A job's stopping metric over its iterations, with its target and the expected end."""

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.estimates import EstimateSource
from portal.charts.explore.chart import (
    Label,
    PageChart,
    Series,
    Span,
    apart,
    axis_range,
    value_text,
)
from portal.charts.explore.columns import column
from portal.charts.explore.looks import QUOTA, Look
from scheduling.selectors.jobs.stop_forecasts import MetricView

PLACES = 4
# Minimum height of the axis, as a part of the distance from the first evaluation to the target.
LEAST = 0.05
SEEN = Look("var(--ink)")
EXPECTED = Look("var(--accent)", width=3)

CHANCES = ("10 %", "50 %", "90 %")


def metric_chart(view: MetricView, *, title: str, criterion_text: str, file: str) -> PageChart:
    """Draw the evaluations as a line, a dashed target, and the range of its expected iteration."""
    target = view.criterion.target
    values = [point.metric for point in view.points]
    stop = view.forecast
    is_fitted = stop is not None and stop.source is EstimateSource.FITTED
    end = max(view.points[-1].iteration, stop.high if stop is not None and is_fitted else 0)
    reach = column(gettext_noop("target, {criterion}"), criterion=criterion_text)
    series = [
        Series(
            view.metric,
            view.metric,
            [point.iteration for point in view.points],
            values,
            SEEN,
            steps=False,
            places=PLACES,
            dots=True,
        ),
        Series(_("target"), reach, [0, end], [target, target], QUOTA, places=PLACES),
    ]
    spans: tuple[Span, ...] = ()
    if stop is not None and is_fitted:
        keys = sorted({stop.low, stop.iterations, stop.high})
        chances = dict(zip((stop.low, stop.iterations, stop.high), CHANCES, strict=True))
        series.append(
            Series(
                _("expected to stop"),
                column(gettext_noop("target at its expected iteration")),
                keys,
                [target] * len(keys),
                EXPECTED,
                places=PLACES,
                dots=True,
                also={gettext_noop("chance that it has stopped"): [chances[key] for key in keys]},
            )
        )
        spans = (Span(stop.low, stop.high, "var(--accent-wash)"),)
    y = axis_range([*values, target], least=LEAST * (abs(target - values[0]) or 1.0), floor=None)
    return PageChart(
        key="metric-chart",
        title=title,
        text=_("By iterations. Dashed: the target. Shaded: expected iteration, 10 % to 90 %.")
        if spans
        else _("By iterations. Dashed: the target."),
        series=tuple(series),
        y=y,
        unit=view.metric,
        file=file,
        key_column=gettext_noop("iterations"),
        labels=apart(
            [Label(_("target"), target), Label(value_text(values[-1], 0, PLACES), values[-1])], y
        ),
        spans=spans,
    )
