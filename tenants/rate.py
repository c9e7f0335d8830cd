"""Rate limits: buckets that fill with time, shared by all processes.

A bucket is a row, and taking from it is one statement. Postgres is available whenever a limited
action is possible at all, and flushing a broker empties no bucket.
"""

import math
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection
from django.db.models.functions import Now

from tenants.models import RateBucket
from tenants.scopes import site_scope

# A bucket that was not used for this long is full, whatever its rate.
FULL_AFTER = timedelta(days=1)

_TAKE = """
INSERT INTO tenants_ratebucket AS b (key, "left", at)
VALUES (%(key)s, %(full)s::float8 - %(cost)s::float8, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
    "left" = least(%(full)s::float8, b."left" + %(rate)s::float8
        * greatest(0, extract(epoch FROM clock_timestamp() - b.at)::float8)) - %(cost)s::float8,
    at = clock_timestamp()
WHERE least(%(full)s::float8, b."left" + %(rate)s::float8
    * greatest(0, extract(epoch FROM clock_timestamp() - b.at)::float8))
    >= least(%(cost)s::float8, %(full)s::float8)
RETURNING 1
"""
_LEFT = """
SELECT "left" + %(rate)s::float8
    * greatest(0, extract(epoch FROM clock_timestamp() - at)::float8)
FROM tenants_ratebucket WHERE key = %(key)s
"""


class RateError(Exception):
    """The bucket is empty; `retry_after_s` is the time until it has enough again."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: the refill per second, and the size of the bucket (`full`)."""

    per_s: float
    full: float


def take(key: str, rate: Rate, cost: float = 1.0) -> None:
    """Take from a bucket, in a new transaction if none is open.

    A cost above `full` needs a full bucket, and leaves a debt.

    Raises:
        RateError: there is not enough in it; nothing was taken.
    """
    values: dict[str, str | float] = {
        "key": key,
        "full": rate.full,
        "cost": cost,
        "rate": rate.per_s,
    }
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(_TAKE, values)
        if cursor.fetchone() is not None:
            return
        cursor.execute(_LEFT, values)
        row = cursor.fetchone()
    left = float(row[0]) if row is not None else 0.0
    raise RateError(max(1, math.ceil((min(cost, rate.full) - left) / rate.per_s)))


def drop_full_buckets() -> int:
    """Delete buckets that are full by now; return how many. For the hourly housekeeping."""
    count, _ = RateBucket.objects.filter(at__lt=Now() - FULL_AFTER).delete()
    return count
