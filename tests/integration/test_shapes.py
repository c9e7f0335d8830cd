"""Test that JSON columns accept only shapes that code reads, and choice columns only choices."""

from __future__ import annotations

import json
from typing import cast

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, connection, connections
from django.db.migrations.state import StateApps
from django.db.transaction import atomic
from psycopg import sql
from structlog.testing import capture_logs

from tenants.shapes import (
    AMOUNT,
    FIGURE,
    NUMBER,
    OBJECT,
    TEXT,
    ByName,
    JsonShape,
    Many,
    WholeNumber,
    WithFields,
    choices_of,
    condition_of,
    counts_of,
    hold_shapes,
    names_of,
)
from tests.plugin import Services

APPS = ("scheduling", "billing", "tenants")
DEEP = "[" * 101 + "]" * 101
# Values that no column accepts: JSON null, scalars, a number that Python reads as infinite, and
# nesting that is too deep to read.
BAD = ("null", "7", '"x"', "true", '{"a": 1e400}', "[-1e400]", f'{{"a": {DEEP}}}', DEEP)
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
       pg_get_expr(k.conbin, k.conrelid)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'c' AND k.convalidated
      AND k.conname = right(c.relname || '_' || a.attname || %s, 63)
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname ~ '^(scheduling|billing|tenants)_'
"""


def takes(database: psycopg.Connection, check: str, **values: tuple[str, str]) -> bool:
    """Return whether a check constraint accepts the values, given as (value, type) by column."""
    row = sql.SQL(", ").join(
        sql.SQL("CAST({} AS {}) AS {}").format(sql.Literal(value), sql.SQL(kind), sql.Identifier(n))
        for n, (value, kind) in values.items()
    )
    query = sql.SQL("SELECT {} FROM (SELECT {}) AS one").format(sql.SQL(check), row)
    found = database.execute(query).fetchone()
    return found is not None and found[0] is not False


def test_every_json_column_has_shape(template_database: str, services: Services) -> None:
    """The columns come from the catalogue. A failure names those without a shape."""
    with services.postgres.connect(template_database) as database:
        rows = database.execute(COLUMNS + " AND a.atttypid = 'jsonb'::regtype", ["_shaped"])
        columns = rows.fetchall()
        assert len(columns) > 35
        wrong = [
            f"{table}.{column} takes {bad[:20]}"
            for table, column, kind, check in columns
            for bad in BAD
            if check is None
            or takes(database, check, **{"kind": ("ended", "text"), column: (bad, kind)})
        ]
        assert not wrong, "state the shape in a new last migration of the app (tenants/shapes.py)"


def test_every_choice_column_accepts_only_its_choices(
    template_database: str, services: Services
) -> None:
    """A failure names the columns that accept other values."""
    with services.postgres.connect(template_database) as database:
        rows = database.execute(COLUMNS, ["_known"]).fetchall()
        checks = {(table, column): (check, kind) for table, column, kind, check in rows}
        wrong = []
        columns = [one for app in APPS for one in choices_of(apps, app)]
        for table, column, words in columns:
            check, kind = checks[table, column]
            if check is None or takes(database, check, **{column: ("no-such", kind)}):
                wrong.append(f"{table}.{column} takes any word")
            else:
                wrong += [
                    f"{table}.{column} does not take {word!r}"
                    for word in words
                    if not takes(database, check, **{column: (word, kind)})
                ]
        assert len(columns) > 25
        assert not wrong, "end the newest migration of the app with tenants.shapes.hold_choices"


def test_every_name_in_urls_is_restricted_to_safe_characters(
    template_database: str, services: Services
) -> None:
    with services.postgres.connect(template_database) as database:
        rows = database.execute(COLUMNS, ["_named"]).fetchall()
        checks = {(table, column): (check, kind) for table, column, kind, check in rows}
        columns = [one for app in APPS for one in names_of(apps, app)]
        assert len(columns) > 5
        for table, column in columns:
            check, kind = checks[table, column]
            assert check is not None, f"{table}.{column}: end with tenants.shapes.hold_names"
            assert takes(database, check, **{column: ("a-B_9", kind)})
            for bad in ("", "a/b", "a b", "\u202e", "ß"):
                assert not takes(database, check, **{column: (bad, kind)}), (table, column, bad)


def test_non_negative_columns_reject_negative_numbers(
    template_database: str, services: Services
) -> None:
    with services.postgres.connect(template_database) as database:
        rows = database.execute(COLUMNS, ["_counted"]).fetchall()
        checks = {(table, column): (check, kind) for table, column, kind, check in rows}
        columns = [one for app in APPS for one in counts_of(apps, app)]
        assert len(columns) > 25
        for table, column in columns:
            check, kind = checks[table, column]
            assert check is not None, f"{table}.{column}: end with tenants.shapes.hold_counts"
            assert takes(database, check, **{column: ("0", kind)})
            assert not takes(database, check, **{column: ("-1", kind)}), (table, column)


GOOD_AND_BAD: dict[str, tuple[JsonShape, list[str], list[str]]] = {
    "an object": (OBJECT, ["{}", '{"a": [null]}'], ["[]", "null", '"x"']),
    "texts": (Many(TEXT), ["[]", '["a", ""]'], ["{}", "[1]", '["a", null]', '[["a"]]', '"a"']),
    "whole numbers by name": (
        ByName(WholeNumber()),
        ["{}", '{"v100": 0}', '{"a": 9223372036854775807}'],
        ["[]", "[1]", '{"a": -1}', '{"a": 1.5}', '{"a": "1"}', '{"a": null}',
         '{"a": 9223372036854775808}'],
    ),
    "pairs": (
        Many(Many(WholeNumber(), 2, 2)),
        ["[]", "[[1, 2], [3, 4]]"],
        ["[1]", "[[1]]", "[[1, 2, 3]]", "[[1, null]]", '[["a", 1]]', '{"a": 1}', "[null]"],
    ),
    "one to two": (Many(FIGURE, 1, 2), ['["1"]', "[1, 2.5]"], ["[]", "[1, 2, 3]", "[true]"]),
    "keys": (
        WithFields(a=WholeNumber(), b=Many(WithFields(c=NUMBER))),
        ['{"a": 1, "b": []}', '{"a": 1, "b": [{"c": -0.5}], "more": null}'],
        ['{"a": 1}', '{"b": []}', '{"a": 1, "b": [{}]}', '{"a": 1, "b": [{"c": 1}, {}]}',
         '{"a": null, "b": []}', "[]", '[{"a": 1, "b": []}]'],
    ),
    "amounts": (
        Many(AMOUNT),
        ['["0", "-1.50", "0E-6"]'],
        ['["x"]', '["NaN"]', '["Infinity"]', '[""]', "[1]", '["1."]'],
    ),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_shape_accepts_good_and_rejects_bad_values(name: str) -> None:
    shape, good, bad = GOOD_AND_BAD[name]
    held = condition_of("one", shape)
    query = f"SELECT {held} FROM (SELECT CAST(%s AS jsonb) AS one) AS row"  # noqa: S608 - ours
    with connection.cursor() as cursor:
        for value, expected in [(one, True) for one in good] + [(one, False) for one in bad]:
            json.loads(value)
            cursor.execute(query.replace("%", "%%").replace("%%s", "%s"), [value])
            assert cursor.fetchone() == (expected,), value


def test_table_with_invalid_rows_is_migrated_without_constraint(committed_db: str) -> None:
    """The migration accepts invalid rows.

    They can still be updated when their job is quarantined.
    """
    assert committed_db
    operation = hold_shapes("odd", {("row", "one"): OBJECT})
    owner = connections["owner"]
    with owner.cursor() as cursor, owner.schema_editor() as editor:
        cursor.execute("CREATE TABLE odd_row (one jsonb, two text)")
        cursor.execute("INSERT INTO odd_row VALUES ('7')")
        with capture_logs() as logs:
            operation.code(cast("StateApps", apps), editor)
        assert [(line["event"], line["table"]) for line in logs] == [("rows.unshaped", "odd_row")]
        cursor.execute("UPDATE odd_row SET two = 'x'")
        cursor.execute("DELETE FROM odd_row")
        cursor.execute(logs[0]["statement"])
        with pytest.raises(IntegrityError, match="odd_row_one_shaped"), atomic("owner"):
            cursor.execute("INSERT INTO odd_row VALUES ('7')")
