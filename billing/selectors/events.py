"""Lease events for the sweep."""

from datetime import datetime

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.revenue.records import Event
from evenshare_core.units import HOUR_US
from scheduling.models import LeaseEvent


class EventGapError(Exception):
    """An event number is missing, which means a bug in the pool's writer; nothing was metered."""


def read_events(pool_id: int, *, after: int, limit: int) -> list[Event]:
    """Return the next events of a pool in order of their numbers. A single query.

    Raises:
        EventGapError: a number is missing.
    """
    rows = (
        LeaseEvent.objects.filter(pool_id=pool_id, number__gt=after)
        .order_by("number")
        .values_list("number", "kind", "at", "lease_id", "job_id", "tenant_id", "term", "data")
    )
    events = [
        Event(number, kind, to_us(at), lease or 0, job or 0, tenant or 0, term or 0, data)
        for number, kind, at, lease, job, tenant, term, data in rows[:limit]
    ]
    for expected, event in enumerate(events, start=after + 1):
        if event.number != expected:
            raise EventGapError(f"pool {pool_id}: event {expected} is missing")
    return events


def hour_of(instant: datetime) -> datetime:
    return from_us(to_us(instant) // HOUR_US * HOUR_US)
