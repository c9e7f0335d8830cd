"""Own and total idle quota behind incomes, interval by interval, from lease events. Read-only.

They are not stored: a page of lines needs a sweep over the events of its time. The sweep starts at
the last round before the first term, with the quotas and the running leases of that round. It
misses a lease whose end was reported more than `LATE` after the fact. The computed weights then
differ from the stored ones, and more events are read.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from billing.models import MeterCursor, PostedPrice, UsageShare
from billing.selectors.events import read_events
from billing.selectors.income import IncomeLine
from evenshare_core.domain.instants import to_us
from evenshare_core.money.revenue.factors import CountedSpan, FactorSweep, IdleStep
from evenshare_core.money.revenue.idle import OPERATOR
from evenshare_core.money.revenue.records import Event
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

BATCH = 5000
# Ends that were reported later than this are missed; with None, all events of the pool are read.
LATE: tuple[timedelta | None, ...] = (timedelta(hours=1), timedelta(days=7), None)
Weights = tuple[tuple[int | None, int], ...]


@dataclass(frozen=True, slots=True)
class LineFactors:
    """A line of income with the parts of its weight.

    `span`: the counted time of the term, or None if no event closes it. `weights`: of all lenders
    of the line, (tenant or None for the operator, weight), in the order of the split's equal
    remainders.
    """

    line: IncomeLine
    span: CountedSpan | None
    weights: Weights


@dataclass(frozen=True, slots=True)
class IncomeFactors:
    """Lines with the steps of idle quota of their GPU types over their whole time."""

    lines: tuple[LineFactors, ...]
    steps: dict[str, tuple[IdleStep, ...]]


def income_factors(tenant_id: int, pool_id: int, lines: Sequence[IncomeLine]) -> IncomeFactors:
    """Return lines of a tenant's income in a pool with their intervals of idle quota.

    Queries: shares, meter, posted price, quotas, events of running leases, and one per 5,000 events
    in the time of the lines.
    """
    if not lines:
        return IncomeFactors((), {})
    with site_reading():
        weights = _weights({line.line_id for line in lines})
        for late in LATE:
            sweep = _swept(pool_id, lines, late)
            if not any(_differs(sweep, line, tenant_id) for line in lines):
                break
    spans = [sweep.spans.get((line.lease_id, line.term)) for line in lines]
    return IncomeFactors(
        tuple(
            LineFactors(line, span, weights[line.line_id])
            for line, span in zip(lines, spans, strict=True)
        ),
        _steps(sweep, tenant_id, [span for span in spans if span is not None]),
    )


def _steps(
    sweep: FactorSweep, tenant_id: int, spans: Sequence[CountedSpan]
) -> dict[str, tuple[IdleStep, ...]]:
    return {
        name: tuple(
            sweep.steps(
                *(name, tenant_id),
                min(span.from_us for span in spans if span.gpu_type == name),
                max(span.until_us for span in spans if span.gpu_type == name),
            )
        )
        for name in sorted({span.gpu_type for span in spans})
    }


def _differs(sweep: FactorSweep, line: IncomeLine, tenant_id: int) -> bool:
    """Return whether the sweep's weight differs from the stored one, if a remainder was carried."""
    closed = sweep.closed.get((line.lease_id, line.term))
    if closed is None:
        return True
    if line.carried_units is None:
        return False
    again = (closed.weights.get(tenant_id, 0), sum(closed.weights.values()))
    return again != (line.weight, line.weights)


def _weights(lines: Iterable[int]) -> dict[int, Weights]:
    rows: dict[int, list[tuple[int | None, int]]] = {}
    shares = UsageShare.objects.filter(line_id__in=lines)
    for line, tenant, weight in shares.values_list("line_id", "account__tenant_id", "weight"):
        rows.setdefault(line, []).append((tenant, weight))
    return {
        line: tuple(sorted(of_line, key=lambda row: (row[0] is None, row[0] or OPERATOR)))
        for line, of_line in rows.items()
    }


def _swept(pool_id: int, lines: Sequence[IncomeLine], late: timedelta | None) -> FactorSweep:
    """Sweep over as many of the pool's events as the lines need."""
    metered, rests = _metered(pool_id)
    sweep = FactorSweep((line.lease_id, line.term) for line in lines)
    after = 0
    cut = None if late is None else _cut(pool_id, min(lines, key=lambda line: line.starts_at))
    if late is not None and cut is not None:
        at, after = cut
        for event in _events_before(pool_id, at, after, late):
            sweep.feed(event)
        sweep.rest(to_us(at))
    for number, until_us in rests:
        if number == after:
            sweep.rest(until_us)
    for event in _events(pool_id, after, metered):
        sweep.feed(event)
        for number, until_us in rests:
            if number == event.number:
                sweep.rest(until_us)
        if not sweep.missing:
            break
    return sweep


def _metered(pool_id: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of the last metered event, and the checks without rounds that were used."""
    cursor = MeterCursor.objects.filter(pool_id=pool_id)
    row = cursor.values_list("event_number", "state__rests").first()
    return (row[0], [(number, us) for number, us in row[1] or ()]) if row else (0, [])


def _cut(pool_id: int, first: IncomeLine) -> tuple[datetime, int] | None:
    """Return the time of the last round before a term, and the event that posted its price."""
    prices = PostedPrice.objects.filter(
        pool_id=pool_id, gpu_type__name=first.gpu_type, posted_at__lte=first.starts_at
    )
    rows = prices.order_by("-posted_at", "-valid_from_round")
    return rows.values_list("posted_at", "event_number").first()


def _events(pool_id: int, after: int, until: int) -> Iterator[Event]:
    while after < until:
        events = read_events(pool_id, after=after, limit=min(BATCH, until - after))
        if not events:
            return
        yield from events
        after = events[-1].number


# For each lease: its present term as a grant, its start, and its end.
_BEFORE = """
    SELECT kind, at, lease_id, job_id, tenant_id, term, data FROM (
        (SELECT DISTINCT ON (data->>'gpu_type') kind, at, lease_id, job_id, tenant_id, term, data,
                0 AS place
         FROM scheduling_leaseevent
         WHERE pool_id = %(pool)s AND kind = 'entitled' AND at <= %(at)s AND number <= %(number)s
         ORDER BY data->>'gpu_type', at DESC, number DESC)
        UNION ALL
        (SELECT DISTINCT ON (lease.id, CASE event.kind WHEN 'renewed' THEN 'granted'
                                                        ELSE event.kind END)
                CASE WHEN event.kind = 'renewed' THEN 'granted' ELSE event.kind END,
                event.at, event.lease_id, event.job_id, event.tenant_id, event.term, event.data,
                CASE event.kind WHEN 'started' THEN 2 WHEN 'ended' THEN 3 ELSE 1 END
         FROM scheduling_lease lease
         JOIN scheduling_leaseevent event ON event.lease_id = lease.id
         WHERE lease.pool_id = %(pool)s AND lease.granted_at <= %(at)s
           AND (lease.ended_at IS NULL OR lease.ended_at >= %(late)s)
           AND event.number <= %(number)s
           AND event.kind IN ('granted', 'started', 'renewed', 'ended')
         ORDER BY lease.id, CASE event.kind WHEN 'renewed' THEN 'granted' ELSE event.kind END,
                  event.number DESC)
    ) events ORDER BY place, lease_id
"""


def _events_before(pool_id: int, at: datetime, number: int, late: timedelta) -> Iterator[Event]:
    """Yield the events that determine the idle quota at an instant: quotas, and running leases."""
    given: dict[str, Any] = {"pool": pool_id, "at": at, "number": number, "late": at - late}
    rows = fetch_rows(_BEFORE, given)
    for count, (kind, row_at, lease, job, tenant, term, data) in enumerate(rows, start=1):
        who = (lease or 0, job or 0, tenant or 0, term or 0)
        # These events get numbers below all later events, in this order.
        yield Event(count - len(rows), kind, to_us(row_at), *who, json.loads(data))
