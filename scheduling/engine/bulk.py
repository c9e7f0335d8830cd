"""Bulk writes for the engine: COPY for new rows, one statement for many changes.

A round at full size makes thousands of rows; as objects they cost more than the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection
from psycopg import sql


def copy_rows(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows by COPY, in the running transaction; constraints and triggers apply.

    Columns that are not named get the database's default.
    """
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def next_ids(table: str, count: int) -> list[int]:
    """Draw ids from a table's identity sequence, for rows that others will refer to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)",
            [table, count],
        )
        return [id_ for (id_,) in cursor.fetchall()]


def run(statement: str, parameters: Sequence[Any]) -> None:
    """Execute one statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
