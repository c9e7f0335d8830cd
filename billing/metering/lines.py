"""Writes usage lines, their lenders' shares, and posted prices.

Rows are written in bulk, because a round of a large pool closes a thousand terms with dozens of
lenders each.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from billing.ledger import open_accounts, open_book
from billing.metering.budgets import add_unsettled, replace_reserved
from billing.models import Book, MeterCursor, UsageLine
from billing.selectors.events import hour_of
from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.records import ClosedTerm, Event, price_to_micro
from scheduling.engine.bulk import insert_rows, next_ids
from scheduling.models import GpuType, LeaseEvent, Pool

PRICE_COLUMNS = (
    *("pool_id", "gpu_type_id", "valid_from_round", "price", "used", "capacity", "base"),
    *("theta", "surcharge", "queued", "surcharge_step", "surcharge_cap"),
    *("posted_at", "event_number"),
)
LINE_COLUMNS = (
    *("id", "pool_id", "book_id", "tenant_id", "job_id", "lease_id", "term", "meter"),
    *("gpu_type_id", "gpus", "price", "starts_at", "ends_at", "amount", "event_number", "hour"),
    *("carried", "charged_until", "borne"),
)
SHARE_COLUMNS = ("line_id", "account_id", "weight", "amount", "lent_gpu_us", "hour")

OWN, BORROWED = UsageLine.Meter.OWN.value, UsageLine.Meter.BORROWED.value


def write_terms(cursor: MeterCursor, events: Sequence[Event], closed: Sequence[ClosedTerm]) -> int:
    """Write the closed terms and posted prices of a batch of events; return the number of lines."""
    book = open_book(Pool.objects.values_list("book", flat=True).get(pk=cursor.pool_id))
    types = dict(GpuType.objects.values_list("name", "id"))
    insert_rows("billing_postedprice", PRICE_COLUMNS, _prices(cursor.pool_id, events, types))
    written = _write_lines(cursor, book, types, closed)
    # Budgets are locked before days, as in settlement.
    replace_reserved(book, closed)
    charged = [term for term in closed if term.amount_micro and term.starts_us is not None]
    add_unsettled(book, ((t.tenant, _hour(cursor, t), t.amount_micro) for t in charged))
    return written


def _prices(
    pool_id: int, events: Sequence[Event], types: dict[str, int]
) -> Iterator[tuple[object, ...]]:
    for event in events:
        if event.kind != LeaseEvent.Kind.PRICED:
            continue
        for row in event.data["prices"]:
            surcharge = row.get("surcharge")
            yield (
                pool_id,
                types[row["gpu_type"]],
                event.data["valid_from_round"],
                to_text(price_to_micro(row["price"])),
                row["used"],
                row["capacity"],
                to_text(price_to_micro(row["base"])),
                row["theta"],
                None if surcharge is None else to_text(price_to_micro(surcharge)),
                *(row.get(name) for name in ("queued", "surcharge_step", "surcharge_cap")),
                from_us(event.at_us),
                event.number,
            )


def _write_lines(
    cursor: MeterCursor,
    book: Book,
    types: dict[str, int],
    closed: Sequence[ClosedTerm],
) -> int:
    """Write a line for own GPUs (free) and a line for borrowed ones, if any."""
    used = [
        (term, meter, gpus, price, amount, (carried, charged_until, to_text(borne)))
        for term in closed
        for meter, gpus, price, amount, carried, charged_until, borne in (
            (OWN, term.own, 0, 0, None, None, 0),
            (
                *(BORROWED, term.borrowed, term.price_micro, term.amount_micro, term.carried),
                *(_charged_until(term), term.borne_micro),
            ),
        )
        if gpus and term.starts_us is not None
    ]
    ids = next_ids("billing_usageline", len(used))
    hours = [_hour(cursor, term) for term, *_ in used]
    insert_rows(
        "billing_usageline",
        LINE_COLUMNS,
        (
            (
                *(line, cursor.pool_id, book.pk, term.tenant, term.job, term.lease, term.term),
                *(meter, types[term.gpu_type], gpus, to_text(price)),
                *(from_us(term.starts_us or 0), from_us(term.ends_us), to_text(amount)),
                *(term.event, hour, *rest),
            )
            for line, hour, (term, meter, gpus, price, amount, rest) in zip(
                ids, hours, used, strict=True
            )
        ),
    )
    _write_shares(
        book,
        [
            (line, hour, term)
            for line, hour, (term, meter, *_) in zip(ids, hours, used, strict=True)
            if meter == BORROWED
        ],
    )
    return len(used)


def _charged_until(term: ClosedTerm) -> datetime | None:
    late = term.charged_until_us < term.ends_us
    return from_us(term.charged_until_us) if late else None


def _hour(cursor: MeterCursor, term: ClosedTerm) -> datetime:
    """Return the term's settlement hour: the hour of its end, or the first open hour if later."""
    hour = hour_of(from_us(term.ends_us))
    return hour if cursor.settled_until is None else max(hour, cursor.settled_until)


def _write_shares(book: Book, borrowed: Sequence[tuple[int, datetime, ClosedTerm]]) -> None:
    """Write the lenders' shares of every borrowed line, by their idle quota during the term."""
    parties = {share.lender for _, _, term in borrowed for share in term.shares}
    accounts = open_accounts(book, parties | {term.tenant for _, _, term in borrowed})
    insert_rows(
        "billing_usageshare",
        SHARE_COLUMNS,
        (
            (
                line,
                accounts[share.lender],
                share.weight,
                to_text(share.amount_micro),
                share.lent_gpu_us,
                hour,
            )
            for line, hour, term in borrowed
            for share in term.shares
        ),
    )
