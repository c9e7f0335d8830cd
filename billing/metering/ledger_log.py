"""Transfers go into the log of their book, beside the write path: what is not in it is put in."""

from __future__ import annotations

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
from tenants.transparency import LockedLog

SALT_BYTES = 32
BATCH = 1000
# A transfer's transaction may commit after those of later ones; this long after, at most, for the
# look that costs what is new. The one that looks at all finds the others.
STRAGGLERS = timedelta(hours=1)


def log_transfers(book: Book, *, look_at_all: bool = False, limit: int = BATCH) -> int:
    """Put transfers of a book that are not in its log into a record; return how many.

    Any number of workers may try: the log has one writer at a time. A transfer is seen once its
    transaction has committed, so whole.
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


def _last_record(locked: LockedLog) -> LedgerRecord | None:
    if not locked.size:
        return None
    (entry,) = transparency.entries(locked.origin, locked.size - 1, 1)
    return read_ledger_record(entry.record)
