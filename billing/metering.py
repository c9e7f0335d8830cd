"""From lease events to usage lines, and from usage lines to hourly settlements.

`meter_pool` reads a pool's events by cursor and writes a line for every term that closed;
`settle_pool` posts one balanced transfer per borrower and hour that is over. Both begin by
locking the pool's cursor row, so that two workers never write the same line twice, and both
may be called at any time, any number of times.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection

from billing.ledger import Posting, accounts_open, book_open, transfer_id, transfers_post
from billing.models import (
    Book,
    MeterCursor,
    PostedPrice,
    Transfer,
    UsageLine,
    UsageShare,
)
from billing.money import HOUR_US, charge_micro, to_credits, to_micro
from billing.revenue import ClosedTerm, Event, Share, Sweep, price_to_micro, split_charge
from billing.selectors.events import events_read, hour_of
from scheduling.domain.instants import from_us, to_us
from scheduling.models import GpuType, LeaseEvent, LeaseTerm, Pool, PoolFence
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Metered:
    """What one call read and wrote. `busy`: another worker holds the pool; nothing was done."""

    events: int = 0
    lines: int = 0
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """Transfers that one call posted, and the instant before which all hours are closed."""

    transfers: int = 0
    until: datetime | None = None
    busy: bool = False


def meter_pool(pool_id: int, *, limit: int = 5000) -> Metered:
    """Read up to `limit` events after the cursor and write what they close, in one transaction.

    Raises:
        EventGapError: an event number is missing.
    """
    with engine_scope(pool_id):
        cursor = _lock(pool_id)
        if cursor is None:
            return Metered(busy=True)
        # Before the events: what was checked by then has written all its events.
        fence = PoolFence.objects.filter(pool_id=pool_id).first()
        events = events_read(pool_id, after=cursor.event_number, limit=limit)
        sweep = Sweep.from_state(cursor.state.get("sweep", {}))
        closed = [term for event in events for term in sweep.feed(event)]
        last = events[-1].number if events else cursor.event_number
        rests: list[list[int]] = cursor.state.get("rests", [])
        rested = _rest(sweep, fence, last)
        if rested is not None:
            rests.append([last, to_us(rested)])
            closed += sweep.rest(to_us(rested))
        if not events and rested is None:
            return Metered()
        for number, what in sweep.anomalies:
            log.error("meter.anomaly", pool=pool_id, number=number, what=what)
        lines = _write(pool_id, cursor, events, closed)
        cursor.event_number = last
        cursor.state = {"sweep": sweep.to_state(), "rests": rests}
        cursor.save(update_fields=["event_number", "state", "updated_at"])
    return Metered(events=len(events), lines=lines)


def settle_pool(pool_id: int) -> Settled:
    """Post one transfer per borrower for every pool-time hour that is over.

    An hour is over when a round, or a look at the pool that found nothing to do, came at or
    after its end and all events until then were metered.
    """
    with engine_scope(pool_id):
        cursor = _lock(pool_id)
        if cursor is None:
            return Settled(busy=True)
        until = _closed_until(pool_id, cursor)
        if until is None or (cursor.settled_until is not None and until <= cursor.settled_until):
            return Settled(until=cursor.settled_until)
        book = book_open(Pool.objects.values_list("book", flat=True).get(pk=pool_id))
        postings = _settlements(pool_id, book, cursor.settled_until, until)
        posted = transfers_post(postings)
        _release(book, postings)
        cursor.settled_until = until
        cursor.save(update_fields=["settled_until", "updated_at"])
    return Settled(transfers=posted, until=until)


def _lock(pool_id: int) -> MeterCursor | None:
    """Lock the pool's cursor; None while another worker has it (it does the same work)."""
    MeterCursor.objects.bulk_create([MeterCursor(pool_id=pool_id)], ignore_conflicts=True)
    return MeterCursor.objects.select_for_update(skip_locked=True).filter(pk=pool_id).first()


def _rest(sweep: Sweep, fence: PoolFence | None, last: int) -> datetime | None:
    """Return the instant to bring a resting pool up to date to, where an event waits for it.

    A quiet pool writes no rounds, so no later event would release those that wait.
    """
    if fence is None or fence.last_checked_at is None or last < fence.next_event - 1:
        return None
    waits_until_us = sweep.pending_us
    if waits_until_us is None or waits_until_us > to_us(fence.last_checked_at):
        return None
    return fence.last_checked_at


# Lines


def _write(
    pool_id: int, cursor: MeterCursor, events: Sequence[Event], closed: Sequence[ClosedTerm]
) -> int:
    pool = Pool.objects.get(pk=pool_id)
    book = book_open(pool.book)
    types = dict(GpuType.objects.values_list("name", "id"))
    PostedPrice.objects.bulk_create(_prices(pool_id, events, types))
    charged = [(term, _charge(term)) for term in closed]
    lines = [
        line
        for term, amount in charged
        if term.starts_us is not None
        for line in _lines(cursor, book, types[term.gpu_type], term, amount)
    ]
    UsageLine.objects.bulk_create(lines, batch_size=2000)
    _write_shares(book, lines, {(term.lease, term.term): term for term in closed})
    _replace_reserved(book, charged)
    return len(lines)


def _prices(pool_id: int, events: Iterable[Event], types: dict[str, int]) -> list[PostedPrice]:
    return [
        PostedPrice(
            pool_id=pool_id,
            gpu_type_id=types[row["gpu_type"]],
            valid_from_round=event.data["valid_from_round"],
            price=to_credits(price_to_micro(row["price"])),
            used=row["used"],
            capacity=row["capacity"],
            base=to_credits(price_to_micro(row["base"])),
            theta=row["theta"],
            posted_at=from_us(event.at_us),
            event_number=event.number,
        )
        for event in events
        if event.kind == LeaseEvent.Kind.PRICED
        for row in event.data["prices"]
    ]


def _charge(term: ClosedTerm) -> int:
    return charge_micro(term.borrowed, term.price_micro, term.held_us)


def _lines(
    cursor: MeterCursor, book: Book, gpu_type_id: int, term: ClosedTerm, amount_micro: int
) -> list[UsageLine]:
    """Return one line for own GPUs (free) and one for borrowed ones, where there are any."""
    ends_at = from_us(term.ends_us)
    hour = hour_of(ends_at)
    if cursor.settled_until is not None:
        hour = max(hour, cursor.settled_until)
    meters = (
        (UsageLine.Meter.OWN, term.own, 0, 0),
        (UsageLine.Meter.BORROWED, term.borrowed, term.price_micro, amount_micro),
    )
    return [
        UsageLine(
            pool_id=cursor.pool_id,
            book=book,
            tenant_id=term.tenant,
            job_id=term.job,
            lease_id=term.lease,
            term=term.term,
            meter=meter,
            gpu_type_id=gpu_type_id,
            gpus=gpus,
            price=to_credits(price_micro),
            starts_at=from_us(term.starts_us or 0),
            ends_at=ends_at,
            amount=to_credits(charge),
            event_number=term.event,
            hour=hour,
        )
        for meter, gpus, price_micro, charge in meters
        if gpus
    ]


def _write_shares(
    book: Book, lines: Sequence[UsageLine], terms: dict[tuple[int, int], ClosedTerm]
) -> None:
    """Split every borrowed line over the tenants whose quota was idle meanwhile."""
    borrowed = [line for line in lines if line.meter == UsageLine.Meter.BORROWED]
    lenders = {key for term in terms.values() for key in term.weights}
    accounts = accounts_open(book, lenders | {line.tenant_id for line in borrowed})
    shares = [
        UsageShare(
            line=line,
            account_id=accounts[share.lender],
            weight=share.weight_gpu_us,
            amount=to_credits(share.amount_micro),
            lent_gpu_us=share.lent_gpu_us,
            hour=line.hour,
        )
        for line in borrowed
        for share in _split(line, terms[line.lease_id, line.term])
    ]
    UsageShare.objects.bulk_create(shares, batch_size=5000)


def _split(line: UsageLine, term: ClosedTerm) -> tuple[Share, ...]:
    return split_charge(to_micro(line.amount), term.borrowed * term.held_us, term.weights)


# Budgets


def _replace_reserved(book: Book, charged: Sequence[tuple[ClosedTerm, int]]) -> None:
    """Replace the worst case that a round reserved for each term by what it cost."""
    priced = {
        (term.lease, term.term): (term.tenant, amount)
        for term, amount in charged
        if term.borrowed and term.price_micro
    }
    rows = LeaseTerm.objects.filter(lease_id__in={lease for lease, _ in priced}).values_list(
        "lease_id", "number", "borrowed", "price", "starts_at", "expires_at"
    )
    change: dict[int, int] = defaultdict(int)
    for lease, number, gpus, price, starts_at, expires_at in rows:
        if (lease, number) in priced:
            tenant, amount = priced[lease, number]
            worst = charge_micro(gpus, to_micro(price), to_us(expires_at) - to_us(starts_at))
            change[tenant] += amount - worst
    _change_reserved(book, change)


def _release(book: Book, postings: Sequence[Posting]) -> None:
    """What is settled is no longer reserved: the ledger took it from `spendable`."""
    change: dict[int, int] = defaultdict(int)
    for posting in postings:
        if posting.tenant_id is not None:
            change[posting.tenant_id] += sum(min(micro, 0) for _, micro in posting.entries)
    _change_reserved(book, change)


def _change_reserved(book: Book, change: dict[int, int]) -> None:
    rows = sorted((tenant, micro) for tenant, micro in change.items() if micro)
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH locked AS (
                SELECT budget.id, change.amount
                FROM tenants_budget budget
                JOIN unnest(%s::bigint[], %s::numeric[]) AS change (tenant_id, amount)
                  USING (tenant_id)
                WHERE budget.book = %s
                ORDER BY budget.tenant_id FOR UPDATE OF budget
            )
            UPDATE tenants_budget budget SET reserved = budget.reserved + locked.amount
            FROM locked WHERE budget.id = locked.id
            """,
            [
                [tenant for tenant, _ in rows],
                [to_credits(micro) for _, micro in rows],
                book.slug,
            ],
        )


# Settlement


def _closed_until(pool_id: int, cursor: MeterCursor) -> datetime | None:
    """Return the end of the last hour that is over and completely metered."""
    sweep = cursor.state.get("sweep")
    if not sweep or not sweep["watermark_us"]:
        return None
    known_us: int = sweep["watermark_us"]
    fence = PoolFence.objects.filter(pool_id=pool_id).first()
    if fence is not None and fence.last_checked_at and cursor.event_number >= fence.next_event - 1:
        known_us = max(known_us, to_us(fence.last_checked_at))
    if sweep["pending"]:
        known_us = min(known_us, sweep["pending"][0][0])
    return from_us(known_us // HOUR_US * HOUR_US)


def _settlements(
    pool_id: int, book: Book, since: datetime | None, until: datetime
) -> list[Posting]:
    """Return the transfers of all hours in [since, until): who pays, who earns."""
    lines = UsageLine.objects.filter(
        pool_id=pool_id, meter=UsageLine.Meter.BORROWED, amount__gt=0, hour__lt=until
    )
    if since is not None:
        lines = lines.filter(hour__gte=since)
    paid: dict[tuple[datetime, int], list[Any]] = defaultdict(lambda: [0, 0, 0, 0])
    for line in lines.values_list(
        "hour", "tenant_id", "amount", "gpus", "starts_at", "ends_at"
    ).iterator(chunk_size=5000):
        hour, tenant, amount, gpus, starts_at, ends_at = line
        sums = paid[hour, tenant]
        sums[0] += to_micro(amount)
        sums[1] += 1
        sums[2] += gpus * (to_us(ends_at) - to_us(starts_at))
        sums[3] += hour_of(ends_at) < hour
    earned = _earned(pool_id, since, until)
    accounts = accounts_open(book, {tenant for _, tenant in paid})
    return [
        Posting(
            id=transfer_id(book.slug, pool_id, tenant, hour.isoformat(), Transfer.Code.USAGE.value),
            book_id=book.pk,
            code=Transfer.Code.USAGE,
            effective_at=hour + HOUR,
            entries=[(accounts[tenant], -amount_micro), *earned[hour, tenant]],
            pool_id=pool_id,
            tenant_id=tenant,
            hour=hour,
            data={"lines": count, "borrowed_gpu_us": gpu_us, "late_lines": late},
        )
        for (hour, tenant), (amount_micro, count, gpu_us, late) in sorted(paid.items())
    ]


def _earned(
    pool_id: int, since: datetime | None, until: datetime
) -> dict[tuple[datetime, int], list[tuple[int, int]]]:
    """Return what each lender earns of each (hour, borrower): [(account, micro-credits)]."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT line.hour, line.tenant_id, share.account_id, sum(share.amount)
            FROM billing_usageline line JOIN billing_usageshare share ON share.line_id = line.id
            WHERE line.pool_id = %s AND share.amount > 0
              AND line.hour < %s AND line.hour >= coalesce(%s::timestamptz, '-infinity')
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
            """,
            [pool_id, until, since],
        )
        rows = cursor.fetchall()
    return {
        key: [(account, to_micro(amount)) for _, _, account, amount in group]
        for key, group in itertools.groupby(rows, key=lambda row: (row[0], row[1]))
    }
