"""Writes missing transfers to the log of their book, outside the path that posts them."""

import secrets
from datetime import timedelta

from billing.models import Book, LoggedTransfer
from billing.selectors.ledger_log import pending_transfers, transfer_bodies
from evenshare_core.chain.records import (
    SCHEMA,
    LedgerRecord,
    read_ledger_record,
    record_bytes,
    transfer_digest,
)
from evenshare_core.domain.instants import from_us
from tenants import transparency
from tenants.faults import fault_point
from tenants.transparency import LogEnd

SALT_BYTES = 32
BATCH = 1000
# A transfer may commit at most this much later than one that was posted after it. The quick check
# goes back this far; the check of all transfers finds the rest.
STRAGGLERS = timedelta(hours=1)


def log_transfers(book: Book, *, look_at_all: bool = False, limit: int = BATCH) -> int:
    """Write a record of the transfers that are missing in a book's log; return their number.

    Any number of workers may call it: the log has one writer at a time. A transfer is visible only
    after its commit, so it is complete.
    """
    with transparency.locked_log(transparency.ledger_log(book.slug)) as locked:
        before = _last_record(locked)
        since = None
        if before is not None and not look_at_all:
            since = from_us(before.posted_us) - STRAGGLERS
        ids = pending_transfers(book.pk, since=since, limit=limit)
        if not ids:
            return 0
        bodies = transfer_bodies(ids)
        first = before.first + len(before.transfers) if before else 0
        salts = [secrets.token_bytes(SALT_BYTES) for _ in ids]
        record = LedgerRecord(
            schema=SCHEMA,
            log=locked.origin,
            first=first,
            posted_us=max(
                before.posted_us if before else 0, *(body.posted_us for body in bodies.values())
            ),
            previous=locked.last,
            transfers=tuple(
                transfer_digest(salt, bodies[id_]) for id_, salt in zip(ids, salts, strict=True)
            ),
        )
        transparency.append(locked.origin, [record_bytes(record)], locked.size)
        LoggedTransfer.objects.bulk_create(
            LoggedTransfer(transfer_id=id_, book=book, number=number, salt=salt)
            for number, (id_, salt) in enumerate(zip(ids, salts, strict=True), start=first)
        )
        fault_point("ledger_log.before_commit")
    return len(ids)


def _last_record(locked: LogEnd) -> LedgerRecord | None:
    if not locked.size:
        return None
    (entry,) = transparency.entries(locked.origin, locked.size - 1, 1)
    return read_ledger_record(entry.record)
