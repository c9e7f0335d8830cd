"""The state of the books for metrics. Two indexed queries."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from tenants.sql import fetch_rows

_METERS = "SELECT pool_id, event_number, settled_until FROM billing_metercursor ORDER BY pool_id"
# The query for one pool. The hour is passed as a constant: with a join, PostgreSQL would expect a
# third of all lines and read them all.
_USAGE = """
SELECT %s::bigint, coalesce(sum(amount), 0),
       coalesce(sum(amount) FILTER (WHERE hour >= %s::timestamptz), 0)
FROM billing_usageline
WHERE pool_id = %s AND hour >= %s::timestamptz - interval '24 hours'
"""


@dataclass(frozen=True, slots=True)
class BookVitals:
    """A pool's meter: the last metered event, and the credits charged. Times are pool time.

    `charged`: usage of the 24 hours before `settled_until` and of everything since. `unsettled`:
    the part of it that no transfer has settled yet.
    """

    pool: int
    event_number: int
    settled_until: datetime | None
    charged: Decimal
    unsettled: Decimal


def book_vitals() -> list[BookVitals]:
    """Return the state of all pools' meters."""
    meters = fetch_rows(_METERS)
    if not meters:
        return []
    values: list[int | str | datetime] = []
    for pool, _, settled_until in meters:
        since = settled_until or "-infinity"
        values += [pool, since, pool, since]
    rows = fetch_rows(" UNION ALL ".join([_USAGE] * len(meters)), values)
    usage = {pool: (charged, unsettled) for pool, charged, unsettled in rows}
    return [BookVitals(pool, event, until, *usage[pool]) for pool, event, until in meters]
