"""Entries of logs and their hashes: appended by one writer at a time, never changed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from evenshare_core.chain import merkle
from evenshare_core.chain.merkle import Place
from tenants.models import LogEntry, TransparencyLog
from tenants.scopes import site_scope
from tenants.sql import fetch_rows

# The class number of the logs' locks, among Postgres' advisory locks with two numbers.
LOCK_CLASS = 0x6C6F67  # The bytes of "log" as a number.
ENTRIES_MAX = 1000


class ConflictingEntryError(Exception):
    """The log has a different entry at this place, or ends before it; nothing was appended."""


class DamagedLogError(Exception):
    """Required hashes are missing: rows were deleted from the log."""


class StoredRecord(NamedTuple):
    """An entry of a log."""

    place: int
    record: bytes


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log; within `locked_log`, until the transaction ends.

    `last` is the leaf hash (hex) of the last entry, which the next entry names as `previous`; empty
    if the log is empty.
    """

    origin: str
    id: int
    size: int
    last: str


def round_log(pool: str) -> str:
    """Return the origin of the log of a pool's rounds."""
    return f"evenshare/{settings.INSTALLATION}/rounds/{pool}"


def ledger_log(book: str) -> str:
    """Return the origin of the log of a book's transfers."""
    return f"evenshare/{settings.INSTALLATION}/ledger/{book}"


def origins() -> list[str]:
    """Return the origins of all logs, oldest first."""
    return list(TransparencyLog.objects.order_by("id").values_list("origin", flat=True))


@contextmanager
def locked_log(log: str) -> Iterator[LogEnd]:
    """Open a transaction, or a part of the open one, as the only writer of a log.

    The log is created if it does not exist. The lock belongs to the transaction, not to a row: to
    lock a row, Postgres requires the right to change it, which the application lacks.
    """
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(_LOCK, [LOCK_CLASS, log])
        if cursor.fetchone() is None:
            # Insert only if the log is missing, because each attempt would use up an id.
            TransparencyLog.objects.bulk_create(
                [TransparencyLog(origin=log)], ignore_conflicts=True
            )
            cursor.execute(_LOCK, [LOCK_CLASS, log])
        # A separate statement, so that it sees the commits of the previous writer.
        ending = _ending(log)
        if ending is None:
            raise DamagedLogError(f"{log} was taken out")
        yield ending


def append(log: str, records: Sequence[bytes], first: int) -> int:
    """Append records, all or none, the first at index `first`; return the log's size.

    Existing entries are skipped, so that the call can be repeated after a crash.

    Raises:
        ConflictingEntryError: a place has another record, or the log ends before `first`.
    """
    with locked_log(log) as locked:
        if not 0 <= first <= locked.size:
            raise ConflictingEntryError(f"{log} has {locked.size} entries; {first} is not the next")
        there = []
        if first < locked.size:
            there = [entry.record for entry in _entries(locked.id, first, len(records))]
        for place, (old, new) in enumerate(zip(there, records, strict=False), start=first):
            if old != new:
                raise ConflictingEntryError(f"{log} has another entry {place}")
        new_records = records[len(there) :]
        if new_records:
            _insert(locked, new_records)
        return locked.size + len(new_records)


def wall_now() -> datetime:
    """Return the time of the database's clock."""
    now: datetime
    ((now,),) = fetch_rows("SELECT clock_timestamp()")
    return now


def size(log: str) -> int:
    """Return the number of a log's entries; 0 if the log does not exist."""
    ending = _ending(log)
    return ending.size if ending else 0


def entries(log: str, first: int, count: int) -> list[StoredRecord]:
    """Return at most `count` (and `ENTRIES_MAX`) entries from index `first` on, in order."""
    log_id = log_id_of(log)
    return [] if log_id is None else _entries(log_id, first, min(count, ENTRIES_MAX))


def root(log: str, at: int) -> bytes:
    """Return the root of a log's first `at` entries.

    Raises:
        ValueError: the log has fewer entries.
        DamagedLogError: hashes are missing.
    """
    return merkle.root(at, _reader(log, at))


def newest_root(log: str) -> tuple[int, bytes]:
    """Return the present size and root of a log; a missing log has no entries.

    Raises:
        DamagedLogError: hashes are missing.
    """
    ending = _ending(log)
    if ending is None:
        return 0, merkle.EMPTY_ROOT
    # The root at a given size never changes, so a concurrent writer does no harm.
    return ending.size, merkle.root(ending.size, lambda places: _hashes(log, ending.id, places))


def inclusion(log: str, index: int, size: int) -> tuple[bytes, ...]:
    """Return the audit path of an entry in the log's first `size` entries.

    Raises:
        ValueError: the log, or that part of it, has no such entry.
        DamagedLogError: hashes are missing.
    """
    return merkle.inclusion_proof(index, size, _reader(log, size))


def consistency(log: str, first: int, second: int) -> tuple[bytes, ...]:
    """Return the proof that the log at size `second` starts with the log at size `first`.

    Raises:
        ValueError: the log has fewer entries, or `first` is more than `second`.
        DamagedLogError: hashes are missing.
    """
    return merkle.consistency_proof(first, second, _reader(log, second))


def log_id_of(log: str) -> int | None:
    return TransparencyLog.objects.filter(origin=log).values_list("pk", flat=True).first()


def _reader(log: str, at: int) -> merkle.Reader:
    ending = _ending(log)
    there, log_id = (ending.size, ending.id) if ending else (0, 0)
    if at > there:
        raise ValueError(f"{log} has {there} entries, not {at}")
    return lambda places: _hashes(log, log_id, places)


_LOCK = """
SELECT pg_advisory_xact_lock(%s, id::int) FROM tenants_transparencylog WHERE origin = %s
"""
_ENDING = """
SELECT log.id, newest.index, newest.leaf_hash
FROM tenants_transparencylog log
LEFT JOIN LATERAL (
    SELECT index, leaf_hash FROM tenants_logentry WHERE log_id = log.id ORDER BY index DESC LIMIT 1
) newest ON true
WHERE log.origin = %s
"""


def _ending(log: str) -> LogEnd | None:
    """Return the end of a log, or None if it does not exist, with one query."""
    rows = fetch_rows(_ENDING, [log])
    if not rows:
        return None
    ((log_id, index, leaf),) = rows
    if index is None:
        return LogEnd(log, log_id, 0, "")
    return LogEnd(log, log_id, index + 1, leaf.hex())


def _entries(log_id: int, first: int, count: int) -> list[StoredRecord]:
    rows = LogEntry.objects.filter(log=log_id, index__gte=first, index__lt=first + count)
    pairs = rows.order_by("index").values_list("index", "record")
    return [StoredRecord(index, bytes(record)) for index, record in pairs]


_HASHES = """
SELECT 0, entry.index, entry.leaf_hash FROM tenants_logentry entry
WHERE entry.log_id = %s AND entry.index = ANY(%s)
UNION ALL
SELECT node.level, node.index, node.hash
FROM unnest(%s::int[], %s::bigint[]) AS wanted (level, index)
JOIN tenants_lognode node
     ON node.log_id = %s AND node.level = wanted.level AND node.index = wanted.index
"""


def _hashes(log: str, log_id: int, places: Sequence[Place]) -> list[bytes]:
    """Return the hashes of complete subtrees in the order of `places`, with one query."""
    leaves = [place.number for place in places if place.level == 0]
    nodes = [place for place in places if place.level]
    given = [log_id, leaves, [p.level for p in nodes], [p.number for p in nodes], log_id]
    rows = fetch_rows(_HASHES, given)
    hashes = {(level, number): bytes(hash_) for level, number, hash_ in rows}
    for place in places:
        if place not in hashes:
            raise DamagedLogError(
                f"{log}: the hash of {2**place.level} entries from "
                f"{place.number << place.level} on is missing"
            )
    return [hashes[place] for place in places]


def _insert(locked: LogEnd, records: Sequence[bytes]) -> None:
    leaves = [merkle.leaf_hash(record) for record in records]
    new = merkle.completed(
        locked.size, leaves, lambda places: _hashes(locked.origin, locked.id, places)
    )
    # Children come before parents, because the database compares each hash with those below it.
    nodes = sorted((place, value) for place, value in new.items() if place.level)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO tenants_logentry (log_id, index, record, leaf_hash)
            SELECT %s, made.index, made.record, made.leaf_hash
            FROM unnest(%s::bigint[], %s::bytea[], %s::bytea[])
                 AS made (index, record, leaf_hash)
            ORDER BY made.index
            """,
            [
                locked.id,
                list(range(locked.size, locked.size + len(records))),
                list(records),
                leaves,
            ],
        )
        if not nodes:
            return
        cursor.execute(
            """
            INSERT INTO tenants_lognode (log_id, level, index, hash)
            SELECT %s, made.level, made.index, made.hash
            FROM unnest(%s::int[], %s::bigint[], %s::bytea[]) AS made (level, index, hash)
            ORDER BY made.level, made.index
            """,
            [
                locked.id,
                [place.level for place, _ in nodes],
                [place.number for place, _ in nodes],
                [value for _, value in nodes],
            ],
        )
