"""Test the pseudonyms of a day against HMAC-SHA256 of RFC 2104, cut to 8 bytes."""

from __future__ import annotations

import hashlib

import pytest

from evenshare_core.disclosure.pseudonyms import (
    day_of,
    job_name,
    lease_name,
    own_salt,
    profile_name,
    tenant_key,
    tenant_name,
)
from evenshare_core.units import HOUR_US

DAY_KEY = bytes(range(32))


def by_hand(key: bytes, message: bytes) -> bytes:
    """Compute the HMAC by RFC 2104, section 2, with a block of 64 bytes."""
    padded = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(one ^ 0x36 for one in padded) + message).digest()
    return hashlib.sha256(bytes(one ^ 0x5C for one in padded) + inner).digest()


class TestPseudonyms:
    def test_match_hmac_computed_by_hand(self) -> None:
        key = by_hand(DAY_KEY, b"tenant:7")
        assert tenant_key(DAY_KEY, 7) == key
        assert tenant_name(key) == by_hand(key, b"tenant").hex()[:16]
        assert job_name(key, "00ff") == by_hand(key, b"job:00ff").hex()[:16]
        assert lease_name(key, 12) == by_hand(key, b"lease:12").hex()[:16]
        assert profile_name(key, "résumé") == by_hand(key, "profile:résumé".encode()).hex()[:16]
        assert own_salt(key, "philly", 3) == by_hand(key, b"own:philly:3")

    def test_differ_between_days_and_tenants(self) -> None:
        names = {
            lease_name(tenant_key(day, tenant), 5)
            for day in (DAY_KEY, DAY_KEY[::-1])
            for tenant in (1, 2)
        }
        assert len(names) == 4

    @pytest.mark.parametrize(
        ("at_us", "day"),
        [(0, "1970-01-01"), (24 * HOUR_US - 1, "1970-01-01"), (24 * HOUR_US, "1970-01-02")],
    )
    def test_change_at_midnight_utc(self, at_us: int, day: str) -> None:
        assert day_of(at_us) == day
