"""Checks of a stored log, part by part: its numbers, its hashes, and the chain of its records."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from evenshare_core.chain import merkle
from evenshare_core.chain.records import (
    LedgerRecord,
    RecordError,
    RoundRecord,
    read_any_record,
)
from tenants.models import LogEntry, LogNode
from tenants.sql import fetch_rows
from tenants.transparency.log import log_id_of, size

StoredEntry: TypeAlias = tuple[bytes, bytes]  # a record and its leaf hash


class LogFault(NamedTuple):
    """A fault of a log's entry, or of a hash that ends at this entry."""

    place: int
    text: str


def entry_faults(log: str, first: int, count: int) -> list[LogFault]:
    """Return the faults of `count` entries of a log from `first`, and of hashes that end there.

    Each entry must exist, match its leaf hash, name its predecessor, and continue where its
    predecessor ended. Each complete subtree must have the hash of its halves, and only cover
    existing entries.
    """
    log_id = log_id_of(log)
    if log_id is None:
        return []
    end = min(first + count, size(log))
    rows = _rows(log_id, max(first - 1, 0), end)
    faults = list(_of_entries(log, rows, first, end))
    faults += _of_nodes(log_id, first, end)
    if end == size(log):
        faults += _of_surplus(log_id, end)
    return sorted(faults)


def _rows(log_id: int, first: int, end: int) -> dict[int, StoredEntry]:
    rows = LogEntry.objects.filter(log=log_id, index__gte=first, index__lt=end)
    return {
        index: (bytes(record), bytes(leaf))
        for index, record, leaf in rows.values_list("index", "record", "leaf_hash")
    }


def _of_entries(log: str, rows: dict[int, StoredEntry], first: int, end: int) -> Iterable[LogFault]:
    before = _record(rows.get(first - 1))
    for place in range(first, end):
        row = rows.get(place)
        if row is None:
            yield LogFault(place, "the entry is missing")
            before = None
            continue
        stored, leaf_hash = row
        if merkle.leaf_hash(stored) != leaf_hash:
            yield LogFault(place, "its leaf hash is not that of its record")
        try:
            record = read_any_record(stored)
        except RecordError as error:
            yield LogFault(place, f"it is not a record: {error}")
            before = None
            continue
        if record.log != log:
            yield LogFault(place, f"it is a record of {record.log[:80]}")
        yield from _of_chain(record, before, rows.get(place - 1), place)
        before = record


def _of_chain(
    record: RoundRecord | LedgerRecord,
    before: RoundRecord | LedgerRecord | None,
    row_before: StoredEntry | None,
    place: int,
) -> Iterable[LogFault]:
    """Yield faults if a record does not continue where the previous record ended."""
    # The hash is recomputed, because a stored hash may have been changed.
    previous = merkle.leaf_hash(row_before[0]).hex() if row_before else ""
    if record.previous != previous and (row_before is not None or place == 0):
        yield LogFault(place, "it does not name the previous record")
    if isinstance(record, RoundRecord) and isinstance(before, RoundRecord):
        if record.round != before.round + 1:
            yield LogFault(place, f"round {record.round} follows round {before.round}")
    elif isinstance(record, LedgerRecord):
        known = before.first + len(before.transfers) if isinstance(before, LedgerRecord) else 0
        if (before is not None or place == 0) and record.first != known:
            yield LogFault(
                place, f"its transfers start at number {record.first} instead of {known}"
            )
    elif before is not None:
        yield LogFault(place, "its kind differs from that of the previous record")


def _record(row: StoredEntry | None) -> RoundRecord | LedgerRecord | None:
    try:
        return read_any_record(row[0]) if row else None
    except RecordError:
        return None


_NODES = """
SELECT wanted.level, made.index, node.hash, below.hash
FROM unnest(%(levels)s::int[], %(firsts)s::bigint[], %(lasts)s::bigint[])
     AS wanted (level, first, last)
CROSS JOIN LATERAL generate_series(wanted.first, wanted.last) AS made (index)
LEFT JOIN tenants_lognode node
     ON node.log_id = %(log)s AND node.level = wanted.level AND node.index = made.index
CROSS JOIN LATERAL (
    SELECT CASE WHEN wanted.level = 1 THEN (
        SELECT string_agg(e.leaf_hash, ''::bytea ORDER BY e.index) FROM tenants_logentry e
        WHERE e.log_id = %(log)s AND e.index IN (2 * made.index, 2 * made.index + 1)
    ) ELSE (
        SELECT string_agg(n.hash, ''::bytea ORDER BY n.index) FROM tenants_lognode n
        WHERE n.log_id = %(log)s AND n.level = wanted.level - 1
          AND n.index IN (2 * made.index, 2 * made.index + 1)
    ) END
) AS below (hash)
"""


def _of_nodes(log_id: int, first: int, end: int) -> Iterable[LogFault]:
    levels = [level for level in range(1, 63) if first >> level < end >> level]
    rows: Sequence[tuple[int, int, bytes | None, bytes | None]] = fetch_rows(
        _NODES,
        {
            "log": log_id,
            "levels": levels,
            "firsts": [first >> level for level in levels],
            "lasts": [(end >> level) - 1 for level in levels],
        },
    )
    for level, index, stored, below in rows:
        begin, last = index << level, ((index + 1) << level) - 1
        halves = bytes(below or b"")
        if stored is None:
            yield LogFault(last, f"the hash of {last - begin + 1} entries from {begin} is missing")
        elif len(halves) != 64 or merkle.node_hash(halves[:32], halves[32:]) != bytes(stored):
            yield LogFault(
                last,
                f"the hash of {last - begin + 1} entries from {begin} does not follow from"
                f" its halves",
            )


def _of_surplus(log_id: int, end: int) -> Iterable[LogFault]:
    """Yield a fault for each hash that covers entries after the end of the log."""
    levels = LogNode.objects.filter(log=log_id, index__gte=0)
    for level in range(1, 63):
        last = levels.filter(level=level).order_by("-index").values_list("index", flat=True).first()
        if last is None:
            return
        if (last + 1) << level > end:
            missing = ((last + 1) << level) - 1
            yield LogFault(missing, f"a hash covers it, but the log ends at {end}")
