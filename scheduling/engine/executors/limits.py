"""The dead man's limit of a lease: when its process ends by itself, by this machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scheduling.engine.clock import wall_now, wall_time
from scheduling.models import Pool

# The machine's clock and the database's differ by less, or they are two machines.
SAME_CLOCK = timedelta(seconds=1)


def clock_skew() -> timedelta:
    """How far the database's clock is ahead of this machine's: 0 where they are one."""
    skew = wall_now() - datetime.now(UTC)
    return skew if abs(skew) > SAME_CLOCK else timedelta(0)


def dead_mans_limit(pool: Pool, expires_at: datetime, skew: timedelta) -> int:
    """Return seconds since 1970; a lease that expires at `expires_at` of pool time has the pool's
    outage grace besides. `skew`: of the clocks, asked for once for many leases."""
    limit = wall_time(pool.clock, expires_at + timedelta(seconds=pool.outage_grace_s))
    return round((limit - skew).timestamp())
