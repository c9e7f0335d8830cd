"""The formats of numbers, money and times. Pure: the caller passes every instant and every unit.

Minus is U+2212, a missing value is an en dash. Thousands have a comma and decimals a point, or the
marks of the page's language.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from math import isinf, isnan
from typing import TypeAlias

from django.utils.translation import gettext, ngettext

from tenants.language import marked

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"
INFINITY = "\N{INFINITY}"
Number: TypeAlias = int | float | Decimal

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S


def thousands(value: Number | None, places: int | None = None, signed: bool = False) -> str:
    """Format a number: 4211 -> "4,211". `places` fixes the decimals; `signed` adds a plus."""
    if value is None:
        return NONE
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        return NONE if isnan(value) else (MINUS if value < 0 else "") + INFINITY
    shown = marked(f"{abs(value):,}" if places is None else f"{abs(value):,.{places}f}")
    is_zero = not any(digit in "123456789" for digit in shown)
    if value < 0 and not is_zero:
        return MINUS + shown
    return "+" + shown if signed and not is_zero else shown


def uncapitalized(text: str) -> str:
    """Return a heading as a part of a sentence; nouns of German keep their capitals."""
    return text[:1].lower() + text[1:]


def credits_text(value: Decimal | int | str | None, places: int = 2, signed: bool = False) -> str:
    """Format credits with fixed decimals, rounded half to even.

    Raises:
        TypeError: the value is a float; money never is one.
    """
    if value is None:
        return NONE
    if isinstance(value, float):
        raise TypeError("credits are Decimal, int or str, never float")
    exact = Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return thousands(exact, places, signed)


def apportion(amounts: Sequence[Decimal], places: int = 2) -> list[Decimal]:
    """Round amounts by largest remainder, so that the rounded amounts sum to their rounded sum.

    Each amount changes by less than one unit of the last place.
    """
    unit = Decimal(1).scaleb(-places)
    lows = [amount.quantize(unit, rounding=ROUND_FLOOR) for amount in amounts]
    total = sum(amounts, Decimal(0)).quantize(unit, rounding=ROUND_HALF_EVEN)
    left = int((total - sum(lows, Decimal(0))) / unit)
    by_rest = sorted(range(len(lows)), key=lambda place: lows[place] - amounts[place])
    for place in by_rest[:left]:
        lows[place] += unit
    return lows


def telling_places(values: Sequence[float], least: int = 2, most: int = 4) -> int:
    """Return the fewest decimals, `least` to `most`, with which different values look different."""
    distinct = set(values)
    for places in range(least, most):
        if len({f"{value:.{places}f}" for value in distinct}) == len(distinct):
            return places
    return most


def gpu_hours(gpu_seconds: Number | None, places: int = 1) -> str:
    """Format GPU-seconds as GPU-hours without the unit: 3600 -> "1.0"."""
    if gpu_seconds is None:
        return NONE
    hours = gpu_seconds / HOUR_S
    return thousands(hours, places)


def ratio(value: Number | None, places: int = 2) -> str:
    """Format a rho: 1.04; infinity as its sign, undefined as a dash."""
    return thousands(value, places)


def percent(fraction: Number | None, places: int = 0) -> str:
    """Format a fraction: 0.68 -> "68 %"."""
    return NONE if fraction is None else f"{thousands(fraction * 100, places)} %"


def duration(seconds: Number | None) -> str:
    """Format seconds in their two largest units: "22 s", "8 min 57 s", "3 h 51 min", "2 d 4 h"."""
    if seconds is None:
        return NONE
    total = abs(int(seconds))
    sign = MINUS if seconds < 0 and total else ""
    days, rest = divmod(total, DAY_S)
    hours, rest = divmod(rest, HOUR_S)
    minutes, secs = divmod(rest, MINUTE_S)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (secs, "s")]
    first = next((index for index, (count, _) in enumerate(units) if count), len(units) - 1)
    shown = [f"{count} {unit}" for count, unit in units[first : first + 2] if count]
    return sign + (" ".join(shown) or "0 s")


def elapsed(seconds: Number | None) -> str:
    """Format seconds as Slurm does, for columns: "0:20:22", "2-04:00:00" with days."""
    if seconds is None:
        return NONE
    days, rest = divmod(int(seconds), DAY_S)
    hours, rest = divmod(rest, HOUR_S)
    minutes, secs = divmod(rest, MINUTE_S)
    head = f"{days}-{hours:02d}" if days else f"{hours}"
    return f"{head}:{minutes:02d}:{secs:02d}"


def coarse(seconds: Number) -> str:
    """Format seconds in one unit, rounded down: "8 min" for 537 s."""
    total = abs(int(seconds))
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if total >= size:
            return f"{total // size} {unit}"
    return f"{total} s"


def relative(seconds_ago: Number | None) -> str:
    """Format seconds as "3 s ago" if positive, "in 8 min" if negative, "now" near 0."""
    if seconds_ago is None:
        return NONE
    if -1 < seconds_ago < 1:
        return gettext("now")
    shown = gettext("%(time)s ago") if seconds_ago > 0 else gettext("in %(time)s")
    return shown % {"time": coarse(seconds_ago)}


def iso(at: datetime) -> str:
    """Format an aware instant as a <time> element has it: "2026-11-20T14:06:00Z"."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def utc(at: datetime | None) -> str:
    """Format an aware instant as "2026-11-20 14:06:00 UTC"."""
    return NONE if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def clock(at: datetime | None) -> str:
    """Format an aware instant as "14:06" UTC."""
    return NONE if at is None else f"{at.astimezone(UTC):%H:%M}"


def plural(count: int, word: str, many: str | None = None) -> str:
    """Return the count and its noun: "1 job", "12 jobs"; `many` is an irregular plural."""
    return f"{thousands(count)} {ngettext(word, many or f'{word}s', count)}"


def gpus_of_type(count: int, gpu_type: str) -> str:
    """Return "4 V100 GPUs" for (4, "V100"); the type `gpu` is not repeated."""
    return plural(count, "GPU" if gpu_type.lower() == "gpu" else f"{gpu_type} GPU")
