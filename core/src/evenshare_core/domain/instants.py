"""Instants of pool time as integers, at the edge of the core."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Return microseconds since 1970 of an aware datetime, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Return the aware UTC datetime of microseconds since 1970."""
    return _EPOCH + instant_us * _MICROSECOND
