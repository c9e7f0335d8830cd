"""Parses the array and the matrix of a sweep, and lists its points: one job for each.

Pure. `0-9%3` and `0-99:10` are written as for Slurm's `--array`; `matrix` lists values by
parameter, as in GitHub Actions.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from scheduling.requests.process import read_environment
from tenants.input.errors import FieldErrors

POINTS_MAX = 1000
INDEX_MAX = 999_999
PARAMETERS_MAX = 20
VALUE_LETTERS = 200
# The name of the index in commands, and of its column among the parameters.
INDEX = "index"
INDEX_VARIABLE = "EVENSHARE_SWEEP_INDEX"

ARRAY_HINT = "Write 0-9, 0-99:10 or 1,4,7; %3 at the end runs 3 at once."
MATRIX_HINT = 'List the values of each parameter: {"lr": ["0.1", "0.01"]}.'
TOO_MANY = f"makes more than {POINTS_MAX:,} jobs"

_ITEM = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_AT_ONCE = re.compile(r"[0-9]{1,9}")
_PLACEHOLDER = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")


class ArraySpec(NamedTuple):
    """The indices of an array, ascending and unique; `at_once` is None without a limit."""

    indices: tuple[int, ...] = ()
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The index that a job of a sweep sees, and its parameters."""

    index: int
    parameters: Mapping[str, str]


def parse_array(text: str, errors: FieldErrors) -> ArraySpec:
    """Return the array that a text describes; an empty one if the text is empty or invalid."""
    listed, percent, limit = text.replace(" ", "").partition("%")
    if not text.strip():
        return ArraySpec()
    at_once = int(limit) if percent and _AT_ONCE.fullmatch(limit) else None
    if percent and not at_once:
        errors.add("array", "has no whole number from 1 after %", ARRAY_HINT)
        return ArraySpec()
    indices: set[int] = set()
    for item in listed.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            errors.add("array", f"cannot be read at {item[:40]!r}", ARRAY_HINT)
            return ArraySpec()
        first, last, step = match[1], match[2] or match[1], match[3] or "1"
        reason = _bad_range(int(first), int(last), int(step))
        if reason:
            errors.add("array", f"{reason} in {item!r}", ARRAY_HINT)
            return ArraySpec()
        # A range is cut, so that a short text cannot fill the memory.
        indices.update(range(int(first), int(last) + 1, int(step))[: POINTS_MAX + 1])
        if len(indices) > POINTS_MAX:
            errors.add("array", TOO_MANY, code="too_large")
            return ArraySpec()
    return ArraySpec(tuple(sorted(indices)), at_once)


def _bad_range(first: int, last: int, step: int) -> str:
    if step < 1:
        return "has the step 0"
    if last < first:
        return "ends before it starts"
    return f"has an index above {INDEX_MAX:,}" if last > INDEX_MAX else ""


def read_array_field(given: Mapping[str, object], errors: FieldErrors) -> str:
    """Read an array as text; a single whole number is an array of one job."""
    value = given.get("array", "")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        errors.add("array", "must be a text", ARRAY_HINT)
        return ""
    parse_array(value, errors)
    return value.replace(" ", "")


def read_matrix_field(
    given: Mapping[str, object], errors: FieldErrors
) -> dict[str, tuple[str, ...]]:
    """Read the values of each parameter: a list, or a text with commas between its values."""
    value = given.get("matrix", {})
    if not isinstance(value, Mapping):
        errors.add("matrix", "must be an object of lists", MATRIX_HINT)
        return {}
    if len(value) > PARAMETERS_MAX:
        errors.add("matrix", f"has more than {PARAMETERS_MAX} parameters", code="too_long")
        return {}
    read: dict[str, tuple[str, ...]] = {}
    for key, items in value.items():
        name = str(key)
        # Parameters are also variables of the process, so their names follow the same rules.
        own = FieldErrors()
        read_environment({"environment": {name: ""}}, own)
        if own or name == INDEX:
            reason = "is not a usable name of a parameter"
            hint = "Use letters, digits and _; index is the job's number."
            errors.add(f"matrix.{ascii(name)[1:-1][:80]}", reason, hint, "bad_text")
            continue
        values = _values(name, items, errors)
        if values:
            read[name] = values
    return read


def _values(name: str, items: object, errors: FieldErrors) -> tuple[str, ...]:
    if isinstance(items, str):
        items = split_values(items)
    elif isinstance(items, int | float):
        items = [items]
    if not isinstance(items, list | tuple) or not items:
        errors.add(f"matrix.{name}", "must be a list of values", MATRIX_HINT)
        return ()
    if len(items) > POINTS_MAX:
        errors.add(f"matrix.{name}", TOO_MANY, code="too_large")
        return ()
    values = tuple(_value(item) for item in items)
    for index, value in enumerate(values):
        if value is None or len(value) > VALUE_LETTERS or not value.isprintable():
            reason = f"must be a number or a line of at most {VALUE_LETTERS} characters"
            errors.add(f"matrix.{name}[{index}]", reason)
            return ()
    read = tuple(value for value in values if value is not None)
    if len(set(read)) < len(read):
        errors.add(f"matrix.{name}", "has a value twice", "Write each value once.")
    return read


def split_values(text: str) -> list[object]:
    """Split a text at its commas; a list in JSON can have values with commas."""
    if text.lstrip()[:1] == "[":
        with suppress(ValueError, RecursionError):  # the latter: brackets nested too deeply
            listed = json.loads(text)
            return listed if isinstance(listed, list) else [text]
    return [item.strip() for item in text.split(",")]


def joined_values(values: Sequence[object]) -> str:
    """Return the text that `split_values` splits into these values."""
    text = ",".join(map(str, values))
    is_plain = split_values(text) == list(values)
    return text if is_plain else json.dumps(list(values), ensure_ascii=False)


def _value(item: object) -> str | None:
    """Return a value as text, written as in JSON; None if it is neither a text nor a number."""
    if isinstance(item, str):
        return item
    return json.dumps(item) if isinstance(item, bool | int | float) else None


def sweep_points(
    array: ArraySpec, matrix: Mapping[str, Sequence[str]], errors: FieldErrors
) -> tuple[SweepPoint, ...]:
    """Return the points of a sweep: each combination of the matrix, once for each index.

    The last parameter changes fastest, then the index. Without an array the index counts from 0.
    """
    count = max(len(array.indices), 1)
    for values in matrix.values():
        count *= len(values)
        if count > POINTS_MAX:
            errors.add("matrix" if matrix else "array", TOO_MANY, code="too_large")
            return ()
    rows = [
        dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
    ]
    if not array.indices:
        return tuple(SweepPoint(place, row) for place, row in enumerate(rows)) if matrix else ()
    return tuple(SweepPoint(index, row) for row in rows for index in array.indices)


def filled_command(
    command: Sequence[str], point: SweepPoint, errors: FieldErrors
) -> tuple[str, ...]:
    """Return a command with the values of a point in place of `{{ lr }}` or `{{ index }}`."""
    values = {**point.parameters, INDEX: str(point.index)}

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            hint = f"Parameters: {', '.join(values)}."
            errors.add("command", f"names the unknown parameter {match[1][:80]}", hint, "unknown")
        return values.get(match[1], match[0])

    return tuple(_PLACEHOLDER.sub(filled, word) for word in command)
