"""Two small charts: use against quota as steps, and rho as a line over its dotted zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.charts.figures import ratio, telling_places, thousands
from portal.charts.frame import drawing, time_axis
from portal.charts.labels import Place, Point
from portal.charts.labels import label as label_at
from portal.charts.scale import Scale, text_width, tick_places, ticks
from portal.charts.svg import Markup, join, move, path, rect, tag, text

WIDTH, HEIGHT, TOP, BASE = 300, 236, 22, 210


@dataclass(frozen=True, slots=True)
class UsePoint:
    """From `at` on, until the next point: GPUs in use, and the quota in force."""

    at: datetime
    use: int
    quota: int


Span = tuple[float, float, UsePoint]  # from x, to x, what holds between


@dataclass(frozen=True, slots=True)
class RhoPoint:
    """rho at an instant; None where it is undefined (no claim yet): the line has a gap."""

    at: datetime
    rho: float | None


def use_chart(
    points: Sequence[UsePoint], now: datetime, *, label: str, width: int = WIDTH, note: str = ""
) -> Markup:
    """Own solid, borrowed hatched above it, quota dashed. `note` names one finding inside.

    `points` are in time order; the last one holds until `now`.
    """
    if not points:
        return _blank(label, width)
    highest = max(max(point.use, point.quota) for point in points)
    room = max(highest, 2) * 1.15
    levels = [level for level in ticks(0, room, 4, whole=True) if level <= room]
    left = 12 + 8 * len(thousands(round(levels[-1])))
    y = Scale(0, room, BASE, TOP)
    x = Scale(points[0].at.timestamp(), now.timestamp(), left, width - 4)
    ends = [point.at for point in points[1:]] + [now]
    spans = [
        (x(point.at.timestamp()), x(end.timestamp()), point)
        for point, end in zip(points, ends, strict=True)
    ]
    own = [(at, y(min(p.use, p.quota))) for start, end, p in spans for at in (start, end)]
    use = [(at, y(p.use)) for start, end, p in spans for at in (start, end)]
    quota = [(at, y(p.quota)) for start, end, p in spans for at in (start, end)]
    parts: list[object] = [_grid(levels, y, left, width)]
    parts.append(path(move(own) + f"V{BASE}H{left}Z", class_="own"))
    parts.extend(
        rect(start, y(p.use), end - start, y(p.quota) - y(p.use), class_="bor", fill="url(#p-bor)")
        for start, end, p in spans
        if p.use > p.quota
    )
    parts += [path(move(use), class_="ln"), path(move(quota), class_="q")]
    parts.extend(time_axis(points[0].at, now, x, left=left, base=BASE, width=width, count=4))
    parts.append(_quota_label(spans, use, y, left, width))
    parts.append(_now_label(points[-1], [use, quota], y, width))
    if note:
        parts.append(text((left + width) / 2, BASE - 12, note, class_="halo-own", anchor="middle"))
    return drawing(parts, label, width, HEIGHT)


def _quota_label(
    spans: Sequence[Span], curve: Sequence[Point], y: Scale, left: float, width: float
) -> Markup:
    """Above or below its line, where the curve of use leaves room."""
    _, _, last = spans[-1]
    caption, level = f"quota {thousands(last.quota)}", y(last.quota)
    steps = range(round(left) + 6, max(round(width - text_width(caption)), round(left) + 7), 12)
    below: list[Place] = [(x, level + 16, "start") for x in steps]
    above: list[Place] = [(x, level - 6, "start") for x in steps]
    return label_at(caption, [*below, *above], [curve], css="b halo-own")


def _now_label(last: UsePoint, curves: Sequence[Sequence[Point]], y: Scale, width: float) -> Markup:
    over = last.use - last.quota
    caption, css = f"{thousands(last.use)} in use", "b halo"
    if over > 0:
        caption, css = f"{thousands(over)} borrowed", "ac halo"
    level = max(y(last.use) - 8, 12)
    ups = range(round(level), 11, -6)
    places: list[Place] = [(width - 6, up, "end") for up in (level, *ups)]
    return label_at(caption, places, curves, css=css)


NEAREST = 0.1


def rho_chart(
    points: Sequence[RhoPoint], *, label: str, width: int = WIDTH, deserved: float = 1.0
) -> Markup:
    """rho over time; the dotted zone below `deserved` is less than was deserved."""
    known = [(point.at, point.rho) for point in points if point.rho is not None]
    if not known:
        return _blank(label, width)
    # No closer than a tenth around the fair share: half a percent is no mountain.
    values = [rho for _, rho in known] + [deserved - NEAREST, deserved + NEAREST]
    room = max(max(values) - min(values), 0.04) * 0.12
    levels = ticks(max(min(values) - room, 0), max(values) + room, 4)
    places = tick_places(levels, 2)
    left = 12 + 7 * (places + 2)
    start, end = points[0].at, points[-1].at
    x = Scale(start.timestamp(), end.timestamp(), left, width - 6)
    y = Scale(levels[0], levels[-1], BASE, TOP)
    line = y(deserved)
    parts: list[object] = [
        rect(left, line, width - left, BASE - line, class_="zone", fill="url(#p-wait)"),
        _grid(levels, y, left, width, places=places),
        path(f"M{left} {line:.1f}H{width}", class_="axis"),
    ]
    parts.extend(
        path(move([(x(at.timestamp()), y(rho)) for at, rho in run]), class_="la")
        for run in _runs(points)
    )
    curves = [[(x(at.timestamp()), y(rho)) for at, rho in run] for run in _runs(points)]
    last_at, last_rho = known[-1]
    last_x, last_y = x(last_at.timestamp()), y(last_rho)
    parts.append(tag("circle", cx=last_x, cy=last_y, r=4, class_="dot"))
    now = ratio(last_rho, telling_places([last_rho, deserved]))
    ups = [last_y - up for up in range(9, 60, 6) if last_y - up > 12]
    downs = [last_y + down for down in range(18, 60, 6) if last_y + down < BASE]
    ends: list[Place] = [(last_x - 2, level, "end") for level in (*ups, *downs)]
    parts.append(label_at(now, ends, curves, css="ac halo"))
    caption = f"{ratio(deserved)}: fair share"
    steps = range(left + 6, max(round(width - text_width(caption)), left + 7), 12)
    under: list[Place] = [(at, min(line + 16, BASE - 4), "start") for at in steps]
    over: list[Place] = [(at, line - 6, "start") for at in steps]
    parts.append(label_at(caption, [*under, *over], curves, css="b halo"))
    parts.extend(time_axis(start, end, x, left=left, base=BASE, width=width, count=4))
    return drawing(parts, label, width, HEIGHT)


def _runs(points: Sequence[RhoPoint]) -> list[list[tuple[datetime, float]]]:
    runs: list[list[tuple[datetime, float]]] = [[]]
    for point in points:
        if point.rho is None:
            runs.append([])
        else:
            runs[-1].append((point.at, point.rho))
    return [run for run in runs if run]


def _grid(levels: Sequence[float], y: Scale, left: float, width: float, places: int = 0) -> Markup:
    return join(
        part
        for level in levels
        for part in (
            path(f"M{left:.1f} {y(level):.1f}H{width}", class_="grid"),
            text(left - 6, y(level) + 4, thousands(level, places), anchor="end"),
        )
    )


def _blank(label: str, width: int) -> Markup:
    empty = text(width / 2, (TOP + BASE) / 2, "no history yet", anchor="middle")
    frame = rect(0.5, TOP, width - 1, BASE - TOP, class_="blank")
    return drawing([frame, empty], label, width, HEIGHT)
