"""Invariants of logs, and of transfers compared with the logs of their books."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from billing.checks.base import CheckReport
from billing.models import Book
from billing.selectors.ledger_log import (
    LoggedRow,
    book_named,
    logged_rows,
    pending_transfers,
    transfer_bodies,
)
from evenshare_core.chain.records import (
    LedgerRecord,
    RecordError,
    TransferBody,
    read_ledger_record,
    transfer_digest,
)
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import HOUR_US
from tenants import transparency
from tenants.transparency.log import wall_now
from tenants.transparency.scrub import FAULTS_MAX
from tenants.transparency.soundness import LogFault, entry_faults

PART = 2000
# All transfers are checked hourly; a transfer that is not in the log after this time is missing.
LATE = timedelta(hours=3)


def logs_are_sound() -> CheckReport:
    """Check that entries have consecutive numbers, correct hashes and the previous entry's hash."""
    report = CheckReport()
    for origin in transparency.origins():
        there = transparency.size(origin)
        report.checked += there
        for first in range(0, max(there, 1), PART):
            for fault in entry_faults(origin, first, PART):
                report.wrong(f"{origin}, entry {fault.place}: {fault.text}")
    return report


def transfers_as_logged() -> CheckReport:
    """Check that every transfer is in the log of its book, and unchanged since."""
    report = CheckReport()
    for book in Book.objects.order_by("id"):
        origin = transparency.ledger_log(book.slug)
        there = transparency.size(origin)
        report.checked += there
        for first in range(0, max(there, 1), PART):
            for fault in transfer_faults(origin, first, PART):
                report.wrong(f"{origin}, entry {fault.place}: {fault.text}")
    return report


def transfer_faults(origin: str, first: int, count: int) -> list[LogFault]:
    """Return the faults in the transfers of a book's log, for `count` entries from `first` on.

    If these are the last entries, also return transfers that are missing in the log.
    """
    book = book_named(origin.rpartition("/")[2])
    if book is None:
        return [LogFault(first, "its book is gone")]
    faults: list[LogFault] = []
    posted_us = 0
    for place, record in _records(origin, max(first - 1, 0), first + count):
        if place >= first:
            faults += _of_record(book, place, record, posted_us)
        posted_us = record.posted_us
    there = transparency.size(origin)
    if first + count >= there:
        faults += _of_missing(book, there)
    return faults


def _records(origin: str, first: int, end: int) -> Iterable[tuple[int, LedgerRecord]]:
    step = 100  # a record has up to 1,000 transfers
    for begin in range(first, end, step):
        entries = transparency.entries(origin, begin, min(step, end - begin))
        for entry in entries:
            try:
                yield entry.place, read_ledger_record(entry.record)
            except RecordError:
                continue  # `logs_are_sound` reports this fault
        if len(entries) < step:
            return


def _of_record(book: Book, place: int, record: LedgerRecord, posted_us: int) -> Iterable[LogFault]:
    """Yield a record's faults; `posted_us` is the value in the previous record."""
    rows = {row.number: row for row in logged_rows(book.pk, record.first, len(record.transfers))}
    bodies = transfer_bodies([row.transfer_id for row in rows.values()])
    for number, digest in enumerate(record.transfers, start=record.first):
        row = rows.get(number)
        body = bodies.get(row.transfer_id) if row else None
        if text := _fault_of(row, body, digest, number, posted_us):
            yield LogFault(place, text)


def _fault_of(
    row: LoggedRow | None, body: TransferBody | None, digest: str, number: int, posted_us: int
) -> str:
    if row is None:
        return f"transfer number {number} of the log was removed, with its row"
    name = f"transfer {row.transfer_id}"
    if body is None:
        return f"{name} was removed"
    if transfer_digest(row.salt, body) != digest:
        return f"{name} was altered, or one of its entries"
    if body.posted_us < posted_us - HOUR_US:
        return f"{name} was added later than its date, {from_us(body.posted_us)}"
    return ""


def _of_missing(book: Book, place: int) -> Sequence[LogFault]:
    late = to_us(wall_now() - LATE)
    ids = pending_transfers(book.pk, since=None, limit=FAULTS_MAX)
    return [
        LogFault(place, f"transfer {id_} was added, but is in no entry of the log")
        for id_, body in transfer_bodies(ids).items()
        if body.posted_us < late
    ]
