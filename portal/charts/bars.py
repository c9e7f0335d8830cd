"""Small bars for leases, countdowns, progress, use against quota, and hashes."""

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from portal.charts.figures import duration, thousands
from portal.charts.svg import Markup, join, path, rect, tag
from portal.charts.tenants import TenantBadge

LEASE_TICKS = 15
LEASE_WIDTH = 122
HASH_DIGITS = 64


def lease_bar(left_s: float, total_s: float, protected_s: float = 0, scale: float = 1) -> Markup:
    """Draw a lease as 15 ticks: solid is elapsed, hatched is protected, the other ticks are left.

    All seconds are pool time. `scale` is pool seconds per wall second, for the countdown in the
    browser. `protected_s` counts from the start of the lease.
    """
    total = max(total_s, 1)
    gone = min(max(total - left_s, 0), total)
    inner, unit = LEASE_WIDTH - 2, (LEASE_WIDTH - 2) / total
    shield = max(min(protected_s, total) - gone, 0)
    ticks = "".join(
        f"M{1 + inner * n / LEASE_TICKS:.1f} {3 if n % 5 == 0 else 9}V13"
        for n in range(1, LEASE_TICKS)
    )
    drawing = tag(
        "svg",
        rect(0.5, 0.5, LEASE_WIDTH - 1, 13, class_="frame"),
        rect(1 + gone * unit, 1, shield * unit, 12, class_="shield", fill="url(#p-shield)"),
        rect(1, 1, gone * unit, 12, class_="gone"),
        path(ticks, class_="ticks"),
        viewBox=f"0 0 {LEASE_WIDTH} 14",
        width=LEASE_WIDTH,
        height=14,
        aria_hidden="true",
    )
    remaining = tag("span", lease_text(left_s), class_="left")
    return tag(
        "span",
        drawing,
        remaining,
        class_="lease",
        data_left=round(left_s),
        data_total=round(total),
        data_shield=round(min(protected_s, total)),
        data_scale=scale,
    )


def lease_text(left_s: float) -> str:
    """Return "9 min left", or seconds below a minute. evenshare.js has the same rule."""
    if left_s <= 0:
        return _("ends now")
    if left_s < 60:
        time = f"{int(left_s)} s"
    else:
        time = f"{int(left_s // 60)} min" if left_s < 36000 else duration(left_s)
    return _("{time} left").format(time=time)


def countdown(ticks: int, of: int = 12) -> Markup:
    """Draw the time until the next round in `of` ticks; elapsed ticks are solid."""
    marks = path("".join(f"M{10 * n + 0.5} 1V9" for n in range(1, of)), class_="ticks")
    return tag(
        "svg",
        rect(0.5, 0.5, of * 10 - 1, 9, class_="frame"),
        rect(0, 0, min(max(ticks, 0), of) * 10, 10, class_="gone"),
        marks,
        viewBox=f"0 0 {of * 10} 10",
        width=of * 10,
        height=10,
        class_="tick",
        aria_hidden="true",
    )


def progress(fraction: float | None) -> Markup:
    """Draw a thin bar with its percentage. Unknown progress is a dash, not an empty bar."""
    if fraction is None:
        return tag("span", "\N{EN DASH}", class_="mut")
    share = min(max(fraction, 0), 1)
    bar = tag(
        "svg",
        rect(0, 0, 70, 6, class_="trough"),
        rect(0, 0, 70 * share, 6, class_="gone"),
        viewBox="0 0 70 6",
        width=70,
        height=6,
        aria_hidden="true",
    )
    return tag("span", bar, tag("span", f"{int(share * 100)}%", class_="pc"), class_="prog")


class BarPart(NamedTuple):
    """A part of a bar of states: a kind of state, its text, and how many are in it."""

    kind: str
    text: str
    jobs: int


def states_bar(parts: Sequence[BarPart], width: int = 220) -> Markup:
    """Draw states as parts of a bar as wide as its column; the text next to it has the numbers."""
    total = sum(part.jobs for part in parts)
    drawn, start = [rect(0, 0, width, 10, class_="mut", fill="currentColor", opacity="0.2")], 0.0
    for part in parts:
        length = width * part.jobs / total if total else 0.0
        if part.kind != "waiting":
            drawn.append(rect(start, 0, length, 10, class_=part.kind, fill="currentColor"))
        start += length
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {width} 10",
        height=10,
        class_="states",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def share_bar(
    badge: TenantBadge, got: float, quota: float, demand: float, *, most: float, width: int = 220
) -> Markup:
    """Draw GPUs received as a bar, quota as a vertical line, demand as dots.

    GPUs above the quota are hatched. `most` is the largest value of the table, so that all rows
    have the same scale.
    """
    unit = (width - 4) / max(most, got, quota, demand, 1)
    own = min(got, quota)
    parts = [rect(0.5, 4.5, own * unit, 11, fill=badge.fill, class_=f"edge {badge.css}")]
    if got > own:
        over = (got - own) * unit
        parts.append(rect(0.5 + own * unit, 4.5, over, 11, class_="bor", fill="url(#p-bor)"))
    if demand > got:
        parts.append(path(f"M{got * unit + 3:.1f} 10H{demand * unit:.1f}", class_="asked"))
    parts.append(rect(quota * unit - 0.5, 1, 3, 18, class_="quota"))
    label = _("{tenant}: holds {got} of {quota} quota, demand {demand}").format(
        tenant=badge.name,
        got=thousands(got),
        quota=thousands(quota),
        demand=thousands(demand),
    )
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} 20",
        width=width,
        height=20,
        class_="share",
        role="img",
        aria_label=label,
    )


def hash_bars(sha256: str) -> Markup:
    """Draw a hash as 64 bars, one per hex digit, in groups of eight, for comparison by eye."""
    digits = [int(char, 16) for char in sha256.lower() if char in "0123456789abcdef"][:HASH_DIGITS]
    bars = join(
        rect(
            6 * place,
            38 - 2.2 * digit,
            4,
            2 + 2.2 * digit,
            class_="even" if place // 8 % 2 == 0 else "odd",
        )
        for place, digit in enumerate(digits)
    )
    return tag(
        "svg",
        bars,
        viewBox="0 0 382 40",
        preserveAspectRatio="none",
        class_="bars",
        aria_hidden="true",
    )


def hash_groups(sha256: str) -> str:
    """Return the hex digits in groups of eight."""
    return " ".join(sha256[start : start + 8] for start in range(0, len(sha256), 8))


def wide_bar(fraction: float) -> Markup:
    """Draw a wide progress bar; the page prints the percentage next to it."""
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
