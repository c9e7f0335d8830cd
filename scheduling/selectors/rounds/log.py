"""Rounds in the log of their pool: one entry each, in order, from the first sealed round on."""

from evenshare_core.chain.records import RoundRecord, read_record
from tenants import transparency
from tenants.transparency import DamagedLogError, StoredRecord


def newest_round(log: str) -> int | None:
    """Return the number of the last round in a log, or None if it is empty."""
    size = transparency.size(log)
    return _record(log, size - 1).round if size else None


def first_round(log: str) -> int | None:
    """Return the number of the first round in a log, or None if it is empty."""
    return _record(log, 0).round if transparency.size(log) else None


def place_of_round(log: str, number: int) -> int | None:
    """Return the index of a round's record, or None if the log does not contain it.

    Raises:
        DamagedLogError: the entry at this index belongs to another round.
    """
    first = first_round(log)
    place = number - first if first is not None else -1
    if not 0 <= place < transparency.size(log):
        return None
    there = _record(log, place).round
    if there != number:
        raise DamagedLogError(f"{log}: entry {place} is round {there}, not {number}")
    return place


def logged_rounds(log: str, first: int, last: int, limit: int) -> list[StoredRecord]:
    """Return the records of rounds from `first` to `last`, at most `limit`, oldest first."""
    start = first_round(log)
    if start is None or last < max(first, start):
        return []
    begin = max(first, start)
    count = min(limit, last - begin + 1)
    return transparency.entries(log, begin - start, count)


def round_of(entry: StoredRecord) -> RoundRecord:
    return read_record(entry.record)


def _record(log: str, place: int) -> RoundRecord:
    entries = transparency.entries(log, place, 1)
    if not entries:
        raise DamagedLogError(f"{log}: entry {place} is missing")
    return read_record(entries[0].record)
