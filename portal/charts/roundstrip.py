"""The last rounds as bars of unused GPUs: idle (dashed) above blocked (hatched), or no bar.

Bars of all GPUs would hide the few unused ones of a busy pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from portal.charts.figures import thousands
from portal.charts.scale import Scale, ticks
from portal.charts.svg import Markup, path, rect, tag, text

LEFT, TOP, BASE, WIDTH, HEIGHT = 28, 14, 96, 1344, 116


@dataclass(frozen=True, slots=True)
class RoundBar:
    """A round: idle and blocked (drained or down) GPUs, its link and its tooltip."""

    number: int
    idle: int
    blocked: int = 0
    href: str = ""
    text: str = ""


def round_strip(bars: Sequence[RoundBar], *, first: str = "") -> Markup:
    """Draw bars in time order, the last one accented. `first` labels the first."""
    highest = max((bar.idle + bar.blocked for bar in bars), default=0)
    levels = ticks(0, max(highest, 4), 3, whole=True)
    y = Scale(0, levels[-1], BASE, TOP)
    parts: list[object] = []
    for level in levels:
        parts.append(path(f"M{LEFT} {y(level):.1f}H{WIDTH}", class_="grid"))
        parts.append(text(LEFT - 8, y(level) + 4, thousands(round(level)), anchor="end"))
    # Whole pixels keep the page small.
    pitch = (WIDTH - LEFT - 4) // max(len(bars), 30)
    hit = rect(-pitch / 8, TOP, pitch, BASE - TOP, id="hit")
    parts.append(tag("defs", hit))
    for place, bar in enumerate(bars):
        is_last = place == len(bars) - 1
        if bar.idle or bar.blocked or is_last:
            parts.append(_bar(bar, LEFT + 4 + place * pitch, pitch, y, is_last))
    parts.append(path(f"M{LEFT} {BASE}H{WIDTH}", class_="axis"))
    if bars:
        end = min(LEFT + 4 + len(bars) * pitch, WIDTH)
        start_text = first or _("round {number}").format(number=thousands(bars[0].number))
        end_text = _("{number}, now: {idle} idle").format(
            number=thousands(bars[-1].number), idle=thousands(bars[-1].idle)
        )
        parts.append(text(LEFT + 4, HEIGHT - 4, start_text))
        far = max(end, LEFT + 180 + 7 * len(end_text))
        parts.append(text(far, HEIGHT - 4, end_text, class_="ac", anchor="end"))
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="ch strip-rounds",
        role="group",
        aria_label=_("Unused GPUs by round"),
    )


def _bar(bar: RoundBar, x: float, pitch: float, y: Scale, now: bool) -> Markup:
    wide, base = round(pitch * 0.75), y(0)
    middle, top = round(y(bar.blocked), 1), round(y(bar.blocked + bar.idle), 1)
    parts: list[object] = [tag("title", bar.text or _bar_text(bar))]
    parts.append(tag("use", href="#hit", x=x))
    if bar.blocked:
        parts.append(rect(x, middle, wide, base - middle, class_="blk", fill="url(#p-blk)"))
    if bar.idle:
        parts.append(rect(x, top, wide, middle - top, class_="idle now" if now else "idle"))
    elif now:
        parts.append(rect(x, middle - 2, wide, 2, class_="idle now"))
    if not bar.href:
        return tag("g", *parts)
    return tag("a", *parts, href=bar.href)


def _bar_text(bar: RoundBar) -> str:
    return _("round {number}: {unused}").format(
        number=thousands(bar.number), unused=unused_text(bar.idle, bar.blocked)
    )


def unused_text(idle: int, blocked: int) -> str:
    """Return "4 idle, 8 unavailable"; without the second part if it is 0."""
    text = _("{idle} idle, {blocked} unavailable") if blocked else _("{idle} idle")
    return text.format(idle=thousands(idle), blocked=thousands(blocked))
