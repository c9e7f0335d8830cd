"""What charts over time have in common: the drawing they are in, and their axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from portal.charts.scale import Scale, text_width, tick_text, time_ticks
from portal.charts.svg import Markup, path, tag, text


def drawing(parts: Sequence[object], label: str, width: float, height: float) -> Markup:
    """One picture with its words for those who do not see it."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        class_="ch",
        role="img",
        aria_label=label,
    )


def time_axis(
    start: datetime, end: datetime, x: Scale, *, left: float, base: float, width: float, count: int
) -> list[Markup]:
    """A line at `base` with about `count` instants, as far as there is room; `end` is now."""
    marks = time_ticks(start, end, count)
    parts = [path(f"M{left:g} {base}H{width}", class_="axis")]
    for at in marks:
        caption, place = tick_text(at, marks), x(at.timestamp())
        if left - 8 <= place - text_width(caption) / 2 and place < width - 56:
            parts.append(text(place, base + 18, caption, anchor="middle"))
    parts.append(text(width, base + 18, "now", class_="b", anchor="end"))
    return parts
