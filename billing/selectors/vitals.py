"""How the books are: what metrics read. One query, on an index."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection

_BOOKS = """
SELECT m.pool_id, m.event_number, m.settled_until,
       coalesce(sum(u.amount), 0),
       coalesce(sum(u.amount) FILTER (WHERE m.settled_until IS NULL OR u.hour >= m.settled_until),
                0)
FROM billing_metercursor m
LEFT JOIN LATERAL (
    SELECT hour, amount FROM billing_usageline
    WHERE pool_id = m.pool_id
      AND hour >= coalesce(m.settled_until, '-infinity') - interval '24 hours'
) u ON true
GROUP BY m.pool_id, m.event_number, m.settled_until
"""


@dataclass(frozen=True, slots=True)
class BookVitals:
    """A pool's meter: the last event that was metered, and credits (pool time).

    `charged`: usage of the 24 hours before `settled_until` and of everything since.
    `unsettled`: the part of it that no transfer has settled yet.
    """

    pool: int
    event_number: int
    settled_until: datetime | None
    charged: Decimal
    unsettled: Decimal


def book_vitals() -> list[BookVitals]:
    """Return how the meters of all pools are."""
    with connection.cursor() as cursor:
        cursor.execute(_BOOKS)
        return [BookVitals(*row) for row in cursor.fetchall()]
