"""Daily pseudonyms of tenants, jobs, leases and job types.

A pool has a random *day key* for each UTC day of pool time: 32 bytes that are given to no user. A
tenant gets its *tenant key* of the day, with which it finds its own rows. Other users cannot
compute this key, and the key of one day does not reveal the keys of other days. Names are the first
8 bytes of HMAC-SHA256 (RFC 2104) as 16 hex digits.
"""

import hmac

from evenshare_core.domain.instants import from_us

NAME_BYTES = 8


def day_of(at_us: int) -> str:
    """Return the UTC day of a pool time, such as 2026-11-25."""
    return from_us(at_us).date().isoformat()


def tenant_key(day_key: bytes, tenant: int) -> bytes:
    """Return the key of a tenant (by its id) on a day; only this tenant may get it."""
    return _hmac(day_key, f"tenant:{tenant}")


def tenant_name(key: bytes) -> str:
    return _name(key, "tenant")


def job_name(key: bytes, uid: str) -> str:
    """Return the name of a job of the key's tenant; `uid` is the job's id in hex digits."""
    return _name(key, f"job:{uid}")


def lease_name(key: bytes, lease: int) -> str:
    return _name(key, f"lease:{lease}")


def profile_name(key: bytes, name: str) -> str:
    """Return the name of a job type of the key's tenant; `name` is that of the profile."""
    return _name(key, f"profile:{name}")


def own_salt(key: bytes, pool: str, round_number: int) -> bytes:
    """Return the salt for the digest of a tenant's own rows, which prevents guessing the rows."""
    return _hmac(key, f"own:{pool}:{round_number}")


def _name(key: bytes, text: str) -> str:
    return _hmac(key, text)[:NAME_BYTES].hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
