"""A metric over steps or over time, of one job or of several jobs laid over each other."""

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from portal.charts.explore.chart import Label, PageChart, Series, apart, axis_range, value_text
from portal.charts.explore.columns import ChartColumn, column
from portal.charts.explore.looks import Look, line_look
from portal.charts.figures import plural, thousands
from scheduling.services.job_metrics import CurvePoint, MetricCurve

STEP, TIME = "step", "time"
AXES = {STEP: "steps", TIME: "time"}
DIGITS = 6
# Curves with fewer points get a dot at each.
DOTTED = 40
# Minimum height of the axis, as a part of the largest value.
LEAST = 0.01
ONE = Look("var(--ink)")
UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class RunCurve(NamedTuple):
    """A job's curve of a metric, by a name that is unique in the chart; `key` stays the same.

    `label` is a short name next to the last value.
    """

    name: str
    key: str
    place: int
    curve: MetricCurve
    label: str = ""


def curve_chart(curve: MetricCurve, *, axis: str, key: str, file: str) -> PageChart | None:
    """Return the chart of a job's metric; None if no point has a time and `axis` is time."""
    run = RunCurve(curve.name, "", 0, curve)
    last = curve.points[-1]
    title = _("{metric} {value} after step {step}").format(
        metric=curve.name, value=_short(last.value), step=thousands(last.step)
    )
    text = _("Lowest {lowest}, highest {highest}.").format(
        lowest=_short(curve.lowest), highest=_short(curve.highest)
    )
    return _chart([run], [ONE], axis, PageTexts(key, title, text, file))


def compared_chart(
    name: str, runs: Sequence[RunCurve], *, axis: str, key: str, file: str
) -> PageChart | None:
    """Return the chart of a metric of several jobs; None if none of them has a point to draw."""
    looks = [line_look(run.place) for run in runs]
    text = _("Of {jobs}.").format(jobs=plural(len(runs), "job"))
    return _chart(runs, looks, axis, PageTexts(key, name, text, file))


class PageTexts(NamedTuple):
    """A chart's key in the page, its texts, and the start of the names of its files."""

    key: str
    title: str
    text: str
    file: str


def _chart(
    runs: Sequence[RunCurve], looks: Sequence[Look], axis: str, texts: PageTexts
) -> PageChart | None:
    drawn = [_drawn(run.curve.points, axis) for run in runs]
    longest_s = max((point.elapsed_s or 0.0 for points in drawn for point in points), default=0.0)
    size, unit = next((one for one in UNITS if longest_s >= 2 * one[0]), UNITS[-1])
    series = [
        Series(
            run.name,
            run.name,
            [_key(point, axis, size) for point in points],
            [point.value for point in points],
            look,
            steps=False,
            dots=len(points) < DOTTED,
            key=run.key,
            digits=DIGITS,
        )
        for run, points, look in zip(runs, drawn, looks, strict=True)
        if points
    ]
    if not series:
        return None
    values = [point.value for points in drawn for point in points]
    y = axis_range(values, least=LEAST * (max(map(abs, values)) or 1.0), floor=None)
    labels = [
        Label(f"{run.label} {_short(points[-1].value)}".strip(), points[-1].value, look.color)
        for run, points, look in zip(runs, drawn, looks, strict=True)
        if points
    ]
    return PageChart(
        key=texts.key,
        title=texts.title,
        text=texts.text,
        series=tuple(series),
        y=y,
        unit=runs[0].curve.name,
        file=texts.file,
        key_column=ChartColumn(pgettext("chart", "step"), "step")
        if axis == STEP
        else column(gettext_noop("{unit} since the first point"), unit=unit),
        labels=apart(labels, y),
        key_unit="" if axis == STEP else unit,
    )


def _short(value: float) -> str:
    return value_text(value, 0, 4)


def _drawn(points: Sequence[CurvePoint], axis: str) -> list[CurvePoint]:
    if axis == STEP:
        return list(points)
    timed = [point for point in points if point.elapsed_s is not None]
    return sorted(timed, key=lambda point: point.elapsed_s or 0.0)


def _key(point: CurvePoint, axis: str, size: float) -> float:
    return point.step if axis == STEP else round((point.elapsed_s or 0.0) / size, 6)
