"""Test that a digest is due at an hour of its person's time zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduling.outbox.gather import next_digest


@pytest.mark.parametrize(
    ("now", "zone", "hour", "due"),
    [
        ("2030-06-01T09:00", "UTC", 10, "2030-06-01T10:00"),
        ("2030-06-01T10:00", "UTC", 10, "2030-06-02T10:00"),
        ("2030-06-01T09:00", "Europe/Berlin", 8, "2030-06-02T06:00"),
        ("2030-06-01T09:00", "America/New_York", 0, "2030-06-02T04:00"),
        # Unknown zones count as UTC.
        ("2030-06-01T09:00", "Mars/Olympus", 10, "2030-06-01T10:00"),
        ("2030-06-01T09:00", "../etc", 10, "2030-06-01T10:00"),
        # Clocks go forward at 2:00 and back at 3:00.
        ("2030-03-30T12:00", "Europe/Berlin", 2, "2030-03-31T01:00"),
        ("2030-10-26T12:00", "Europe/Berlin", 2, "2030-10-27T00:00"),
    ],
)
def test_digest_comes_at_an_hour_of_the_zone(now: str, zone: str, hour: int, due: str) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert next_digest(at, zone, hour) == datetime.fromisoformat(due).replace(tzinfo=UTC)
