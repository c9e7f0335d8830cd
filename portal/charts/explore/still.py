"""A still picture of a chart, until static/charts.js draws it, and where there is no script."""

from collections.abc import Sequence
from itertools import pairwise

from portal.charts.explore.chart import PageChart, Series, key_number, key_text
from portal.charts.explore.looks import BORROWED, Look
from portal.charts.figures import thousands
from portal.charts.scale import Scale, ticks
from portal.charts.svg import Markup, join, number, path, rect, tag, text

WIDTH, HEIGHT = 600, 300
LEFT, RIGHT, TOP, BASE = 56, 588, 12, 264
DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3", "longdash": "10 4"}

Point = tuple[float, float | None]  # a place on the x axis, in pixels, and a value


def still(chart: PageChart, *, bare: bool = False) -> Markup:
    """Draw the shown series; empty for bars that lie, and for a single key.

    `bare`: only the series, stretched over the whole width, without axes and texts.
    """
    if chart.sideways or len(chart.keys) < 2:
        return Markup("")
    first, last = key_number(chart.keys[0]), key_number(chart.keys[-1])
    x = Scale(first, last, 0, WIDTH) if bare else Scale(first, last, LEFT, RIGHT)
    y = Scale(*chart.y, HEIGHT, 0) if bare else Scale(*chart.y, BASE, TOP)
    bands = [
        rect(x(first), y(band.high), x(last) - x(first), y(band.low) - y(band.high), fill=band.fill)
        for band in chart.bands
    ]
    return tag(
        "svg",
        *bands,
        *([] if bare else [_axes(chart, y)]),
        *_series(chart, x, y),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none" if bare else "xMinYMid",
        class_="chart-still",
        aria_hidden="true",
    )


def _axes(chart: PageChart, y: Scale) -> Markup:
    parts: list[Markup] = []
    for level in ticks(*chart.y, 4):
        if chart.y[0] <= level <= chart.y[1]:
            parts.append(path(f"M{LEFT} {y(level):.1f}H{RIGHT}", class_="grid"))
            label = thousands(level, 0 if level == int(level) else 2)
            parts.append(text(LEFT - 6, round(y(level)) + 4, label, anchor="end"))
    ends = [key_text(key) for key in (chart.keys[0], chart.keys[-1])]
    parts.append(text(LEFT, HEIGHT - 14, f"{ends[0]} UTC" if chart.is_time else ends[0]))
    parts.append(text(RIGHT, HEIGHT - 14, ends[1], anchor="end"))
    return join(parts)


def _series(chart: PageChart, x: Scale, y: Scale) -> list[Markup]:
    drawn = []
    below: dict[float, float] = {}  # the top of the areas so far, by place
    for one in chart.series:
        if not one.shown:
            continue
        points = _points(one, x)
        if one.kind == "area":
            drawn.append(_area(one, points, below, y))
        elif one.kind == "bar":
            wide = x(key_number(chart.keys[0]) + one.span_s) - x(key_number(chart.keys[0]))
            drawn += [
                rect(at, y(value), max(wide, 2), y(0) - y(value), fill=_fill(one.look))
                for at, value in points
                if value is not None
            ]
        else:
            drawn.append(_line(one, points, y))
    return drawn


def _points(one: Series, x: Scale) -> list[Point]:
    return [
        (x(key_number(key)), None if value is None else float(value))
        for key, value in zip(one.keys, one.values, strict=True)
    ]


def _area(one: Series, points: Sequence[Point], below: dict[float, float], y: Scale) -> Markup:
    """Draw an area on top of those in `below`, and add it to them."""
    base = [(at, below.get(at, 0.0)) for at, _ in points]
    top = [(at, low + (value or 0.0)) for (at, value), (_, low) in zip(points, base, strict=True)]
    below.update(top)
    back = _steps([(at, y(value)) for at, value in base], steps=one.steps)
    along = [*_steps([(at, y(value)) for at, value in top], steps=one.steps), *reversed(back)]
    return path(_through(along) + "Z", fill=_fill(one.look), stroke=one.look.color)


def _fill(look: Look) -> str:
    """Return the page's pattern of a tenant or of borrowed GPUs, else the colour."""
    if look.pattern == BORROWED:
        return "url(#p-bor)"
    return f"url(#p-{look.swatch})" if look.swatch else look.fill or look.color


def _line(one: Series, points: Sequence[Point], y: Scale) -> Markup:
    """Draw a line with a gap at each unknown value."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, y(value)))
    d = "".join(_through(_steps(run, steps=one.steps)) for run in runs)
    dashes = DASHES.get(one.look.dash)
    return path(d, fill="none", stroke=one.look.color, stroke_width=2, stroke_dasharray=dashes)


def _steps(points: Sequence[tuple[float, float]], *, steps: bool) -> list[tuple[float, float]]:
    """Return the corners of a stepped line: a value holds until the next one."""
    if not steps or not points:
        return list(points)
    corners = [points[0]]
    for (_, level), (at, after) in pairwise(points):
        corners += [(at, level), (at, after)] if after != level else [(at, level)]
    return corners


def _through(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through the points, without those in the middle of a horizontal line."""
    kept = [
        point
        for place, point in enumerate(points)
        if place in {0, len(points) - 1}
        or not points[place - 1][1] == point[1] == points[place + 1][1]
    ]
    places = [(number(round(at, 1)), number(round(level, 1))) for at, level in kept]
    parts = [f"M{at} {level}" for at, level in places[:1]]
    for (x, y), (at, level) in pairwise(places):
        if level == y:
            parts.append(f"H{at}")
        else:
            parts.append(f"V{level}" if at == x else f"L{at} {level}")
    return "".join(parts)
