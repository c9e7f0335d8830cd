"""The dead man's limit of a lease: when its process ends by itself, by this machine's clock."""

from datetime import UTC, datetime, timedelta

from scheduling.engine.clock import wall_now, wall_time
from scheduling.models import Pool

# Two clocks that differ by less than this count as the same clock: the database runs on this
# machine.
SAME_CLOCK = timedelta(seconds=1)


def clock_skew() -> timedelta:
    """Return how far the database's clock is ahead of this machine's; 0 if they share a clock."""
    skew = wall_now() - datetime.now(UTC)
    return skew if abs(skew) > SAME_CLOCK else timedelta(0)


def dead_mans_limit(pool: Pool, expires_at: datetime, skew: timedelta) -> int:
    """Return the limit in seconds since 1970 of a lease that expires at `expires_at` (pool time).

    It includes the pool's outage grace. `skew`: from `clock_skew`, read once for many leases.
    """
    limit = wall_time(pool.clock, expires_at + timedelta(seconds=pool.outage_grace_s))
    return round((limit - skew).timestamp())
