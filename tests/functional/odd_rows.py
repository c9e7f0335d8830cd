"""Damaged values of every kind of column, and the addresses that read it: for a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
# Of each shape that some code might read. The last ones look right, and name what is not there.
JSON = (
    "null", "[]", "{}", "7", '"x"', "[1]", "[null]", '{"a": null}', '{"a": "x"}', '{"a": [1]}',
    "[[1]]", '[["a", "b"]]', '{"a": 1e400}', '{"no-such": 7}', "[[987654321, 1]]",
    '{"kind": "steep"}',
)  # fmt: skip
# How many of the addresses that read a column are asked for it.
ADDRESSES = 6


class Column(NamedTuple):
    """A column, its damaged values as SQL, and the addresses that read it."""

    table: str
    name: str
    values: Sequence[str]
    paths: Sequence[str]


class Asker:
    """Asks for addresses as somebody who is answered."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._clients: dict[str, Client] = {}
        self._queries: dict[str, str] = {}
        with uncompared():
            for look in looks({"all": pair.one.words}):
                self._find(look.address, look.path)

    def _find(self, address: str, path: str) -> None:
        """Remember who is answered, and by which queries."""
        for side in (self._pair.operator, self._pair.one):
            client = bearer(side.secret) if is_api(address) else session(side.session)
            with CaptureQueriesContext(connection) as queries:
                status = asked(client, path).status_code
            if status == 200:
                self._clients[path] = client
                self._queries[path] = " ".join(one["sql"] for one in queries.captured_queries)
                return

    def reading(self, table: str, column: str) -> list[str]:
        """The addresses whose queries name both, spread over all that do."""
        words = re.compile(
            rf"\b{table}\b(?=.*\b{column}\b)|\b{column}\b(?=.*\b{table}\b)", re.DOTALL
        )
        found = [path for path, queries in self._queries.items() if words.search(queries)]
        return found[:: max(1, len(found) // ADDRESSES)]

    def status(self, path: str) -> int:
        """What an address answers now."""
        with uncompared():
            status: int = asked(self._clients[path], path).status_code
        return status


def columns(asker: Asker) -> Iterator[Column]:
    """All columns of ours that hold JSON, a choice, a name, a list or a text."""
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            table = model._meta.db_table
            for field in model._meta.concrete_fields:
                values = damaged_values(field)
                paths = asker.reading(table, field.attname) if values else []
                if paths:
                    yield Column(table, field.attname, values, paths)


def damaged_values(field: models.Field[Any, Any]) -> list[str]:
    """What somebody may write there past all code, as SQL; empty for other kinds of columns."""
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
    """Our own session may switch the triggers off, and may write to every table."""
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


# All rows; where other conditions refuse some of them, those that state it, else one.
ROWS = ("true", '"{column}" IS NOT NULL', "ctid = (SELECT max(ctid) FROM {table})")


def is_written(column: Column, value: str) -> bool:
    """Write it to rows, in the running transaction; False where the database refuses it."""
    return any(_is_written(column, value, rows) for rows in ROWS)


def _is_written(column: Column, value: str, rows: str) -> bool:
    where = rows.format(table=column.table, column=column.name)
    query = f'UPDATE {column.table} SET "{column.name}" = {value} WHERE {where}'  # noqa: S608 - ours
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(query)
            written = bool(cursor.rowcount > 0)
            cursor.execute("SET LOCAL session_replication_role = origin")
    except Error:
        return False
    return written
