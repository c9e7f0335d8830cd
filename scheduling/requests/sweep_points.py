"""Parses the array and the matrix of a sweep, and lists its points: one job for each.

Pure. `0-9%3` and `0-99:10` are written as for Slurm's `--array`; `matrix` lists values by
parameter, as in GitHub Actions.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from django.utils.translation import gettext as _

from scheduling.requests.process import read_environment
from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop, number

POINTS_MAX = 1000
INDEX_MAX = 999_999
# Combinations before `exclude`, and rows of `include` or `exclude`.
COMBINATIONS_MAX, ROWS_MAX = 10 * POINTS_MAX, 200
PARAMETERS_MAX = 20
VALUE_LETTERS = 200
# The name of the index in commands, and of its column among the parameters.
INDEX = "index"
INDEX_VARIABLE = "EVENSHARE_SWEEP_INDEX"

ARRAY_HINT = gettext_noop("Enter 0-9, 0-99:10 or 1,4,7; %3 at the end runs 3 at once.")
MATRIX_HINT = gettext_noop('List the values of each parameter: {"lr": ["0.1", "0.01"]}.')
ROW_HINT = gettext_noop(
    'Set a value for each parameter: {"lr": "0.1", "seed": "7"}, or lr=0.1,seed=7.'
)
TOO_MANY = gettext_noop("makes more than {most} jobs")
NOT_A_VALUE = gettext_noop("must be a number or a line of at most {most} characters")
_RULES = ("include", "exclude")

_ITEM = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_AT_ONCE = re.compile(r"[0-9]{1,9}")
_PLACEHOLDER = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")
# The end of a word that begins a placeholder.
_OPEN = re.compile(r"\{\{ *+\w*+ *+$")


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
        errors.add("array", _("has no whole number from 1 after %"), _(ARRAY_HINT))
        return ArraySpec()
    indices: set[int] = set()
    for item in listed.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            errors.add(
                "array", _("cannot be read at {item!r}").format(item=item[:40]), _(ARRAY_HINT)
            )
            return ArraySpec()
        first, last, step = match[1], match[2] or match[1], match[3] or "1"
        reason = _bad_range(int(first), int(last), int(step))
        if reason:
            errors.add(
                "array", _(reason).format(item=repr(item), most=number(INDEX_MAX)), _(ARRAY_HINT)
            )
            return ArraySpec()
        # A range is cut, so that a short text cannot fill the memory.
        indices.update(range(int(first), int(last) + 1, int(step))[: POINTS_MAX + 1])
        if len(indices) > POINTS_MAX:
            errors.add("array", _(TOO_MANY).format(most=number(POINTS_MAX)), code="too_large")
            return ArraySpec()
    return ArraySpec(tuple(sorted(indices)), at_once)


def _bad_range(first: int, last: int, step: int) -> str:
    if step < 1:
        return gettext_noop("has the step 0 in {item}")
    if last < first:
        return gettext_noop("ends before it starts in {item}")
    return gettext_noop("has an index above {most} in {item}") if last > INDEX_MAX else ""


def read_array_field(given: Mapping[str, object], errors: FieldErrors) -> str:
    """Read an array as text; a single whole number is an array of one job."""
    value = given.get("array", "")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        errors.add("array", _("must be a text"), _(ARRAY_HINT))
        return ""
    parse_array(value, errors)
    return value.replace(" ", "")


def read_matrix_field(
    given: Mapping[str, object], errors: FieldErrors
) -> dict[str, tuple[str, ...]]:
    """Read the values of each parameter: a list, or a text with commas between its values."""
    value = given.get("matrix", {})
    if not isinstance(value, Mapping):
        errors.add("matrix", _("must be an object of lists"), _(MATRIX_HINT))
        return {}
    if len(value) > PARAMETERS_MAX:
        errors.add(
            "matrix",
            _("has more than {most} parameters").format(most=PARAMETERS_MAX),
            code="too_long",
        )
        return {}
    read: dict[str, tuple[str, ...]] = {}
    for key, items in value.items():
        name = str(key)
        if _is_nested(name, items) or not _is_usable(name, "matrix", errors):
            continue
        values = _values(name, items, errors)
        if values:
            read[name] = values
    return read


def _is_usable(name: str, field: str, errors: FieldErrors) -> bool:
    """Check a parameter's name: it is also the name of a variable of the process."""
    own = FieldErrors()
    read_environment({"environment": {name: ""}}, own)
    if not own and name != INDEX:
        return True
    reason = _("is not a usable name of a parameter")
    hint = _("Use letters, digits and _; index is the job's number.")
    errors.add(f"{field}.{ascii(name)[1:-1][:80]}", reason, hint, "bad_text")
    return False


def _is_nested(name: str, items: object) -> bool:
    """Return whether an item of a matrix holds rules, as in GitHub Actions, and no values."""
    if name not in _RULES or not isinstance(items, list | tuple) or not items:
        return False
    return all(isinstance(one, Mapping) for one in items)


def read_rows_field(field: str) -> Callable[..., tuple[Mapping[str, str], ...]]:
    """Return the reader of `include` or `exclude`: of a request, or of its matrix."""

    def read(given: Mapping[str, object], errors: FieldErrors) -> tuple[Mapping[str, str], ...]:
        matrix = given.get("matrix")
        nested = matrix.get(field) if isinstance(matrix, Mapping) else None
        rows = given.get(field, ())
        if isinstance(nested, list | tuple) and _is_nested(field, nested):
            if rows:
                errors.add(field, _("is in the matrix too"), _("Give it once."))
            rows = nested
        if not isinstance(rows, list | tuple):
            errors.add(field, _("must be a list of objects"), _(ROW_HINT))
            return ()
        if len(rows) > ROWS_MAX:
            errors.add(
                field,
                _("has more than {most} items").format(most=ROWS_MAX),
                code="too_long",
            )
            return ()
        read = [_row(row, f"{field}[{place}]", errors) for place, row in enumerate(rows)]
        return tuple(row for row in read if row)

    return read


def _row(row: object, field: str, errors: FieldErrors) -> dict[str, str]:
    if isinstance(row, str):
        row = split_row(row)
    if not isinstance(row, Mapping) or not row:
        errors.add(field, _("must be an object of values"), _(ROW_HINT))
        return {}
    if len(row) > PARAMETERS_MAX:
        errors.add(
            field,
            _("has more than {most} parameters").format(most=PARAMETERS_MAX),
            code="too_long",
        )
        return {}
    read: dict[str, str] = {}
    for key, item in row.items():
        name, value = str(key), _value(item)
        if not _is_usable(name, field, errors):
            continue
        if _is_line(value):
            read[name] = value
        else:
            errors.add(f"{field}.{name}", _(NOT_A_VALUE).format(most=VALUE_LETTERS))
    return read


def split_row(text: str) -> dict[str, str] | None:
    """Return the values of a row written as lr=0.1,seed=7 or as a JSON object; None if invalid."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):
            row = json.loads(text)
            return row if isinstance(row, dict) else None
        return None
    pairs = [item.partition("=") for item in text.split(",")]
    row = {name.strip(): value.strip() for name, _, value in pairs}
    is_whole = all(equals for _, equals, _ in pairs) and len(row) == len(pairs)
    return row if is_whole else None


def joined_row(row: Mapping[str, object]) -> str:
    """Return the text that `split_row` splits into these values."""
    text = ",".join(f"{name}={value}" for name, value in row.items())
    return text if split_row(text) == row else json.dumps(row, ensure_ascii=False)


def _values(name: str, items: object, errors: FieldErrors) -> tuple[str, ...]:
    if isinstance(items, str):
        items = split_values(items)
    elif isinstance(items, int | float):
        items = [items]
    if not isinstance(items, list | tuple) or not items:
        errors.add(f"matrix.{name}", _("must be a list of values"), _(MATRIX_HINT))
        return ()
    if len(items) > POINTS_MAX:
        errors.add(f"matrix.{name}", _(TOO_MANY).format(most=number(POINTS_MAX)), code="too_large")
        return ()
    values = tuple(_value(item) for item in items)
    read = tuple(value for value in values if _is_line(value))
    if len(read) < len(values):
        index = next(place for place, value in enumerate(values) if not _is_line(value))
        errors.add(f"matrix.{name}[{index}]", _(NOT_A_VALUE).format(most=VALUE_LETTERS))
        return ()
    if len(set(read)) < len(read):
        errors.add(f"matrix.{name}", _("has a value twice"), _("List each value once."))
    return read


def _is_line(value: str | None) -> TypeGuard[str]:
    return value is not None and len(value) <= VALUE_LETTERS and value.isprintable()


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
    array: ArraySpec,
    matrix: Mapping[str, Sequence[str]],
    errors: FieldErrors,
    *,
    include: Sequence[Mapping[str, str]] = (),
    exclude: Sequence[Mapping[str, str]] = (),
) -> tuple[SweepPoint, ...]:
    """Return the points of a sweep: each combination of the matrix, once for each index.

    The last parameter changes fastest, then the index; rows that `include` adds follow. Without an
    array the index counts from 0. `include` and `exclude`: as `matrix_rows` uses them.
    """
    each = max(len(array.indices), 1)
    most = COMBINATIONS_MAX if exclude else POINTS_MAX // each
    count = 1
    for values in matrix.values():
        count *= len(values)
        if count > most:
            reason = (
                _("has more than {most} combinations").format(most=number(most))
                if exclude
                else _(TOO_MANY).format(most=number(POINTS_MAX))
            )
            errors.add("matrix", reason, code="too_large")
            return ()
    _check_rows(matrix, include, exclude, errors)
    if errors:
        return ()
    rows = matrix_rows(matrix, include, exclude)
    if not rows and matrix:
        errors.add("exclude", _("leaves no job"), _("Remove a rule."))
    if not rows and not array.indices:
        return ()
    if len(rows) * each > POINTS_MAX:
        errors.add(
            "matrix" if matrix else "include",
            _(TOO_MANY).format(most=number(POINTS_MAX)),
            code="too_large",
        )
        return ()
    if not array.indices:
        return tuple(SweepPoint(place, row) for place, row in enumerate(rows))
    return tuple(SweepPoint(index, row) for row in rows or ({},) for index in array.indices)


def _check_rows(
    matrix: Mapping[str, Sequence[str]],
    include: Sequence[Mapping[str, str]],
    exclude: Sequence[Mapping[str, str]],
    errors: FieldErrors,
) -> None:
    """Check that rules exclude parameters of the matrix, and that all parameters are few."""
    for place, row in enumerate(exclude):
        for name in sorted(row.keys() - matrix.keys()):
            hint = (
                _("Parameters: {names}.").format(names=", ".join(matrix))
                if matrix
                else _(MATRIX_HINT)
            )
            errors.add(f"exclude[{place}].{name}", _("is not in the matrix"), hint, "unknown")
    if len(set(matrix).union(*include)) > PARAMETERS_MAX:
        errors.add(
            "include",
            _("makes more than {most} parameters").format(most=PARAMETERS_MAX),
            code="too_long",
        )


def matrix_rows(
    matrix: Mapping[str, Sequence[str]],
    include: Sequence[Mapping[str, str]] = (),
    exclude: Sequence[Mapping[str, str]] = (),
) -> list[Mapping[str, str]]:
    """Return the rows of a matrix, as GitHub Actions expands it.

    A row of `exclude` removes the combinations that have all its values. A row of `include` then
    adds its values to each combination, unless it would change a value of the matrix. A row that
    fits no combination is a new one. It may change values of earlier rows of `include`.
    """
    combinations = itertools.product(*matrix.values()) if matrix else ()
    made = (dict(zip(matrix, values, strict=True)) for values in combinations)
    rows = [row for row in made if not any(rule.items() <= row.items() for rule in exclude)]
    added: list[Mapping[str, str]] = []
    for more in include:
        own = {name: value for name, value in more.items() if name in matrix}
        places = [place for place, row in enumerate(rows) if own.items() <= row.items()]
        for place in places:
            rows[place] |= more
        if not places:
            added.append(more)
    return [*rows, *added]


def joined_placeholders(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command with its placeholders in one word each; a shell splits `{{ lr }}`."""
    joined: list[str] = []
    for word in command:
        joined.append(word)
        for count in (2, 3):
            text = " ".join(joined[-count:])
            opened = _OPEN.search(joined[-count:][0])
            if opened and _PLACEHOLDER.match(text, opened.start()):
                joined[-count:] = [text]
                break
    return tuple(joined)


def filled_command(
    command: Sequence[str], point: SweepPoint, errors: FieldErrors
) -> tuple[str, ...]:
    """Return a command with the values of a point in place of `{{ lr }}` or `{{ index }}`."""
    values = {**point.parameters, INDEX: str(point.index)}
    hint = _("Parameters: {names}.").format(names=", ".join(values))

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            errors.add(
                "command",
                _("names the unknown parameter {parameter}").format(parameter=match[1][:80]),
                hint,
                "unknown",
            )
        return values.get(match[1], match[0])

    joined = joined_placeholders(command)
    if any(_OPEN.search(word) for word in joined):
        errors.add("command", _("has {{ without the name of a parameter and }}"), hint, "unknown")
    return tuple(_PLACEHOLDER.sub(filled, word) for word in joined)
