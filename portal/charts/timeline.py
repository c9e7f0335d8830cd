"""A job's history as three tracks: its state, its GPUs (own below, borrowed above), its price.

Solid is running, dotted waits for its turn, lined waits for a lower price. Grey reverse hatch is
blocked (no room, limit, node down), dashed is expected, a red vertical line is a preemption.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.utils.translation import gettext as _

from portal.charts.figures import clock, thousands
from portal.charts.labels import Place, label
from portal.charts.scale import Scale, text_width, tick_text, time_ticks
from portal.charts.svg import Markup, join, move, path, rect, tag, text

WIDTH, LEFT, RIGHT = 1344, 84, 16
STATE_TOP, STATE_HEIGHT = 36, 36
GPUS_TOP, GPUS_HEIGHT = 116, 54
PRICE_TOP, PRICE_HEIGHT = 200, 66
_PATTERNS = {"turn": "p-wait", "price": "p-wait2", "blocked": "p-blk"}


@dataclass(frozen=True, slots=True)
class Segment:
    """A period of one state: kind is run, turn, price, blocked or expected.

    `label` is printed in it or below it; `terms` are the instants at which a new term starts.
    """

    kind: str
    start: datetime
    end: datetime
    label: str = ""
    terms: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """A preemption, or another break with its label."""

    at: datetime
    label: str | None = None


@dataclass(frozen=True, slots=True)
class GpuSpan:
    """GPUs held over a period, split into own and borrowed."""

    start: datetime
    end: datetime
    own: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class PricePoint:
    """The posted price per GPU-hour from this instant on."""

    at: datetime
    price: Decimal


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The data of the three tracks between `start` and `end`; facts end at `now`."""

    start: datetime
    end: datetime
    now: datetime
    segments: tuple[Segment, ...] = ()
    cuts: tuple[Cut, ...] = ()
    gpus: tuple[GpuSpan, ...] = ()
    gpus_of: int = 0
    prices: tuple[PricePoint, ...] = ()
    max_price: Decimal | None = None
    label: str = ""


def timeline(job: JobTimeline) -> Markup:
    """Draw the tracks that have data, or return a sentence if the time range is empty."""
    if job.end <= job.start:
        return tag("p", _("Nothing has happened yet."), class_="mut")
    x = Scale(job.start.timestamp(), job.end.timestamp(), LEFT, WIDTH - RIGHT)
    bottom = GPUS_TOP - 12
    tracks: list[object] = [_states(job, x)]
    if job.gpus:
        tracks.append(_gpus(job, x))
        bottom = GPUS_TOP + GPUS_HEIGHT + 10
    if job.prices:
        tracks.append(_prices(job, x))
        bottom = PRICE_TOP + PRICE_HEIGHT + 16
    tracks.insert(0, _clock(job, x, bottom))
    return tag(
        "svg",
        *tracks,
        viewBox=f"0 0 {WIDTH} {bottom}",
        class_="tl",
        role="img",
        aria_label=job.label or _("Timeline of the job"),
    )


def _clock(job: JobTimeline, x: Scale, bottom: float) -> Markup:
    marks = time_ticks(job.start, job.end, 7)
    now = x(job.now.timestamp())
    parts = [text(0, 14, "UTC", class_="m")] if marks else []
    parts += [
        part
        for at in marks
        for part in (
            path(f"M{x(at.timestamp()):.1f} 24V{bottom}", class_="grid"),
            _tick(x(at.timestamp()), tick_text(at, marks)),
        )
    ]
    if LEFT <= now <= WIDTH - RIGHT:
        parts.append(path(f"M{now:.1f} 24V{bottom}", class_="now"))
    return join(parts)


def _tick(at: float, caption: str) -> Markup:
    """Draw a label over its mark, or to the left of it at the chart's right edge."""
    half = text_width(caption) / 2
    return text(min(at, WIDTH - half), 14, caption, anchor="middle")


def _states(job: JobTimeline, x: Scale) -> Markup:
    middle = STATE_TOP + STATE_HEIGHT / 2
    parts: list[object] = [text(0, middle + 5, _("State"), class_="b")]
    clear = float(LEFT)
    for segment in job.segments:
        start, end = x(segment.start.timestamp()), x(segment.end.timestamp())
        parts.append(_segment(segment, start, end, x))
        wide = text_width(segment.label)
        if segment.kind == "run" and wide + 12 < end - start:
            at = (start + end) / 2
            parts.append(text(at, middle + 5, segment.label, class_="b on", anchor="middle"))
        elif segment.label and min(start, WIDTH - wide) >= clear:
            begin = min(start, WIDTH - wide)  # moved to the left at the right edge
            parts.append(text(begin, STATE_TOP + STATE_HEIGHT + 17, segment.label, class_="m"))
            clear = begin + wide + 8
    parts += _cut_marks(job, x)
    return join(parts)


def _cut_marks(job: JobTimeline, x: Scale) -> list[Markup]:
    """Draw a vertical line per preemption, with its text if that overlaps no other text."""
    parts = []
    taken = float(LEFT)
    for cut in sorted(job.cuts, key=lambda cut: cut.at):
        at = x(cut.at.timestamp())
        line = f"M{at:.1f} {STATE_TOP - 6}V{STATE_TOP + STATE_HEIGHT + 8}"
        parts.append(path(line, class_="cut-line"))
        name = _("preempted") if cut.label is None else cut.label
        caption = f"{name} {clock(cut.at)}".strip()
        wide = text_width(caption) + 8
        if at - wide >= taken:
            parts.append(text(at - 4, STATE_TOP - 8, caption, class_="ba", anchor="end"))
            taken = at
        elif at >= taken and taken == LEFT and at + wide < WIDTH - RIGHT:
            parts.append(text(at + 4, STATE_TOP - 8, caption, class_="ba"))
            taken = at + wide
    return parts


def _segment(segment: Segment, start: float, end: float, x: Scale) -> Markup:
    wide = max(end - start, 1.5)
    if segment.kind == "run":
        seams = "".join(
            f"M{x(term.timestamp()):.1f} {STATE_TOP + 1}v{STATE_HEIGHT - 2}"
            for term in segment.terms
        )
        bar = rect(start, STATE_TOP, wide, STATE_HEIGHT, class_="run")
        return join((bar, path(seams, class_="seam") if seams else ""))
    pattern = _PATTERNS.get(segment.kind)
    return rect(
        start + 0.5,
        STATE_TOP + 0.5,
        wide - 1,
        STATE_HEIGHT - 1,
        class_=f"wait {segment.kind}",
        fill=f"url(#{pattern})" if pattern else None,
    )


def _gpus(job: JobTimeline, x: Scale) -> Markup:
    base = GPUS_TOP + GPUS_HEIGHT
    most = max([span.own + span.borrowed for span in job.gpus] + [job.gpus_of, 1])
    unit = GPUS_HEIGHT / most
    parts: list[object] = [text(0, GPUS_TOP + 20, _("GPUs"), class_="b")]
    if job.gpus_of:
        parts.append(
            text(0, GPUS_TOP + 37, _("of {count}").format(count=thousands(job.gpus_of)), class_="m")
        )
    for span in job.gpus:
        start, end = x(span.start.timestamp()), x(span.end.timestamp())
        levels = ((span.own, 0, "own", None), (span.borrowed, span.own, "bor", "url(#p-bor)"))
        for count, below, css, fill in levels:
            if not count:
                continue
            top, high = base - (below + count) * unit, count * unit
            parts.append(rect(start, top, end - start, high, class_=css, fill=fill))
            caption = _("{count} borrowed") if css == "bor" else _("{count} own")
            caption = caption.format(count=count)
            if high >= 14 and text_width(caption) + 8 < end - start:
                look = "ac halo-bor" if css == "bor" else "m"
                at = (start + end) / 2
                parts.append(text(at, top + high / 2 + 4.5, caption, class_=look, anchor="middle"))
    return join(parts)


def _prices(job: JobTimeline, x: Scale) -> Markup:
    prices = [float(point.price) for point in job.prices]
    bounds = prices + ([float(job.max_price)] if job.max_price is not None else [])
    room = (max(bounds) - min(bounds)) * 0.1 or 0.1
    base = PRICE_TOP + PRICE_HEIGHT
    y = Scale(min(bounds) - room, max(bounds) + room, base, PRICE_TOP)
    parts: list[object] = [
        text(0, PRICE_TOP + 24, _("Price"), class_="b"),
        text(0, PRICE_TOP + 41, _("per GPU-h"), class_="m"),
    ]
    ends = [point.at for point in job.prices[1:]] + [min(job.now, job.end)]
    line = [
        (x(at.timestamp()), y(price))
        for point, end, price in zip(job.prices, ends, prices, strict=True)
        for at in (point.at, max(end, point.at))
    ]
    parts.append(path(move(line), class_="la"))
    last_x, last_y = line[-1]
    parts.append(tag("circle", cx=last_x, cy=last_y, r=4, class_="dot"))
    caption = thousands(job.prices[-1].price, 4)
    beside: list[Place] = [(last_x - 8, last_y + off, "end") for off in (18, -10, 26, -20)]
    beside += [(last_x + 8, last_y + 5, "start")] if last_x < WIDTH - 64 else []
    parts.append(label(caption, beside, [line], css="ac halo"))
    if job.max_price is not None:
        level = y(float(job.max_price))
        most = _("your max {price}").format(price=thousands(job.max_price, 4))
        parts.append(path(f"M{LEFT} {level:.1f}H{WIDTH - RIGHT}", class_="limit"))
        clear = last_x - 8 if last_x > WIDTH - RIGHT - text_width(most) else WIDTH - RIGHT
        parts.append(text(clear, level - 6, most, class_="wa halo", anchor="end"))
    return join(parts)
