"""The posted price of a GPU type over time: steps in accent, labelled on the line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from portal.charts.figures import credits_text
from portal.charts.frame import drawing, time_axis
from portal.charts.labels import Place, Point, label
from portal.charts.scale import Scale, text_width, tick_places, ticks
from portal.charts.svg import Markup, move, path, rect, tag, text

PRICE_FORMULA = "base \N{MULTIPLICATION SIGN} (theta ^ use \N{MINUS SIGN} 1)"
HEIGHT, TOP, BASE, LEFT = 220, 24, 190, 44


@dataclass(frozen=True, slots=True)
class PriceStep:
    """From `at` on, until the next step: credits per GPU-hour."""

    at: datetime
    price: Decimal


def price_chart(
    steps: Sequence[PriceStep], now: datetime, *, label: str, width: int = 900
) -> Markup:
    """Steps in time order, the last one until `now`; lowest and highest are named."""
    if not steps:
        frame = rect(0.5, TOP, width - 1, BASE - TOP, class_="blank")
        blank = text(width / 2, (TOP + BASE) / 2, "no price posted yet", anchor="middle")
        return drawing([frame, blank], label, width, HEIGHT)
    # Coordinates are floats; no amount that is written comes from them.
    values = [float(step.price) for step in steps]
    room = max((max(values) - min(values)) * 0.15, 0.05)
    levels = ticks(max(min(values) - room, 0), max(values) + room, 4)
    y = Scale(levels[0], levels[-1], BASE, TOP)
    x = Scale(steps[0].at.timestamp(), now.timestamp(), LEFT, width - 4)
    parts: list[object] = []
    places = tick_places(levels, 2)
    for level in levels:
        parts.append(path(f"M{LEFT} {y(level):.1f}H{width}", class_="grid"))
        caption = credits_text(Decimal(str(round(level, 6))), places)
        parts.append(text(LEFT - 6, y(level) + 4, caption, anchor="end"))
    ends = [step.at for step in steps[1:]] + [now]
    line = [
        (x(at.timestamp()), y(value))
        for step, end, value in zip(steps, ends, values, strict=True)
        for at in (step.at, end)
    ]
    parts += [
        path(move(line), class_="la"),
        *time_axis(steps[0].at, now, x, left=LEFT, base=BASE, width=width, count=5),
    ]
    parts += _labels(steps, values, line, x, y)
    return drawing(parts, label, width, HEIGHT)


def _labels(
    steps: Sequence[PriceStep],
    values: Sequence[float],
    line: Sequence[Point],
    x: Scale,
    y: Scale,
) -> list[Markup]:
    """Now at the end of the line; the extremes where they happened, if there is room."""
    last = len(steps) - 1
    now = f"{credits_text(steps[last].price, 4)} now"
    end_x, end_y = x.end, y(values[last])
    offs = (-10, -18, -26, -34, 20, 28, 36, 44)
    places: list[Place] = [
        (end_x - 2, end_y + off, "end") for off in offs if TOP - 12 < end_y + off < BASE
    ]
    labels = [
        tag("circle", cx=end_x, cy=end_y, r=4, class_="dot"),
        label(now, places, [line], css="ac halo"),
    ]
    free = end_x - text_width(now) - 12
    for place, name, shift in (
        (values.index(max(values)), "highest", -8),
        (values.index(min(values)), "lowest", 18),
    ):
        caption = f"{credits_text(steps[place].price, 4)}, {name}"
        at = x(steps[place].at.timestamp())
        if max(values) > min(values) and at + text_width(caption) < free:
            left, above = max(at, LEFT + 4), y(values[place]) + shift
            labels.append(text(left, above, caption, class_="b halo"))
    return labels
