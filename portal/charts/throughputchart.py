"""Throughput over time as steps, with a line at each instant at which the policy changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.charts.figures import thousands
from portal.charts.frame import drawing, time_axis
from portal.charts.labels import Place, Point, label
from portal.charts.scale import Scale, text_width, tick_places, ticks
from portal.charts.svg import Markup, move, path, rect, tag, text

HEIGHT, TOP, BASE, LEFT = 236, 30, 210, 44


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """From `at` on, until the next point: GPUs of the slowest type that would do as much."""

    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class Switch:
    """From `at` on another policy decided."""

    at: datetime
    policy: str


def throughput_chart(
    points: Sequence[SpeedPoint],
    switches: Sequence[Switch],
    now: datetime,
    *,
    label: str,
    width: int = 820,
) -> Markup:
    """Points in time order, the last one until `now`; switches before the first are left out."""
    if not points:
        frame = rect(0.5, TOP, width - 1, BASE - TOP, class_="blank")
        blank = text(width / 2, (TOP + BASE) / 2, "no round yet", anchor="middle")
        return drawing([frame, blank], label, width, HEIGHT)
    highest = max(point.value for point in points)
    levels = ticks(0, max(highest, 1) * 1.1, 4)
    y = Scale(levels[0], levels[-1], BASE, TOP)
    x = Scale(points[0].at.timestamp(), now.timestamp(), LEFT, width - 4)
    places = tick_places(levels)
    parts: list[object] = []
    for level in levels:
        parts.append(path(f"M{LEFT} {y(level):.1f}H{width}", class_="grid"))
        parts.append(text(LEFT - 6, y(level) + 4, thousands(level, places), anchor="end"))
    ends = [point.at for point in points[1:]] + [now]
    line = [
        (x(at.timestamp()), y(point.value))
        for point, end in zip(points, ends, strict=True)
        for at in (point.at, end)
    ]
    shown = [switch for switch in switches if points[0].at < switch.at <= now]
    parts += _switches(shown, x, width)
    parts.append(path(move(line), class_="la"))
    parts += [
        *time_axis(points[0].at, now, x, left=LEFT, base=BASE, width=width, count=4),
        *_now(points[-1], line, x, y),
    ]
    return drawing(parts, label, width, HEIGHT)


def _switches(switches: Sequence[Switch], x: Scale, width: int) -> list[Markup]:
    """A dashed line each; named above where names do not touch, the last ones first."""
    parts: list[Markup] = []
    free = float(width)
    for switch in reversed(switches):
        at = x(switch.at.timestamp())
        parts.append(path(f"M{at:.1f} {TOP - 10}V{BASE}", class_="q"))
        if at + 4 + text_width(switch.policy) <= free:
            parts.append(text(at + 4, TOP - 14, switch.policy, class_="b"))
            free = at - 8
    return parts


def _now(last: SpeedPoint, line: Sequence[Point], x: Scale, y: Scale) -> list[Markup]:
    end = y(last.value)
    offs = (-10, -18, -26, -34, 20, 28, 36, 44)
    places: list[Place] = [
        (x.end - 2, end + off, "end") for off in offs if TOP < end + off < BASE
    ] or [(x.end - 2, end - 10, "end")]
    return [
        tag("circle", cx=x.end, cy=end, r=4, class_="dot"),
        label(f"{thousands(last.value, 1)} now", places, [line], css="ac halo"),
    ]
