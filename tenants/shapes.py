"""Shapes of stored JSON, and closed lists of choices: the database refuses unreadable values.

For migrations: `hold_shapes` constrains JSON columns, `hold_choices` columns with choices,
`hold_names` names in URLs, and `hold_counts` whole numbers that cannot be negative.
`tests/integration/test_shapes.py` reports forgotten columns. A table that already has violating
rows gets no condition, because these rows could no longer be updated. The log names such a table.
Source: docs/adr/0228-shapes-of-rows.md.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from django.apps.registry import Apps
from django.db import IntegrityError, migrations, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper

log = structlog.get_logger(__name__)

MOST = 2**63 - 1
WHOLE = ("BigIntegerField", "IntegerField", "SmallIntegerField")
# Python reads larger numbers as infinity, and nested values only up to a thousand levels.
_LARGEST = "1.7976931348623157e308"
DEEPEST = 100
# Whole numbers that may be negative: random seeds, exit codes, instants before 1970, rewards of a
# market, remainders of rounded charges, and priorities.
SIGNED = frozenset(
    {
        *("seed", "exit_code", "launched_us", "stopped_us", "reward_micro", "carried", "priority"),
    }
)


class JsonShape(Protocol):
    """The shape of a JSON value.

    A missing key is an error in the strict mode of SQL/JSON. The condition is then unknown, which
    this module counts as violated.
    """

    def conditions(self, path: str) -> Iterator[str]:
        """Yield predicates on the value at a path, all of which must be true."""


@dataclass(frozen=True)
class Typed:
    """A value of one of several types; `types` has their names in jsonpath."""

    types: tuple[str, ...]

    def conditions(self, path: str) -> Iterator[str]:
        others = " && ".join(f'@.type() != "{one}"' for one in self.types)
        yield f"!exists({path} ? ({others}))"


@dataclass(frozen=True)
class WholeNumber:
    """A whole number of 64 bits, at least `least`."""

    least: int = 0

    def conditions(self, path: str) -> Iterator[str]:
        yield from NUMBER.conditions(path)
        yield f"!exists({path} ? (@ != @.floor() || @ < {self.least} || @ > {MOST}))"


@dataclass(frozen=True)
class Many:
    """A list of `least` to `most` items of one shape."""

    item: JsonShape
    least: int = 0
    most: int = MOST

    def conditions(self, path: str) -> Iterator[str]:
        yield from Typed(("array",)).conditions(path)
        if self.least or self.most < MOST:
            yield f"!exists({path} ? (@.size() < {self.least} || @.size() > {self.most}))"
        yield from self.item.conditions(f"{path}[*]")


@dataclass(frozen=True)
class ByName:
    """An object with any keys and values of one shape."""

    item: JsonShape

    def conditions(self, path: str) -> Iterator[str]:
        yield from OBJECT.conditions(path)
        yield from self.item.conditions(f"{path}.*")


class WithFields:
    """An object that has at least these keys."""

    def __init__(self, **fields: JsonShape) -> None:
        self.fields = fields

    def conditions(self, path: str) -> Iterator[str]:
        yield from OBJECT.conditions(path)
        for name, shape in self.fields.items():
            yield from shape.conditions(f"{path}.{json.dumps(name)}")


@dataclass(frozen=True)
class TextLike:
    """A text that matches a regular expression."""

    pattern: str

    def conditions(self, path: str) -> Iterator[str]:
        yield from TEXT.conditions(path)
        yield f"!exists({path} ? (!(@ like_regex {json.dumps(self.pattern)})))"


@dataclass(frozen=True)
class ByWord:
    """An object whose shape depends on another column."""

    column: str
    shapes: Mapping[str, JsonShape]


TEXT = Typed(("string",))
NUMBER = Typed(("number",))
OBJECT = Typed(("object",))
FIGURE = Typed(("string", "number"))
# A decimal number as Python writes it.
AMOUNT = TextLike(r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]{1,2})?$")

Columns = Mapping[tuple[str, str], JsonShape | ByWord]
Condition = tuple[str, str, str]  # (table, name of the condition without the table, SQL)


def condition_of(column: str, shape: JsonShape | ByWord) -> str:
    """Return the SQL condition, for a CHECK, that a column is NULL or has a shape."""
    if isinstance(shape, ByWord):
        cases = " ".join(
            f"WHEN '{word}' THEN {condition_of(column, one)}" for word, one in shape.shapes.items()
        )
        return f'CASE "{shape.column}" {cases} ELSE {condition_of(column, OBJECT)} END'
    everywhere = (
        f"!exists($.** ? (@ > {_LARGEST} || @ < -{_LARGEST}))",
        f"!exists($.**{{{DEEPEST}}})",
    )
    path = "strict " + " && ".join((*shape.conditions("$"), *everywhere))
    quoted = path.replace("'", "''")
    held = f"""jsonb_path_match("{column}", '{quoted}', '{{}}', true)"""
    return f'"{column}" IS NULL OR coalesce({held}, false)'


def hold_shapes(app: str, columns: Columns) -> migrations.RunPython:
    """Constrain JSON columns to shapes, by (table without its app, column)."""
    held = [
        (f"{app}_{table}", f"{column}_shaped", condition_of(column, shape))
        for (table, column), shape in columns.items()
    ]
    return _holding(lambda _: held)


def hold_choices(app: str) -> migrations.RunPython:
    """Constrain columns with choices to their choices at this migration."""

    def rows(apps: Apps) -> Iterator[Condition]:
        for table, column, choices in choices_of(apps, app):
            listed = ", ".join("'" + word.replace("'", "''") + "'" for word in choices)
            yield table, f"{column}_known", f'"{column}" IN ({listed})'

    return _holding(rows)


def hold_names(app: str) -> migrations.RunPython:
    """Constrain names to those that a URL can contain (`names_of`)."""

    def rows(apps: Apps) -> Iterator[Condition]:
        for table, column in names_of(apps, app):
            yield table, f"{column}_named", f"\"{column}\" ~ '^[-a-zA-Z0-9_]+$'"

    return _holding(rows)


def hold_counts(app: str) -> migrations.RunPython:
    """Constrain whole numbers to 0 or more (`counts_of`): no round has a negative number."""

    def rows(apps: Apps) -> Iterator[Condition]:
        for table, column in counts_of(apps, app):
            yield table, f"{column}_counted", f'"{column}" >= 0'

    return _holding(rows)


def hold_condition(table: str, name: str, condition: str) -> migrations.RunPython:
    """Constrain the rows of one table by a condition."""
    return _holding(lambda _: [(table, name, condition)])


def within_reach(*columns: str) -> str:
    """Return the SQL condition that instants are in years that the pages can calculate with."""
    return " AND ".join(
        f'("{one}" IS NULL OR "{one}" >= \'1900-01-01\' AND "{one}" < \'9000-01-01\')'
        for one in columns
    )


def _holding(rows: Callable[[Apps], Iterable[Condition]]) -> migrations.RunPython:
    """Return an operation that adds conditions, and drops them in reverse."""

    def hold(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        with editor.connection.cursor() as cursor:
            for table, name, condition in rows(apps):
                _hold(cursor, table, name, condition)

    def drop(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        with editor.connection.cursor() as cursor:
            for table, name, _ in rows(apps):
                _drop(cursor, table, name)

    return migrations.RunPython(hold, drop)


def names_of(apps: Any, app: str) -> Iterator[tuple[str, str]]:
    """Yield (table, column) of the names in an app's tables that are parts of URLs."""
    for model in apps.get_app_config(app).get_models():
        for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's way to the fields
            if isinstance(field, models.SlugField) and field.column in ("name", "slug"):
                yield model._meta.db_table, field.column  # noqa: SLF001 - the same


def counts_of(apps: Any, app: str) -> Iterator[tuple[str, str]]:
    """Yield (table, column) of whole numbers whose field type allows negative values."""
    for model in apps.get_app_config(app).get_models():
        for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's way to the fields
            is_whole = field.get_internal_type() in WHOLE and not field.primary_key
            if is_whole and field.column not in SIGNED:
                yield model._meta.db_table, field.column  # noqa: SLF001 - the same


def choices_of(apps: Any, app: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (table, column, choices) of an app's columns with choices; a blank one may be empty."""
    for model in apps.get_app_config(app).get_models():
        for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's way to the fields
            choices = [value for value, _ in field.flatchoices]
            if choices and all(isinstance(value, str) for value in choices):
                empty = [""] if field.blank or field.default == "" else []
                known = [*empty, *map(str, choices)]
                yield model._meta.db_table, field.column, known  # noqa: SLF001 - the same


def _hold(cursor: CursorWrapper, table: str, name: str, condition: str) -> None:
    _drop(cursor, table, name)
    add = f'ALTER TABLE "{table}" ADD CONSTRAINT "{_name(table, name)}" CHECK ({condition})'
    try:
        with transaction.atomic(using=cursor.db.alias):
            cursor.execute(add)
    except IntegrityError:
        log.warning(
            "rows.unshaped",
            table=table,
            condition=_name(table, name),
            statement=add,
            hint="Some rows cannot be read by this code. Fix or delete them, then run the"
            " statement as the owner (see docs/operations.md).",
        )


def _drop(cursor: CursorWrapper, table: str, name: str) -> None:
    cursor.execute(f'ALTER TABLE "{table}" DROP CONSTRAINT IF EXISTS "{_name(table, name)}"')


def _name(table: str, name: str) -> str:
    # PostgreSQL cuts names at 63 bytes.
    return f"{table}_{name}"[-63:]
