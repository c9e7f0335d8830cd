"""Sweep over columns: damaged values for every kind of column, and the URLs that read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import Error, connection, models, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.functional.addresses import bearer, is_api, session
from tests.functional.crawl import asked, looks
from tests.functional.two_tenants import Pair
from tests.plugin import Services
from tests.scope import uncompared

APPS = ("scheduling", "billing", "tenants")
# Values of each shape that code reads. The last values look valid, but name missing objects.
JSON = (
    "null", "[]", "{}", "7", '"x"', "[1]", "[null]", '{"a": null}', '{"a": "x"}', '{"a": [1]}',
    "[[1]]", '[["a", "b"]]', '{"a": 1e400}', '{"no-such": 7}', "[[987654321, 1]]",
    '{"kind": "steep"}',
)  # fmt: skip
# Maximum number of URLs that are requested per column.
ADDRESSES = 6


WORD = re.compile(r"\w+")
# The lowest value, the highest value, and one in the past or empty.
INSTANTS = ("0001-01-01 00:00+00", "9999-12-31 23:59:59.999999+00", "1970-01-01")
EDGES: dict[str, tuple[object, object, object]] = {
    "DateTimeField": INSTANTS,
    "DateField": ("0001-01-01", "9999-12-31", "1970-01-01"),
    "FloatField": (-1e308, 1e308, 0),
    "SmallIntegerField": (-(2**15), 2**15 - 1, 0),
    "IntegerField": (-(2**31), 2**31 - 1, 0),
    "BigIntegerField": (-(2**63), 2**63 - 1, 0),
    "PositiveSmallIntegerField": (1, 2**15 - 1, 0),
    "PositiveIntegerField": (1, 2**31 - 1, 0),
    "PositiveBigIntegerField": (1, 2**63 - 1, 0),
}


class Damage(NamedTuple):
    """A table, its changes (SQL by column), and the URLs that read it."""

    table: str
    changes: Sequence[Mapping[str, str]]
    paths: Sequence[str]


class Asker:
    """Requests URLs as a user who may see them."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._clients: dict[str, Client] = {}
        self._words: dict[str, set[str]] = {}
        with uncompared():
            for look in looks({"all": pair.one.words}):
                self._find(look.address, look.path)

    def _find(self, address: str, path: str) -> None:
        """Store a user who gets 200, and the words of the SQL; alternate member and operator."""
        sides = (self._pair.operator, self._pair.one)
        for side in sides if len(self._clients) % 2 else sides[::-1]:
            client = bearer(side.secret) if is_api(address) else session(side.session)
            with CaptureQueriesContext(connection) as queries:
                status = asked(client, path).status_code
            if status == 200:
                self._clients[path] = client
                self._words[path] = {
                    word for one in queries.captured_queries for word in WORD.findall(one["sql"])
                }
                return

    def reading(self, table: str, columns: Sequence[str]) -> list[str]:
        """Return URLs whose queries name the table and a column, chosen at regular intervals."""
        found = [
            path
            for path, words in self._words.items()
            if table in words and not words.isdisjoint(columns)
        ]
        return found[:: max(1, len(found) // ADDRESSES)]

    def status(self, path: str) -> int:
        with uncompared():
            status: int = asked(self._clients[path], path).status_code
        return status


def damages(asker: Asker) -> Iterator[Damage]:
    """Yield all changes: texts, names and JSON by column, numbers and times by table."""
    for table, fields in tables():
        for field in fields:
            yield from by_column(asker, table, field.attname, damaged_values(field))
        if numbers := numbers_of(fields):
            yield Damage(table, together(numbers), asker.reading(table, [*numbers]))


def damages_by_number(asker: Asker) -> Iterator[Damage]:
    for table, fields in tables():
        for name, values in numbers_of(fields).items():
            yield from by_column(asker, table, name, values)


def by_column(asker: Asker, table: str, column: str, values: Sequence[str]) -> Iterator[Damage]:
    if values:
        yield Damage(table, [{column: one} for one in values], asker.reading(table, [column]))


def tables() -> Iterator[tuple[str, list[models.Field[Any, Any]]]]:
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            yield model._meta.db_table, list(model._meta.concrete_fields)


def numbers_of(fields: Sequence[models.Field[Any, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the limits of numbers and instants, by column."""
    return {field.attname: edges for field in fields if (edges := edges_of(field))}


def edges_of(field: models.Field[Any, Any]) -> tuple[str, ...]:
    """Return the lowest, highest and empty value as SQL; () for other kinds of columns."""
    if field.primary_key or field.is_relation:
        return ()
    if isinstance(field, models.DecimalField):
        most = Decimal(10) ** (field.max_digits - field.decimal_places) - 1
        return tuple(f"'{value}'" for value in (-most, most, 0))
    return tuple(f"'{value}'" for value in EDGES.get(field.get_internal_type(), ()))


def together(numbers: Mapping[str, tuple[str, ...]]) -> list[Mapping[str, str]]:
    """Return columns at the lowest, highest or empty value, and mixed (an end before its start)."""
    alike = [{name: values[place] for name, values in numbers.items()} for place in range(3)]
    by_turns = {
        name: values[place % 2 == 0] for place, (name, values) in enumerate(numbers.items())
    }
    return [*alike, by_turns]


def damaged_values(field: models.Field[Any, Any]) -> list[str]:
    """Return values, as SQL, that could be written without the application; [] for other kinds."""
    if isinstance(field, models.JSONField):
        return [f"'{value}'" for value in JSON]
    if isinstance(field, ArrayField):
        return ["'{NULL}'", "'{no-such}'"]
    if isinstance(field, models.CharField) and not field.primary_key:
        turned_letters = f"repeat(U&'\\202E', {field.max_length or 255})"
        return ["'no-such'", "''", *([] if field.choices else [turned_letters])]
    return []


@contextmanager
def guards_off(services: Services) -> Iterator[None]:
    """Allow the test's session to switch triggers off and to write to every table."""
    name = str(connection.settings_dict["NAME"])
    grant = "SET ON PARAMETER session_replication_role"
    with services.postgres.connect(name) as superuser:
        superuser.execute(f"GRANT {grant} TO evenshare_app")
        superuser.execute("GRANT UPDATE ON ALL TABLES IN SCHEMA public TO evenshare_app")
    try:
        yield
    finally:
        with services.postgres.connect(name) as superuser:
            superuser.execute(f"REVOKE {grant} FROM evenshare_app")


# Try to change all rows, then the rows with a value, then a single row, because constraints may
# refuse.
ROWS = ("true", '"{column}" IS NOT NULL', "ctid = (SELECT max(ctid) FROM {table})")


def is_written(table: str, change: Mapping[str, str]) -> bool:
    """Write to rows in the running transaction; return whether the database accepts a change."""
    written = [
        any(_is_written(table, column, value, rows) for rows in ROWS)
        for column, value in change.items()
    ]
    return any(written)


def _is_written(table: str, column: str, value: str, rows: str) -> bool:
    where = rows.format(table=table, column=column)
    query = f'UPDATE {table} SET "{column}" = {value} WHERE {where}'  # noqa: S608 - ours
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(query)
            written = bool(cursor.rowcount > 0)
            cursor.execute("SET LOCAL session_replication_role = origin")
    except Error:
        return False
    return written
