"""Posts a balanced transfer per borrower and past hour, and one per credit for a late start."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from billing.ledger import (
    Posting,
    late_start_id,
    open_accounts,
    open_book,
    post_transfers,
    transfer_id,
)
from billing.metering.budgets import add_spend, release_reserved
from billing.metering.cursor import lock_cursor
from billing.models import Book, MeterCursor, Transfer, UsageLine
from billing.selectors.events import hour_of
from billing.selectors.late_starts import late_credits
from billing.selectors.usage import MOVES_CREDITS
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.revenue.idle import OPERATOR
from evenshare_core.units import HOUR_US
from scheduling.models import Pool, PoolFence
from tenants.faults import fault_point
from tenants.scopes import engine_scope
from tenants.sql import fetch_rows

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Settled:
    """The number of posted transfers, and the instant before which all hours are closed."""

    transfers: int = 0
    until: datetime | None = None
    busy: bool = False


def settle_pool(pool_id: int) -> Settled:
    """Post one transfer per borrower for every past hour of pool time, and those of late starts.

    An hour is past once a round, or a check without a round, came at or after its end. All events
    until then must be metered.
    """
    with engine_scope(pool_id):
        cursor = lock_cursor(pool_id)
        if cursor is None:
            return Settled(busy=True)
        until = _closed_until(pool_id, cursor)
        if until is None or (cursor.settled_until is not None and until <= cursor.settled_until):
            return Settled(until=cursor.settled_until)
        book = open_book(Pool.objects.values_list("book", flat=True).get(pk=pool_id))
        settled = _settlements(pool_id, book, cursor.settled_until, until)
        postings = [posting for posting, _ in settled]
        postings += _late_starts(pool_id, book, cursor.settled_until, until)
        charges = [
            (posting.tenant_id, posting.hour, micro)
            for posting, micro in settled
            if posting.tenant_id is not None and posting.hour is not None
        ]
        fault_point("settle.before_post")
        posted = post_transfers(postings)
        release_reserved(book, charges)
        add_spend(book, charges)
        cursor.settled_until = until
        cursor.save(update_fields=["settled_until", "updated_at"])
        fault_point("settle.before_commit")
    fault_point("settle.after_commit")
    return Settled(transfers=posted, until=until)


def _closed_until(pool_id: int, cursor: MeterCursor) -> datetime | None:
    """Return the end of the last past hour that is completely metered."""
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


@dataclass(slots=True)
class _Borrowed:
    """A tenant's debt for an hour, with its usage lines.

    `late_lines` counts lines of terms from earlier hours. `borne_micro`: the operator's payment to
    lenders for time without rounds; `borne_gpu_us`: the GPU-time held in it.
    """

    amount_micro: int = 0
    borne_micro: int = 0
    borne_gpu_us: int = 0
    lines: int = 0
    gpu_us: int = 0
    late_lines: int = 0

    def borne(self) -> dict[str, int]:
        """Return the transfer's note of uncharged time; empty without any."""
        return {"borne_gpu_us": self.borne_gpu_us} if self.borne_gpu_us else {}


def _settlements(
    pool_id: int, book: Book, since: datetime | None, until: datetime
) -> list[tuple[Posting, int]]:
    """Return the transfers of all hours in [since, until), each with its borrower's payment."""
    lines = UsageLine.objects.filter(
        MOVES_CREDITS, pool_id=pool_id, meter=UsageLine.Meter.BORROWED, hour__lt=until
    )
    if since is not None:
        lines = lines.filter(hour__gte=since)
    paid: dict[tuple[datetime, int], _Borrowed] = defaultdict(_Borrowed)
    for line in lines.values_list(
        *("hour", "tenant_id", "amount", "gpus", "starts_at", "ends_at", "charged_until", "borne")
    ).iterator(chunk_size=5000):
        hour, tenant, amount, gpus, starts_at, ends_at, charged_until, borne = line
        borrowed = paid[hour, tenant]
        borrowed.amount_micro += to_micro(amount)
        borrowed.borne_micro += to_micro(borne)
        if charged_until is not None:
            borrowed.borne_gpu_us += gpus * (to_us(ends_at) - to_us(charged_until))
        borrowed.lines += 1
        borrowed.gpu_us += gpus * (to_us(ends_at) - to_us(starts_at))
        borrowed.late_lines += hour_of(ends_at) < hour
    earned = _earned(pool_id, since, until)
    accounts = open_accounts(book, {tenant for _, tenant in paid} | {OPERATOR})
    settlements = []
    for (hour, tenant), borrowed in sorted(paid.items(), key=itemgetter(0)):
        posting = Posting(
            id=transfer_id(book.slug, pool_id, tenant, hour.isoformat(), Transfer.Code.USAGE.value),
            book_id=book.pk,
            code=Transfer.Code.USAGE,
            effective_at=hour + HOUR,
            entries=[
                (accounts[tenant], -borrowed.amount_micro),
                (accounts[OPERATOR], -borrowed.borne_micro),
                *earned[hour, tenant],
            ],
            pool_id=pool_id,
            tenant_id=tenant,
            hour=hour,
            data={
                "lines": borrowed.lines,
                "borrowed_gpu_us": borrowed.gpu_us,
                "late_lines": borrowed.late_lines,
                **borrowed.borne(),
            },
        )
        settlements.append((posting, borrowed.amount_micro))
    return settlements


def _late_starts(
    pool_id: int, book: Book, since: datetime | None, until: datetime
) -> list[Posting]:
    """Return the operator's credits for late starts of the hours in [since, until)."""
    due = list(late_credits(pool_id, since=since, until=until))
    if not due:
        return []
    accounts = open_accounts(book, {credit.tenant_id for credit in due})
    return [
        Posting(
            id=late_start_id(book, pool_id, credit.subject),
            book_id=book.pk,
            code=Transfer.Code.LATE_START,
            effective_at=credit.hour + HOUR,
            entries=[
                (accounts[OPERATOR], -credit.amount_micro),
                (accounts[credit.tenant_id], credit.amount_micro),
            ],
            pool_id=pool_id,
            tenant_id=credit.tenant_id,
            data=credit.facts,
        )
        for credit in due
    ]


def _earned(
    pool_id: int, since: datetime | None, until: datetime
) -> dict[tuple[datetime, int], list[tuple[int, int]]]:
    """Return (hour, borrower) -> income of each lender: [(account, micro-credits)]."""
    rows = fetch_rows(
        """
        SELECT line.hour, line.tenant_id, share.account_id, sum(share.amount)
        FROM billing_usageline line JOIN billing_usageshare share ON share.line_id = line.id
        WHERE line.pool_id = %s AND share.amount > 0
          AND line.hour < %s AND line.hour >= coalesce(%s::timestamptz, '-infinity')
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        """,
        [pool_id, until, since],
    )
    earned: dict[tuple[datetime, int], list[tuple[int, int]]] = {}
    for hour, borrower, account, amount in rows:
        earned.setdefault((hour, borrower), []).append((account, to_micro(amount)))
    return earned
