"""Two policies over simulated hours: values over time as lines, waits as bars."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from portal.charts.explore.chart import Label, PageChart, Series, apart, distinct_names
from portal.charts.explore.columns import ChartColumn, column
from portal.charts.explore.looks import LENT, OWN, QUOTA, Look


@dataclass(frozen=True, slots=True)
class Course:
    """A policy's line: (hours after the start, value)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Wait:
    """A tenant's average wait in hours, now and with the other policy; None if it has no wait.

    `slug` distinguishes tenants of equal name.
    """

    name: str
    before: float
    after: float | None = None
    slug: str = ""


def course_chart(
    courses: Sequence[Course],
    *,
    key: str,
    title: str,
    text: str,
    unit: str,
    file: str,
    top: tuple[float, str] | None = None,
    places: int = 0,
) -> PageChart:
    """Draw lines over the simulated hours; `top` is a level with its label, such as all GPUs.

    `unit` is a text of the catalogue.
    """
    series = [
        Series(course.name, _head(unit, course.name), [at for at, _value in course.points],
               [value for _at, value in course.points], _look(place), steps=False, places=places)
        for place, course in enumerate(courses)
    ]  # fmt: skip # a table
    highest = max([value for course in courses for _at, value in course.points] + [1.0])
    if top is not None and series and series[0].keys:
        level, name = top
        ends = [series[0].keys[0], series[0].keys[-1]]
        series.append(Series(name, _head(unit, name), ends, [level, level], QUOTA, steps=False))
        highest = max(highest, level)
    return PageChart(
        key=key,
        title=title,
        text=text,
        series=tuple(series),
        y=(0.0, highest * 1.15),
        unit=_(unit),
        file=file,
        key_column=gettext_noop("hours after the start"),
        key_unit="h",
        labels=_ends(courses, highest),
    )


def _head(unit: str, name: str) -> ChartColumn:
    return ChartColumn(f"{_(unit)}, {name}", f"{unit}, {name}")


def _look(place: int) -> Look:
    """Return solid black for the present policy and a dashed accent colour for the other one."""
    return Look("var(--accent)", "dash") if place else Look("var(--ink)")


def _ends(courses: Sequence[Course], highest: float) -> tuple[Label, ...]:
    """Return each line's name at its end, without overlaps; the legend has all names."""
    ends = [course for course in courses if course.points]
    labels = [
        Label(course.name, course.points[-1][1], "var(--accent)" if place else "var(--ink)")
        for place, course in enumerate(ends)
    ]
    return apart(labels, (0.0, highest)) if len(labels) > 1 else ()


def wait_chart(waits: Sequence[Wait], names: Sequence[str], *, key: str, file: str) -> PageChart:
    """Draw average waits by tenant as bars, for one or two policies; shorter is better."""
    tenants = distinct_names([(wait.name, wait.slug) for wait in waits])
    columns: list[list[float | None]] = [[wait.before for wait in waits]]
    if len(names) > 1:
        columns.append([wait.after for wait in waits])
    highest = max([value for column in columns for value in column if value is not None] + [1.0])
    texts = (
        _("By tenant, from submission to the first lease."),
        _("Solid: the present policy; hatched: the other policy."),
    )
    return PageChart(
        key=key,
        title=_("Average wait, hours"),
        text=" ".join(texts[: len(names)]),
        series=tuple(
            Series(
                name,
                column(gettext_noop("average wait, h, {policy}"), policy=name),
                tenants,
                values,
                look,
                kind="bar",
                places=2,
            )
            for name, values, look in zip(names, columns, (OWN, LENT), strict=False)
        ),
        y=(0.0, highest * 1.1),
        unit=_("hours"),
        file=file,
        key_column=ChartColumn(pgettext("chart", "tenant"), "tenant"),
        sideways=True,
    )
