"""A job's specification as YAML: written for people, and parsed as untrusted input.

Only the syntax of a specification is accepted: fields, lists, texts and numbers. Anchors, aliases,
tags, directives and duplicate fields are refused. So the text has no hidden meaning, and its memory
use is bounded by its length.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from scheduling.requests.sweeps import SweepRequest
from tenants.input.requests import Shape, request_fields
from tenants.input.yaml_lines import editor_lines, error_line

MOST_BYTES = 128 * 1024
MOST_NODES = 2000
DEPTH = 6
_REQUEST = request_fields(SweepRequest)
# The order for readers; the other fields follow in the order of the request.
_AHEAD = ("name", "tenant", "pool", "gpus", "profile", "gpu_types", "max_price")
ORDER = (*_AHEAD, *(name for name in _REQUEST if name not in _AHEAD))
# In these fields a plain 1, true or 2.0 is text, as typed.
TEXTS = frozenset(
    name
    for name, field in _REQUEST.items()
    if field.shape in (Shape.TEXT, Shape.TEXTS, Shape.PAIRS, Shape.LISTS, Shape.ROWS)
)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}")
_CONSTANTS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_PLAIN = re.compile(r"[A-Za-z_][-A-Za-z0-9_./]*")
_NOT_PLAIN = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# Valid in JSON, but refused by YAML or read as line breaks.
_HIDDEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class YamlError(Exception):
    """The text cannot be read; `line` counts from 1, or is None."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlSpec:
    """The fields of a text, and the line of each."""

    values: dict[str, object]
    lines: dict[str, int] = field(default_factory=dict)


def read_yaml(text: str) -> YamlSpec:
    """Return the fields of a YAML text.

    Raises:
        YamlError: it is not YAML, or uses more than the accepted syntax.
    """
    if len(text) > MOST_BYTES or len(text.encode(errors="replace")) > MOST_BYTES:
        raise YamlError(f"It is longer than {MOST_BYTES // 1024} KiB.")
    try:
        return _YamlReader(text).document()
    except yaml.MarkedYAMLError as error:
        problem = str(error.problem or "it is not YAML")
        line = error_line(text, error)
        raise YamlError(f"{problem[:1].upper()}{problem[1:]}.", line) from None
    except (yaml.YAMLError, UnicodeError) as error:
        place = None if isinstance(error, UnicodeError) else error_line(text, error)
        raise YamlError("It contains a character that YAML does not allow.", place) from None


class _YamlReader:
    """Builds values from YAML's events, so that every value is checked before it is built."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self._nodes = 0
        self._lines = editor_lines(text)

    def document(self) -> YamlSpec:
        next(self._events)  # skip the start of the stream
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return YamlSpec({})
        if start.version or start.tags:
            raise self._refused(start, "Lines that start with % are not accepted.")
        opening = self._next()
        if isinstance(opening, yaml.ScalarEvent) and opening.value in ("", "null", "~"):
            return YamlSpec({})
        if not isinstance(opening, yaml.MappingStartEvent):
            raise self._refused(opening, "Use one field per line, such as gpus: 2.")
        lines: dict[str, int] = {}
        values = self._mapping(1, lines=lines)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._refused(after, "Submit one job: a second document starts here.")
        return YamlSpec(values, lines)

    def _next(self) -> Any:
        event = next(self._events)
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self._refused(event, f"It has more than {MOST_NODES:,} values.")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._refused(
                event, "Anchors and aliases (& and *) are not accepted: write the value out."
            )
        if getattr(event, "tag", None):
            raise self._refused(event, "Tags (!) are not accepted: use only the value.")
        return event

    def _mapping(
        self, depth: int, *, texts: bool = False, lines: dict[str, int] | None = None
    ) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refused(event, "A field's name must be a string.")
            key = event.value
            if key in values:
                raise self._refused(event, f"{key[:80]} is given twice.")
            literal = texts or (depth == 1 and key in TEXTS)
            values[key] = self._value(self._next(), depth, texts=literal)
            if lines is not None:
                lines[key] = self._line(event) or 1
                if _is_null(values[key]):
                    # a field without a value counts as missing, even if values are texts
                    values[key] = None
        return values

    def _value(self, event: Any, depth: int, *, texts: bool) -> object:
        if isinstance(event, yaml.ScalarEvent):
            return event.value if texts or not event.implicit[0] else _resolved(event.value)
        if depth >= DEPTH:
            raise self._refused(event, "It is nested too deep.")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth + 1, texts=texts)
        items: list[object] = []
        while not isinstance(item := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(item, depth + 1, texts=texts))
        return items

    def _refused(self, event: Any, reason: str) -> YamlError:
        return YamlError(reason, self._line(event))

    def _line(self, event: Any) -> int | None:
        mark = getattr(event, "start_mark", None)
        return self._lines[mark.line] if mark else None


def _is_null(value: object) -> bool:
    return isinstance(value, str) and value in ("", "~", "null")


def _resolved(text: str) -> object:
    """Return the value of a plain scalar: no octal, no date, no float; decimals stay exact."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return Decimal(text) if _DECIMAL.fullmatch(text) else text


def write_yaml(spec: Mapping[str, object]) -> tuple[str, dict[str, int]]:
    """Return a specification as YAML, and the line of each field. Absent fields have no line."""
    rows: list[str] = []
    lines: dict[str, int] = {}
    for name in (*ORDER, *sorted(set(spec) - set(ORDER))):
        value = spec.get(name)
        if value is None or (isinstance(value, list | tuple | dict) and not value):
            continue
        lines[name] = len(rows) + 1
        if isinstance(value, Mapping):
            rows.append(f"{_scalar(name)}:")
            rows += [f"  {_scalar(key)}: {_quoted(item)}" for key, item in value.items()]
        else:
            rows.append(f"{_scalar(name)}: {_shown(value)}")
    return "\n".join(rows) + "\n", lines


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_quoted(item) for item in value)}]"
    if isinstance(value, Decimal):
        return _quoted(format(value, "f"))
    return _scalar(value) if isinstance(value, str) else _quoted(value)


def _scalar(text: str) -> str:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN
    return text if is_plain else _quoted(text)


def _quoted(value: object) -> str:
    """Return a value as JSON that is also YAML: characters that YAML refuses are escaped."""
    written = json.dumps(value, ensure_ascii=False, default=str)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", written)
