"""The submit form's fields, and their values in a job's request.

The fields come from `scheduling.requests.sweeps.SweepRequest`; the shape of a value decides its
input. A draft keeps every text as typed, so that invalid input is not lost.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.deadlines import DeadlineClass
from portal.common.forms import Field
from scheduling.requests.job_yaml import ORDER
from scheduling.requests.sweep_points import (
    joined_placeholders,
    joined_row,
    joined_values,
    split_row,
    split_values,
)
from scheduling.requests.sweeps import SweepRequest, is_sweep
from tenants.input.errors import FieldError
from tenants.input.requests import Shape, request_fields

MOST_CHARACTERS = 256 * 1024
_REQUEST = request_fields(SweepRequest)
# The page's URL already names the tenant.
TYPED = tuple(name for name in ORDER if name != "tenant")
# Fields with an input; errors of other fields are shown next to the YAML.
LABELED = tuple(name for name in TYPED if _REQUEST[name].input.label)
# Fields without an input; the form carries their values unchanged.
HIDDEN = tuple(name for name in TYPED if name not in LABELED)
CHOSEN = "gpu_types"  # input by check boxes
# Fields of sessions, which a site might not have.
_SESSION = ("session", "session_s", "session_idle_s", "session_shared")
# Always visible; placed by templates/jobs/_submit_form.html.
_PLACED = ("pool", "gpus", "command", "profile", "gpu_types", "name")
# Behind a summary that shows what is set: (id, summary, inputs). Other fields are in the last one.
_GROUPS = (
    ("price", gettext_noop("Price and value"), ("max_price", "utility")),
    (
        "deadlines",
        gettext_noop("Run time and deadline"),
        (
            *("duration_s", "estimate_s", "iterations", "stop_when"),
            *("job_class", "deadline", "deadline_steps"),
        ),
    ),
    (
        "resources",
        gettext_noop("Environment, CPUs and memory"),
        ("environment", "cpus", "memory_mb"),
    ),
    ("session", gettext_noop("Shell or notebook"), _SESSION),
    ("many", gettext_noop("Sweep"), ("array", "matrix", "include", "exclude", "at_once")),
    ("order", gettext_noop("Order"), ("held", "priority", "not_before", "after_ok", "after_any")),
    ("notes", gettext_noop("Tags and comment"), ("tags",)),
)
# For each field, its options with their texts; the empty option means no choice.
_CHOICES = {
    "job_class": {
        "": gettext_noop("default: strict with a deadline, else best effort"),
        DeadlineClass.BEST_EFFORT.value: gettext_noop("best effort: no deadline"),
        DeadlineClass.STRICT.value: gettext_noop("strict: no value after its deadline"),
        DeadlineClass.SOFT.value: gettext_noop("soft: fewer points after its deadline"),
    },
    "session": {
        "": gettext_noop("none: the job runs its command"),
        "shell": gettext_noop("a terminal"),
        "notebook": gettext_noop("a notebook"),
    },
}
_KINDS = {
    Shape.FLAG: "check",
    Shape.ROWS: "lines",
    Shape.WHOLE: "numeric",
    Shape.AMOUNT: "decimal",
    Shape.TEXTS: "lines",
    Shape.PAIRS: "lines",
    Shape.LISTS: "lines",
}
# Lists that are one line of text.
_LINES = {"tags": "text"}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
# The errors of `shlex.split`.
_SPLIT_ERRORS = {
    "No closing quotation": gettext_noop("no closing quotation"),
    "No escaped character": gettext_noop("no escaped character"),
}
# The text of a checked box.
_CHECKED = "true"
# More of a set value is not repeated in a summary.
_SUMMARY_LETTERS = 40


class Draft(Mapping[str, Any]):
    """The form's fields as typed; a field that was not sent is empty."""

    def __init__(self, typed: Mapping[str, Any] | None = None, **more: Any) -> None:
        given = {**(typed or {}), **more}
        self._typed: dict[str, Any] = {name: given.get(name, "") for name in TYPED}
        self._typed[CHOSEN] = tuple(given.get(CHOSEN, ()))

    def __getitem__(self, name: str) -> Any:
        return self._typed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._typed)

    def __len__(self) -> int:
        return len(self._typed)


@dataclass(frozen=True, slots=True)
class SubmitField(Field):
    """An input of the form, as templates/jobs/_submit_field.html draws it."""

    example: str = ""
    errors: Sequence[str] = ()
    is_signed: bool = False


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Inputs behind a summary, as templates/jobs/_submit_form.html draws them."""

    id: str
    summary: str
    fields: tuple[SubmitField, ...]
    is_open: bool

    @property
    def set_text(self) -> str:
        """Return the values that are set, such as "Tags: a b, Priority: 5"."""
        return ", ".join(_set_text(field) for field in self.fields if field.value)


def _set_text(field: SubmitField) -> str:
    if field.kind == "check":
        return field.label
    value = " ".join(field.value.split())
    more = "…" if len(value) > _SUMMARY_LETTERS else ""
    return f"{field.label}: {value[:_SUMMARY_LETTERS]}{more}"


def submit_fields(
    draft: Draft, errors: Mapping[str, Sequence[str]], *, is_simulated: bool, has_sessions: bool
) -> dict[str, SubmitField]:
    """Return the form's inputs by name.

    Inputs of sessions are left out if the site has no sessions and none of them has a value.
    """
    hints = {"command": _("Optional: jobs of this pool are simulated.")}
    shown = {}
    shows_session = has_sessions or any(draft[name] or errors.get(name) for name in _SESSION)
    for name in LABELED:
        if name in _SESSION and not shows_session:
            continue
        field, hint = _REQUEST[name], _(_REQUEST[name].hint)
        shown[name] = SubmitField(
            name=name,
            label=label_of(name),
            hint=hints.get(name, hint) if is_simulated else hint,
            unit=_(field.input.unit),
            example=field.input.example,
            kind="choice" if name in _CHOICES else _kind(name),
            required=field.is_required,
            value=draft[name],
            errors=errors.get(name, ()),
            choices=_choices(name, draft[name]),
            is_signed=(field.least or 0) < 0,
        )
    return shown


def label_of(name: str) -> str:
    """Return a field's label; empty if it has no input."""
    return _(_REQUEST[name].input.label) if name in LABELED else ""


def _kind(name: str) -> str:
    return _LINES.get(name) or _KINDS.get(_REQUEST[name].shape, "text")


def _choices(name: str, typed: str) -> tuple[tuple[str, str], ...]:
    """Return the options, and the YAML's value if it is not one of the options."""
    texts = {value: _(text) for value, text in _CHOICES.get(name, {}).items()}
    strange = {typed: typed} if texts and typed not in texts else {}
    return tuple({**texts, **strange}.items())


def field_groups(fields: Mapping[str, SubmitField], *, opened: Sequence[str]) -> list[FieldGroup]:
    """Return the groups of inputs, open if in `opened` or if an input has a value or an error."""
    groups = []
    last = _GROUPS[-1][0]
    named = {*_PLACED, *(name for *_group, names in _GROUPS for name in names)}
    rest = tuple(field for name, field in fields.items() if name not in named)
    for key, summary, names in _GROUPS:
        inputs = tuple(fields[name] for name in names if name in fields)
        inputs += rest if key == last else ()
        is_open = key in opened or any(field.value or field.errors for field in inputs)
        if inputs:
            groups.append(FieldGroup(key, _(summary), inputs, is_open))
    return groups


def draft_of(spec: Mapping[str, Any]) -> Draft:
    """Return the form's fields for a specification, as far as they can represent it."""
    typed: dict[str, Any] = {name: _written(name, spec.get(name)) for name in TYPED}
    return Draft(typed)


def draft_spec(draft: Draft) -> tuple[dict[str, object], list[FieldError]]:
    """Return the specification of the form, and an error for each field that cannot be read."""
    errors: list[FieldError] = []
    said = {name: _read(name, draft[name], errors) for name in TYPED}
    if isinstance(said["command"], list) and is_sweep(said):
        said["command"] = list(joined_placeholders(said["command"]))
    return {name: value for name, value in said.items() if value not in ("", [], {})}, errors


def _read(name: str, typed: Any, errors: list[FieldError]) -> object:
    if name == CHOSEN:
        return list(typed)
    read = _READERS.get(_REQUEST[name].shape)
    return typed.strip() if read is None else read(name, typed, errors)


def _is_too_long(name: str, text: str, errors: list[FieldError]) -> bool:
    is_long = len(text) > MOST_CHARACTERS
    if is_long:
        errors.append(FieldError(name, _("is longer than 256 KiB")))
    return is_long


def _rows(name: str, text: str, errors: list[FieldError]) -> list[object]:
    if _is_too_long(name, text, errors):
        return []
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    # Other text is unchanged, and is refused later with a reason.
    return [split_row(line) or line for line in lines]


def _written(name: str, value: Any) -> Any:
    if name == CHOSEN:
        return tuple(map(_text, value)) if isinstance(value, list | tuple) else ()
    return _WRITERS.get(_REQUEST[name].shape, _text)(value)


def _listed(row: object) -> object:
    return joined_values(row) if isinstance(row, list | tuple) else row


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, "")


def _whole(text: str) -> object:
    """Return a whole number. Other text is unchanged, and is refused later with a reason."""
    text = text.strip()
    return int(text) if _WHOLE.fullmatch(text) else text


def _joined(value: object) -> str:
    if isinstance(value, list | tuple):
        return shlex.join(_text(item) for item in value)
    return _text(value) if isinstance(value, str) else ""


def _split(name: str, text: str, errors: list[FieldError]) -> list[str]:
    """Split a text by the quoting rules of a shell, without any other shell syntax."""
    if _is_too_long(name, text, errors):
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        hint = _("Close the quote, or put a single quote into double quotes.")
        error_text = _(_SPLIT_ERRORS.get(str(error), str(error)))
        reason = _("cannot be split: {error}").format(error=error_text)
        errors.append(FieldError(name, reason, hint))
        return []


def _lines(variables: Mapping[Any, object]) -> str:
    return "\n".join(f"{key}={_line(_text(value))}" for key, value in variables.items())


def _line(value: str) -> str:
    """Return the value, as JSON if it is not a plain line of text."""
    needs = "\n" in value or "\r" in value or value[:1] == '"'
    return json.dumps(value, ensure_ascii=False) if needs else value


def _pairs(field: str, text: str, errors: list[FieldError]) -> dict[str, str]:
    variables: dict[str, str] = {}
    if _is_too_long(field, text, errors):
        return variables
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        place = f"{field}." + _("Line {number}").format(number=number)
        if not equals:
            errors.append(FieldError(place, _("has no ="), _("Enter one NAME=value per line.")))
        elif name.strip() in variables:
            reason = _("sets {name} again").format(name=name.strip()[:80])
            errors.append(FieldError(place, reason, _("Keep one of the two.")))
        else:
            variables[name.strip()] = _value(value)
    return variables


def _value(text: str) -> str:
    if text[:1] == '"':
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return value if isinstance(value, str) else text
    return text


def _lists(field: str, text: str, errors: list[FieldError]) -> dict[str, list[object]]:
    return {key: split_values(row) for key, row in _pairs(field, text, errors).items()}


_READERS: Mapping[Shape, Callable[[str, str, list[FieldError]], object]] = {
    Shape.WHOLE: lambda _, typed, __: _whole(typed),
    Shape.FLAG: lambda _, typed, __: typed == _CHECKED or typed,
    Shape.TEXTS: _split,
    Shape.PAIRS: _pairs,
    Shape.LISTS: _lists,
    Shape.ROWS: _rows,
}


def _rows_text(value: Any) -> str:
    rows = value if isinstance(value, list | tuple) else ()
    return "\n".join(joined_row(row) if isinstance(row, Mapping) else _text(row) for row in rows)


def _lists_text(value: Any) -> str:
    lists = value.items() if isinstance(value, Mapping) else ()
    return _lines({key: _listed(row) for key, row in lists})


_WRITERS: Mapping[Shape, Callable[[Any], str]] = {
    Shape.FLAG: lambda value: _CHECKED if value is True else "",
    Shape.TEXTS: _joined,
    Shape.PAIRS: lambda value: _lines(value) if isinstance(value, Mapping) else "",
    Shape.LISTS: _lists_text,
    Shape.ROWS: _rows_text,
}
