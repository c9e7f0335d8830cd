"""Conversion between datetimes and integer microseconds of pool time, for callers of the core."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Return an aware datetime as microseconds since 1970, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC datetime."""
    return _EPOCH + instant_us * _MICROSECOND
