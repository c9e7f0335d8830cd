"""Two policies side by side: courses as lines, and averages as a ring with an arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portal.charts.figures import thousands
from portal.charts.labels import Place, Point, crossed
from portal.charts.scale import Scale, text_width, tick_places, ticks
from portal.charts.svg import Markup, join, move, path, rect, tag, text

WIDTH, HEIGHT, TOP, BASE = 300, 236, 22, 210
ROW, ROWS_TOP, ROWS_END = 24, 30, 8
AHEAD = 7  # px of an arrow's head
NAME_MOST = 13
STEPS_H = (1, 2, 6, 12, 24, 48)  # of the axis


@dataclass(frozen=True, slots=True)
class Course:
    """One line: (hours after the start, value). `css` is "ln" for the present, "la" else."""

    name: str
    points: Sequence[tuple[float, float]]
    css: str = "ln"


@dataclass(frozen=True, slots=True)
class Move:
    """One row: a value as it is, and what it becomes (None: there is nothing to compare)."""

    name: str
    before: float
    after: float | None = None


def courses(
    lines: Sequence[Course],
    hours: float,
    *,
    label: str,
    top: float | None = None,
    top_text: str = "",
) -> Markup:
    """Lines over the hours to come, each named where no line runs; `top` is a dashed level."""
    highest = max([value for line in lines for _, value in line.points] + [top or 0, 1])
    levels = [at for at in ticks(0, highest * 1.15, 4, whole=True) if at <= highest * 1.15]
    left = 12 + 8 * len(thousands(round(levels[-1])))
    x, y = Scale(0, hours, left, WIDTH - 4), Scale(0, highest * 1.15, BASE, TOP)
    parts: list[object] = [_levels(levels, y, left), _hours(hours, x, left)]
    drawn = [[(x(at), y(value)) for at, value in line.points] for line in lines]
    blocked: list[Sequence[Point]] = list(drawn)
    if top is not None:
        parts.append(path(f"M{left} {y(top):.1f}H{WIDTH - 4}", class_="q"))
        parts.append(text(WIDTH - 6, y(top) - 6, top_text, class_="halo", anchor="end"))
        blocked.append(_box(top_text, WIDTH - 6, y(top) - 6))
    for line, curve in zip(lines, drawn, strict=True):
        parts.append(path(move(curve), class_=line.css))
    for line, curve in zip(lines, drawn, strict=True):
        caption, css = line.name, ("ac" if line.css == "la" else "b") + " halo"
        right, baseline, anchor = _place(caption, curve, blocked)
        parts.append(text(right, baseline, caption, class_=css, anchor=anchor))
        blocked.append(_box(caption, right, baseline))
    return _chart(parts, label, HEIGHT)


def _place(caption: str, curve: Sequence[Point], blocked: Sequence[Sequence[Point]]) -> Place:
    """Near the curve, from its end backwards, where neither a line nor a label is."""
    places: list[Place] = []
    for off in (-8, 16, -20, 28, -34, 42, -50, 58, 80, -80):
        for at_x, at_y in reversed(curve):
            level = at_y + off
            if TOP - 6 <= level <= BASE - 6 and at_x - text_width(caption) > 36:
                places.append((min(at_x, WIDTH - 6), level, "end"))
    free = (place for place in places if not crossed(caption, place, blocked))
    return next(free, places[0] if places else (WIDTH - 6, TOP, "end"))


def _box(caption: str, right: float, baseline: float) -> list[Point]:
    """What a label takes, as a line that others must not cross."""
    return [(right - text_width(caption), baseline - 4), (right, baseline - 4)]


def moves(rows: Sequence[Move], *, label: str, unit: str) -> Markup:
    """A ring where a value is, an arrow to where it goes; the lower the better.

    Without anything to compare, rings alone. Both numbers stand at the end of the row.
    """
    values = [value for row in rows for value in (row.before, row.after) if value is not None]
    highest = max([*values, 1.0])
    names = max((text_width(_cut(row.name)) for row in rows), default=0)
    numbers = [_numbers(row, highest) for row in rows]
    right = max((text_width(one) for one in numbers), default=0)
    left, end = names + 14, WIDTH - right - 14
    x = Scale(0, highest, left, end)
    height = ROWS_TOP + ROW * len(rows) + ROWS_END
    levels = [at for at in ticks(0, highest, 3) if at <= highest]
    places = tick_places(levels)
    parts: list[object] = []
    for level in levels:
        parts.append(path(f"M{x(level):.1f} {TOP}V{height - ROWS_END}", class_="grid"))
        shown = thousands(level, places) + (f" {unit}" if level == levels[-1] else "")
        parts.append(text(x(level), TOP - 8, shown, anchor="middle"))
    for index, row in enumerate(rows):
        middle = ROWS_TOP + ROW * index + ROW / 2
        parts.append(text(0, middle + 4, _cut(row.name), class_="b"))
        parts.append(text(WIDTH, middle + 4, numbers[index], anchor="end"))
        parts.append(_row(row, x, middle))
    return _chart(parts, label, height)


def _cut(name: str) -> str:
    return name if len(name) <= NAME_MOST else name[: NAME_MOST - 1] + "…"


def _numbers(row: Move, highest: float) -> str:
    places = 1 if highest < 10 else 0
    before = thousands(row.before, places)
    if row.after is None or thousands(row.after, places) == before:
        return before
    return f"{before} → {thousands(row.after, places)}"


def _row(row: Move, x: Scale, middle: float) -> Markup:
    start = x(row.before)
    parts: list[object] = []
    if row.after is not None and abs(x(row.after) - start) > 1:
        end = x(row.after)
        side = 1 if end > start else -1
        stem = end - side * min(AHEAD, abs(end - start))
        parts.append(path(f"M{start:.1f} {middle:.1f}H{stem:.1f}", class_="la"))
        head = f"M{end:.1f} {middle:.1f}l{-side * AHEAD} -5v10Z"
        parts.append(path(head, class_="dot"))
    parts.append(tag("circle", cx=start, cy=middle, r=4.5, class_="ring"))
    return join(parts)


def bar(fraction: float) -> Markup:
    """A wide bar of what is done; the words beside it say the per cent."""
    share = min(max(fraction, 0.0), 1.0)
    return tag(
        "svg",
        rect(0.5, 0.5, 599, 11, class_="frame"),
        rect(0, 0, 600 * share, 12, class_="gone"),
        path("".join(f"M{n * 60 + 0.5} 1V11" for n in range(1, 10)), class_="ticks"),
        viewBox="0 0 600 12",
        class_="tick wide",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _levels(levels: Sequence[float], y: Scale, left: float) -> Markup:
    return join(
        part
        for level in levels
        for part in (
            path(f"M{left:.1f} {y(level):.1f}H{WIDTH}", class_="grid"),
            text(left - 6, y(level) + 4, thousands(level, 0), anchor="end"),
        )
    )


def _hours(hours: float, x: Scale, left: float) -> Markup:
    parts: list[object] = [path(f"M{left:.1f} {BASE}H{WIDTH}", class_="axis")]
    step = next((one for one in STEPS_H if hours / one <= 4), STEPS_H[-1])
    for count in range(int(hours // step) + 1):
        at = count * step
        caption = f"{at} h" if at else "now"
        anchor = "start" if not at else "end" if at == hours else "middle"
        parts.append(text(x(at), BASE + 18, caption, anchor=anchor))
    return join(parts)


def _chart(parts: Sequence[object], label: str, height: float) -> Markup:
    return tag(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {height:g}", class_="ch", role="img", aria_label=label
    )
