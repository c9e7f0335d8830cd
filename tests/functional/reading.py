"""Count the rows and blocks that the database reads, by its own statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
from django.db import connection


class Reading(NamedTuple):
    """Rows of table scans, entries of index scans, and requested blocks."""

    rows: int
    blocks: int


def reading_of(act: Callable[[], object]) -> Reading:
    """Return what every session of the database reads while `act` runs, committed or not."""
    before = _counts()
    act()
    after = _counts()
    return Reading(after.rows - before.rows, after.blocks - before.blocks)


def vacuum(session: psycopg.Connection[Any], *, analyze: bool = False) -> None:
    """Remove deleted rows and flush the statistics, so that they do not count for a later `act`."""
    session.execute("VACUUM ANALYZE" if analyze else "VACUUM")
    session.execute("SELECT pg_stat_force_next_flush()")


def _counts() -> Reading:
    """Return the current counts.

    An idle session flushes its counts only after up to ten seconds; this session flushes them at
    once.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute(
            """
            SELECT coalesce(sum(pg_stat_get_tuples_returned(oid)), 0),
                   coalesce(sum(pg_stat_get_blocks_fetched(oid)), 0)
            FROM pg_class
            WHERE relkind IN ('r', 'i', 't') AND relnamespace <> 'pg_catalog'::regnamespace
            """
        )
        rows, blocks = cursor.fetchone()
    return Reading(int(rows), int(blocks))
