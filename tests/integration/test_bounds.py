"""Test that no column accepts NaN, infinity, or a time out of bounds."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
from psycopg import sql

from tests.plugin import Services

NUMBERS = ("NaN", "Infinity", "-Infinity")
INSTANTS = ("infinity", "-infinity", "0001-12-31 BC", "10000-01-01", "294276-01-01")
BAD = {
    "numeric": NUMBERS, "double precision": NUMBERS, "real": NUMBERS,
    "timestamp with time zone": INSTANTS, "timestamp without time zone": INSTANTS,
    "date": INSTANTS,
}  # fmt: skip
# The largest values may be accepted, since Python can read them. If pages compute with a column's
# times, its bounds are narrower (`tenants.shapes.within_reach`).
GOOD = {
    "timestamp with time zone": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    "date": ("0001-01-01", "9999-12-31"),
}
# Django's own tables, which no round and no page reads.
OTHERS = ("django_", "auth_")


class Column(NamedTuple):
    """A column, and its table's check constraints that concern only this column."""

    table: str
    name: str
    type: str
    checks: list[str]


COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
       array_remove(array_agg(pg_get_expr(k.conbin, k.conrelid)), NULL)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_constraint k
       ON k.conrelid = c.oid AND k.contype = 'c' AND k.convalidated AND k.conkey = ARRAY[a.attnum]
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
  AND format_type(a.atttypid, NULL) = ANY(%s)
GROUP BY 1, 2, 3 ORDER BY 1, 2
"""


def test_every_number_and_time_column_is_bounded(
    template_database: str, services: Services
) -> None:
    """The columns come from the catalogue, with partitions.

    A failure names those without bounds.
    """
    with services.postgres.connect(template_database) as database:
        rows = database.execute(COLUMNS, [list(BAD)]).fetchall()
        columns = [Column._make(row) for row in rows if not row[0].startswith(OTHERS)]
        assert len(columns) > 60
        wrong = [
            f"{column.table}.{column.name} takes {value}"
            for column in columns
            for value in BAD[column.type]
            if takes(database, column, value)
        ]
        assert not wrong, "end the newest migration of its app with tenants.bounds.bound_columns"
        edges = [
            (column, value)
            for column in columns
            for value in GOOD.get(column.type, ())
            if "'9000-01-01" not in str(column.checks)
        ]
        assert not [one for one in edges if not takes(database, *one)]


def takes(database: psycopg.Connection, column: Column, value: str) -> bool:
    """Return whether all constraints on the column accept a value."""
    for check in column.checks:
        query = sql.SQL("SELECT {} FROM (SELECT CAST({} AS {}) AS {}) AS one").format(
            sql.SQL(check),
            sql.Literal(value),
            sql.SQL(column.type),
            sql.Identifier(column.name),
        )
        row = database.execute(query).fetchone()
        if row is not None and row[0] is False:
            return False
    return True
