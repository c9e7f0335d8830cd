"""Parsers of a trace's cells, which return a value or raise with the reason."""

import re
from datetime import UTC, datetime

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.utilities import UtilityError, read_utility, utility_data
from evenshare_core.units import SECOND_US

# A hundred years in us: longer than any job, and far below the limit of a timestamp.
TOO_LONG = "is more than a hundred years"
SECONDS_MAX = 100 * 366 * 86_400
# The years accepted in a trace. Even the largest, added to today's date, gives a valid date.
YEARS = range(1970, 2200)
NAME_MAX = 120
LISTED_MAX = 16
GPUS_MAX = 100_000

_WHOLE = re.compile(r"[0-9]{1,15}(?:\.0{1,9})?", re.ASCII)
_GPUS = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,30}))?", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,12}))?", re.ASCII)
_PRICE = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)
_TYPE = re.compile(r"[-A-Za-z0-9_]{1,31}", re.ASCII)
_LIST = re.compile(r"[-;|\s]+")


class UnfitError(Exception):
    """A value cannot be used; `name` is its field."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


def whole(text: str, name: str, *, most: int = 2**31 - 1) -> int:
    """Return a whole number from 0 to `most`."""
    if not _WHOLE.fullmatch(text):
        raise UnfitError(name, f"is not a whole number: {shown(text)}")
    value = int(text.partition(".")[0])
    if value > most:
        raise UnfitError(name, f"is more than {most:,}: {shown(text)}")
    return value


def gpus_of(text: str) -> tuple[int, bool]:
    """Return a number of GPUs, rounded up, and whether it was a fraction."""
    match = _GPUS.fullmatch(text)
    if not match:
        raise UnfitError("gpus", f"is not a number of GPUs of at least 0: {shown(text)}")
    is_fraction = bool((match[2] or "").strip("0"))
    gpus = int(match[1]) + is_fraction
    if gpus > GPUS_MAX:
        raise UnfitError("gpus", f"is more than {GPUS_MAX:,}: {shown(text)}")
    return gpus, is_fraction


def seconds(text: str, name: str) -> int:
    """Return seconds as microseconds; finer digits are cut off."""
    match = _SECONDS.fullmatch(text)
    if not match:
        raise UnfitError(name, f"is not a number of seconds of at least 0: {shown(text)}")
    before_point = int(match[1])
    if before_point > SECONDS_MAX:
        raise UnfitError(name, f"{TOO_LONG}: {shown(text)}")
    return before_point * SECOND_US + int((match[2] or "").ljust(6, "0")[:6])


def submission(text: str) -> int:
    """Return a submission in us, from seconds or a date and time (UTC by default)."""
    if _SECONDS.fullmatch(text):
        return seconds(text, "submit")
    try:
        instant = datetime.fromisoformat(text)
        naive = instant.tzinfo is None
        instant = instant.replace(tzinfo=UTC) if naive else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        reason = f"is neither seconds nor an instant: {shown(text)}"
        raise UnfitError("submit", reason) from None
    if instant.year not in YEARS:
        reason = f"is not in the years {YEARS[0]} to {YEARS[-1]}: {shown(text)}"
        raise UnfitError("submit", reason)
    return to_us(instant)


def _weight(text: str, name: str) -> int:
    value = whole(text, name)
    if value < 1:
        raise UnfitError(name, "must be at least 1")
    return value


def _exit_code(text: str, name: str) -> int:
    return whole(text, name, most=255)


def _types(text: str, name: str) -> list[str]:
    types = [part.strip() for part in text.replace("|", " ").replace(";", " ").split()]
    for one in types:
        if not _TYPE.fullmatch(one):
            raise UnfitError(name, f"has an invalid name of a GPU type: {shown(one)}")
    return types


def _price(text: str, name: str) -> str:
    if not _PRICE.fullmatch(text):
        raise UnfitError(name, f"is not a price with at most 6 decimals: {shown(text)}")
    return text


def _model(text: str, name: str) -> str:
    if len(text) > NAME_MAX:
        raise UnfitError(name, f"is longer than {NAME_MAX} characters")
    return text


def _utility(text: str, name: str) -> dict[str, str]:
    try:
        return utility_data(read_utility(0, text))
    except UtilityError as error:
        raise UnfitError(name, f"{error}: {shown(text)}") from None


def _deadlines(text: str, name: str) -> list[int]:
    """Return increasing times in us after the submission; separators: `-`, spaces, `;` and `|`."""
    deadlines_us = [seconds(part, name) for part in _listed(text, name)]
    if deadlines_us != sorted(set(deadlines_us)):
        raise UnfitError(name, f"does not rise: {shown(text)}")
    return deadlines_us


def _values(text: str, name: str) -> list[int]:
    values = [whole(part, name) for part in _listed(text, name)]
    if values != sorted(values, reverse=True) or not values[-1]:
        raise UnfitError(name, f"must fall, and to a value above 0: {shown(text)}")
    return values


def _listed(text: str, name: str) -> list[str]:
    parts = _LIST.split(text)
    if len(parts) > LISTED_MAX:
        raise UnfitError(name, f"lists more than {LISTED_MAX}")
    return parts


OPTIONAL_READERS = {
    "cpus": whole,
    "memory_mb": whole,
    "weight": _weight,
    "gpu_types": _types,
    "max_price": _price,
    "utility": _utility,
    "estimate_s": whole,
    "exit_code": _exit_code,
    "model": _model,
    "deadline_s": _deadlines,
    "values": _values,
    "cancel_s": seconds,
    "cold_s": seconds,
    "checkpoint_s": seconds,
}


def shown(text: str) -> str:
    """Return a value for a message: short, and without control characters."""
    return ascii(text[:40])
