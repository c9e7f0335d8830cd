"""From values to pixels: a linear scale, round ticks, clock ticks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

from portal.charts.zones import month_name

_STEPS_S = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
LETTER = 6.6  # Pixels per letter of 13 px text, rounded up.


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map [low, high] -> [start, end]; an empty domain maps to the start."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return self.start
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_step(span: float, wanted: int, whole: bool = False) -> float:
    """Return 1, 2, 2.5 or 5 times a power of ten, so that at most `wanted` steps fill the span."""
    if span <= 0:
        return 1.0
    power: float = 10.0 ** floor(log10(span / max(wanted, 1)))
    step = next(
        (factor * power for factor in (1, 2, 2.5, 5, 10) if span / (factor * power) <= wanted),
        10 * power,
    )
    return max(ceil(step), 1.0) if whole else step


def ticks(low: float, high: float, wanted: int = 4, whole: bool = False) -> list[float]:
    """Return at least two round values that cover [low, high]."""
    step = round_step(high - low, wanted, whole)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def time_ticks(start: datetime, end: datetime, wanted: int = 5) -> list[datetime]:
    """Return about `wanted` round UTC instants inside [start, end], rarely more."""
    span = (end - start).total_seconds()
    if span <= 0:
        return []
    step = next((s for s in _STEPS_S if span / s <= wanted), _STEPS_S[-1])
    midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    skipped = ceil((start - midnight).total_seconds() / step)
    places: list[datetime] = []
    at = midnight + timedelta(seconds=step * skipped)
    while at <= end:
        places.append(at)
        at += timedelta(seconds=step)
    return places


def tick_text(at: datetime, all_ticks: Sequence[datetime]) -> str:
    """Return "14:00", or the day if all ticks are whole days."""
    whole_days = all(tick.hour == 0 and tick.minute == 0 for tick in all_ticks)
    return f"{at:%d} {month_name(at)}" if whole_days and len(all_ticks) > 1 else f"{at:%H:%M}"


def text_width(text: str) -> float:
    """Estimate the width of 13 px text in pixels; labels that do not fit are moved."""
    return len(text) * LETTER
