"""Bulk writes for the engine: one statement for new rows, one for many changes.

A large round writes thousands of rows. Writing them as Django objects would take longer than the
decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from django.apps import apps
from django.db import connection

from tenants.sql import fetch_rows


def _plain(value: object) -> int:
    """Convert subclasses of int to int, because `msgspec` cannot encode them."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"cannot be written: {value!r}")


_json = msgspec.json.Encoder(enc_hook=_plain).encode


def insert_rows(
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    returning: Sequence[str] = (),
) -> list[tuple[Any, ...]]:
    """Insert rows in one statement, in the running transaction; constraints and triggers apply.

    Columns that are not named get the database's default. Give values of JSON columns as text.
    Returns the columns `returning` of the new rows. PostgreSQL reads one JSON document of all rows
    about as fast as COPY, which row level security does not allow. Arrays by column take five times
    as long.
    """
    kinds = _kinds(table)
    chosen = ", ".join(f"{name}::{kinds[name]}" for name in columns)
    read_as = ", ".join(
        f"{name} {'text' if kinds[name] == 'jsonb' else kinds[name]}" for name in columns
    )
    rows_json = _json([dict(zip(columns, row, strict=True)) for row in rows]).decode()
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)})"  # noqa: S608 - names are models' own
            f" SELECT {chosen} FROM json_to_recordset(%s::json) AS r ({read_as})"
            + (f" RETURNING {', '.join(returning)}" if returning else ""),
            [rows_json],
        )
        return cursor.fetchall() if returning else []


def document(value: object) -> str | None:
    """Return a JSON column's value as text for `insert_rows`."""
    return None if value is None else _json(value).decode()


@cache
def _kinds(table: str) -> dict[str, str]:
    """Return the types of a table's columns, from its model."""
    (model,) = [one for one in apps.get_models() if one._meta.db_table == table]  # noqa: SLF001 - documented
    fields = model._meta.concrete_fields  # noqa: SLF001 - Django's documented model API
    return {str(field.column): str(field.db_type(connection)) for field in fields}


def next_ids(table: str, count: int) -> list[int]:
    """Draw ids from a table's identity sequence, for rows to which other rows will refer."""
    query = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    return [id_ for (id_,) in fetch_rows(query, [table, count])]


def run(statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
