"""Reads lease events by cursor; the sweep closes terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from billing.metering.cursor import lock_cursor
from billing.metering.lines import write_terms
from billing.models import MeterCursor
from billing.selectors.events import hour_of, read_events
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.revenue.terms import Sweep
from scheduling.models import PoolFence
from tenants.faults import fault_point
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Metered:
    """The result of a call.

    `busy`: another worker has locked the pool, so nothing was done.
    """

    events: int = 0
    lines: int = 0
    busy: bool = False


def meter_pool(pool_id: int, *, limit: int = 5000) -> Metered:
    """Read up to `limit` events after the cursor and write the terms that they close.

    All in one transaction.

    Raises:
        EventGapError: an event number is missing.
    """
    with engine_scope(pool_id):
        cursor = lock_cursor(pool_id)
        if cursor is None:
            return Metered(busy=True)
        # Read before the events, so that these include all events up to the last check.
        fence = PoolFence.objects.filter(pool_id=pool_id).first()
        events = read_events(pool_id, after=cursor.event_number, limit=limit)
        sweep = Sweep.from_state(cursor.state.get("sweep", {}))
        closed = [term for event in events for term in sweep.feed(event)]
        last = events[-1].number if events else cursor.event_number
        rests: list[list[int]] = cursor.state.get("rests", [])
        since = _rule_since(cursor, rests)
        rested = _rest(sweep, fence, last)
        if rested is not None:
            rests.append([last, to_us(rested)])
            closed += sweep.rest(to_us(rested))
        if not events and rested is None:
            return Metered()
        for number, what in sweep.anomalies:
            log.error("meter.anomaly", pool=pool_id, number=number, what=what)
        if cursor.settled_until is None and events:
            # There is nothing to settle before the pool's first event.
            cursor.settled_until = hour_of(from_us(events[0].at_us))
        lines = write_terms(cursor, events, closed)
        cursor.event_number = last
        cursor.state = {"sweep": sweep.to_state(), "rests": rests, **since}
        cursor.save(update_fields=["event_number", "settled_until", "state", "updated_at"])
        fault_point("meter.before_commit")
    return Metered(events=len(events), lines=lines)


def _rule_since(cursor: MeterCursor, rests: Sequence[object]) -> dict[str, list[int]]:
    """Return the last event and the number of rests before terms were split by the present rule.

    The result is empty if that rule always applied. A sweep of version 1 used the former rule, and
    continues with the present one.
    """
    if cursor.state.get("sweep", {}).get("version") == 1:
        return {"rule_since": [cursor.event_number, len(rests)]}
    return {key: cursor.state[key] for key in ("rule_since",) if key in cursor.state}


def _rest(sweep: Sweep, fence: PoolFence | None, last: int) -> datetime | None:
    """Return the time of the pool's last check if the sweep waits for a later event, else None.

    A pool without changes writes no rounds, so that event would never come.
    """
    if fence is None or fence.last_checked_at is None or last < fence.next_event - 1:
        return None
    waits_until_us = sweep.pending_us
    if waits_until_us is None or waits_until_us > to_us(fence.last_checked_at):
        return None
    return fence.last_checked_at
