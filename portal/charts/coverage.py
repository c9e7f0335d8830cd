"""How often estimates held over time: the share of starts before p90 and before p50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.charts.figures import percent
from portal.charts.frame import drawing, time_axis
from portal.charts.labels import Place, Point
from portal.charts.labels import label as label_at
from portal.charts.scale import Scale
from portal.charts.svg import Markup, move, path, rect, tag, text

WIDTH, HEIGHT, TOP, BASE, LEFT = 620, 250, 40, 214, 52
P90, P50 = 0.9, 0.5


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """A part of the window, at its middle: shares from 0 to 1, None where nothing was counted."""

    at: datetime
    by_p90: float | None
    by_p50: float | None


def coverage_chart(
    points: Sequence[CoveragePoint], since: datetime, until: datetime, *, label: str
) -> Markup:
    """Two lines with their dots, and dashed where each would be if estimates were exact."""
    x = Scale(since.timestamp(), until.timestamp(), LEFT, WIDTH - 8)
    y = Scale(0, 1, BASE, TOP)
    curves = [
        [(x(p.at.timestamp()), y(share)) for p in points if (share := p.by_p90) is not None],
        [(x(p.at.timestamp()), y(share)) for p in points if (share := p.by_p50) is not None],
    ]
    if not curves[0]:
        frame = rect(0.5, TOP, WIDTH - 1, BASE - TOP, class_="blank")
        empty = text(WIDTH / 2, (TOP + BASE) / 2, "nothing counted yet", anchor="middle")
        return drawing([frame, empty], label, WIDTH, HEIGHT)
    parts: list[object] = []
    for level in (0, 0.25, 0.5, 0.75, 1):
        parts.append(path(f"M{LEFT} {y(level):.1f}H{WIDTH}", class_="grid"))
        parts.append(text(LEFT - 6, y(level) + 4, percent(level), anchor="end"))
    parts += [path(f"M{LEFT} {y(level):.1f}H{WIDTH}", class_="q") for level in (P90, P50)]
    for curve, css in zip(curves, ("la", "ln"), strict=True):
        parts.append(path(move(curve), class_=css))
        parts += [tag("circle", cx=cx, cy=cy, r=3, class_="dot") for cx, cy in curve]
    parts += [
        _label("before p90", curves[0], curves, "ac halo"),
        _label("before p50", curves[1], curves, "b halo"),
        *time_axis(since, until, x, left=LEFT, base=BASE, width=WIDTH, count=6),
    ]
    return drawing(parts, label, WIDTH, HEIGHT)


def _label(
    caption: str, curve: Sequence[Point], curves: Sequence[Sequence[Point]], css: str
) -> Markup:
    """Beside the last dot, above or below, where no line runs."""
    last_x, last_y = curve[-1]
    places: list[Place] = [
        (last_x, level, "end")
        for step in range(10, 90, 6)
        for level in (last_y - step, last_y + step + 8)
        if TOP - 28 < level < BASE - 2
    ]
    return label_at(caption, places or [(last_x, last_y, "end")], curves, css=css)
