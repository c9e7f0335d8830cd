"""A job's stopping metric over its iterations, with its target and the expected end."""

from evenshare_core.domain.estimates import EstimateSource
from portal.charts.explore.chart import Label, PageChart, Series, Span, apart, axis_range
from portal.charts.explore.looks import QUOTA, Look
from scheduling.selectors.jobs.stop_forecasts import MetricView

PLACES = 4
# Minimum height of the axis, as a part of the distance from the first evaluation to the target.
LEAST = 0.05
SEEN = Look("var(--ink)")
EXPECTED = Look("var(--accent)", width=3)
DASHED = "By iterations. Dashed: the target."
SHADED = " Shaded: expected iteration, 10 % to 90 %."
CHANCES = ("10 %", "50 %", "90 %")


def metric_chart(view: MetricView, *, title: str, criterion_text: str, file: str) -> PageChart:
    """Draw the evaluations as a line, a dashed target, and the range of its expected iteration."""
    target = view.criterion.target
    values = [point.metric for point in view.points]
    stop = view.forecast
    is_fitted = stop is not None and stop.source is EstimateSource.FITTED
    end = max(view.points[-1].iteration, stop.high if stop is not None and is_fitted else 0)
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
        Series(
            "target", f"target, {criterion_text}", [0, end], [target, target], QUOTA, places=PLACES
        ),
    ]
    spans: tuple[Span, ...] = ()
    if stop is not None and is_fitted:
        keys = sorted({stop.low, stop.iterations, stop.high})
        chances = dict(zip((stop.low, stop.iterations, stop.high), CHANCES, strict=True))
        series.append(
            Series(
                "expected to stop",
                "target at its expected iteration",
                keys,
                [target] * len(keys),
                EXPECTED,
                places=PLACES,
                dots=True,
                also={"chance that it has stopped": [chances[key] for key in keys]},
            )
        )
        spans = (Span(stop.low, stop.high, "var(--accent-wash)"),)
    y = axis_range([*values, target], least=LEAST * (abs(target - values[0]) or 1.0), floor=None)
    return PageChart(
        key="metric-chart",
        title=title,
        text=DASHED + (SHADED if spans else ""),
        series=tuple(series),
        y=y,
        unit=view.metric,
        file=file,
        key_column="iterations",
        labels=apart([Label("target", target), Label(f"{values[-1]:.{PLACES}g}", values[-1])], y),
        spans=spans,
    )
