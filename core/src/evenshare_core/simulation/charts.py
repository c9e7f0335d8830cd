"""SVG charts of a report: lines over a linear or logarithmic axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

Line = list[tuple[float, float]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 260, 46, 14, 12, 42
SERIES = 6  # number of lines with distinct colours and dashes; the first line is solid
POINTS = 200  # the most points drawn of a curve
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")

_POWERS = (1e9, "G"), (1e6, "M"), (1e3, "k")


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with one line per series; a series without values has an empty line.

    `x` is the label of the axis, with its unit. y is a share between 0 and 1, or a ratio if
    `is_ratio`. `mark` is a value drawn as a thin line, horizontal if y is a ratio, and otherwise
    vertical.
    """

    title: str
    says: str
    x: str
    lines: Sequence[Line]
    is_log: bool = False
    is_ratio: bool = False
    mark: float | None = None


def cdf(values: Sequence[float]) -> Line:
    """Return points (value, share of values up to it) of sorted values."""
    if not values:
        return []
    last = len(values) - 1
    picks = sorted({last * i // (POINTS - 1) for i in range(POINTS)})
    return [(values[i], (i + 1) / len(values)) for i in picks]


def number(value: float) -> str:
    """Return the label of a value on an axis: three digits, thousands as k."""
    for size, sign in _POWERS:
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def key(names: Sequence[str]) -> str:
    return "".join(
        f'<li><svg width="34" height="10" aria-hidden="true">'
        f'<path class="{_style(index)}" d="M0,5H34"/></svg> {escape(name)}</li>'
        for index, name in enumerate(names)
    )


def figure(chart: Chart) -> str:
    """Return a chart as HTML with its title, axes and description; empty if it has no points."""
    drawn = [[at for at in line if at[0] > 0 or not chart.is_log] for line in chart.lines]
    points = [at for line in drawn for at in line]
    if not points:
        return ""
    ticks_x = _ticks([x for x, _ in points], chart.mark, is_log=chart.is_log)
    top = max([1.0, *(y for _, y in points)])
    ticks_y = _ticks([0, top], None, is_log=False) if chart.is_ratio else [0, 0.25, 0.5, 0.75, 1]
    place = _Place(ticks_x[0], ticks_x[-1], ticks_y[-1], is_log=chart.is_log)
    inner = (
        _grid(place, ticks_x, ticks_y, is_ratio=chart.is_ratio)
        + _mark(place, chart)
        + "".join(
            f'<path class="{_style(index)}" d="M{"L".join(place.at(x, y) for x, y in line)}"/>'
            for index, line in enumerate(drawn)
            if line
        )
    )
    return (
        f"<figure><figcaption><b>{escape(chart.title)}</b> {escape(chart.says)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(chart.title)}</title>'
        f'{inner}<text x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(chart.x)}</text></svg></figure>"
    )


class _Place:
    """The scale of a chart, from values to pixels."""

    def __init__(self, low: float, high: float, top: float, *, is_log: bool) -> None:
        self._scale: Callable[[float], float] = log10 if is_log else float
        self._low = self._scale(low)
        self._span = (self._scale(high) - self._low) or 1.0
        self._top = top

    def x(self, value: float) -> float:
        return LEFT + (self._scale(value) - self._low) / self._span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - BOTTOM - TOP)

    def at(self, x: float, y: float) -> str:
        return f"{self.x(x):.1f},{self.y(y):.1f}"


def _style(index: int) -> str:
    return f"s{index % SERIES}"


def _ticks(values: Sequence[float], mark: float | None, *, is_log: bool) -> list[float]:
    """Return round numbers that span the values and the mark."""
    low, high = min(values), max(values)
    if mark is not None:
        low, high = min(low, mark), max(high, mark)
    if is_log:
        first, last = floor(log10(low)), ceil(log10(high))
        return [10.0**power for power in range(first, max(last, first + 1) + 1)]
    step = _step((high - low) or 1.0)
    first, last = floor(low / step), ceil(high / step)
    return [count * step for count in range(first, max(last, first + 1) + 1)]


def _step(span: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that the span has at most five steps."""
    power = 10.0 ** floor(log10(span / 5))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * 5 >= span * 0.999)


def _grid(
    place: _Place, ticks_x: Sequence[float], ticks_y: Sequence[float], *, is_ratio: bool
) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    rows = "".join(
        f'<path class="grid" d="M{LEFT},{place.y(y):.1f}H{right}"/>'
        f'<text x="{LEFT - 6}" y="{place.y(y) + 4:.1f}" text-anchor="end">'
        f"{number(y) if is_ratio else f'{y:.0%}'}</text>"
        for y in ticks_y
    )
    return rows + "".join(
        f'<path class="grid" d="M{place.x(x):.1f},{TOP}V{bottom}"/>'
        f'<text x="{place.x(x):.1f}" y="{bottom + 15}" text-anchor="middle">{number(x)}</text>'
        for x in ticks_x
    )


def _mark(place: _Place, chart: Chart) -> str:
    if chart.mark is None:
        return ""
    if chart.is_ratio:
        return f'<path class="mark" d="M{LEFT},{place.y(chart.mark):.1f}H{WIDTH - RIGHT}"/>'
    return f'<path class="mark" d="M{place.x(chart.mark):.1f},{TOP}V{HEIGHT - BOTTOM}"/>'
