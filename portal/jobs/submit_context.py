"""The two sides of the submit page, a form and a YAML text, and the specification that they say.

Whichever side was edited last counts; the other follows. A draft keeps every text as it was
typed, so that nothing is lost by being wrong.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portal.jobs.submit_yaml import YamlError, read_yaml, write_yaml
from portal.site.submit_links import submit_command
from scheduling.models import Job
from tenants.input.errors import FieldError, InvalidInputError

FORM, YAML = "form", "yaml"
MOST_CHARACTERS = 256 * 1024
# Fields that the form has; what is wrong with another one stands beside the YAML.
LABELS = {
    "pool": "Pool",
    "name": "Name",
    "gpus": "GPUs, all at once",
    "profile": "Job type",
    "gpu_types": "GPU type",
    "max_price": "Highest price you accept",
    "command": "Command",
    "environment": "Environment",
    "duration_s": "Runs for",
}
_WHOLE = re.compile(r"[0-9]{1,18}")
_FIELD = re.compile(r"[.\[]")
_ITEM = re.compile(r"\[([0-9]{1,6})\]")


@dataclass(frozen=True, slots=True)
class Draft:
    """The form's fields as typed. `weight` has no field of its own, but is not lost."""

    pool: str = ""
    name: str = ""
    gpus: str = ""
    profile: str = ""
    gpu_types: tuple[str, ...] = ()
    max_price: str = ""
    command: str = ""
    environment: str = ""
    duration_s: str = ""
    weight: str = ""


@dataclass
class Sheet:
    """Both sides in step. `spec` is None where the counting side cannot be read.

    `errors` by field of the form, `beside` those of no such field; `lines`: field -> YAML line.
    """

    side: str
    draft: Draft
    text: str
    spec: dict[str, object] | None
    lines: dict[str, int] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    changed: str = ""

    def add(self, found: Sequence[FieldError], pools: Sequence[str] = ()) -> None:
        """Put findings beside the fields that they are about."""
        for error in found:
            name = _FIELD.split(error.field)[0]
            hint = error.hint
            if name == "pool" and pools:
                hint = f"There are: {', '.join(pools)}."
            if name in LABELS:
                words = f"{_subject(error.field, name)} {error.reason}. {hint}"
                self.errors.setdefault(name, []).append(words.strip())
            else:
                line = f"Line {self.lines[name]}: " if name in self.lines else ""
                words = f"{line}{error.field} {error.reason}. {hint}".strip()
                if words not in self.beside:
                    self.beside.append(words)

    def refuse(self, error: InvalidInputError, pools: Sequence[str] = ()) -> None:
        """Add a refusal's findings, but those about fields that could not be read anyway."""
        told = set(self.errors)
        self.add([one for one in error.errors if _FIELD.split(one.field)[0] not in told], pools)

    @property
    def wrong(self) -> int:
        """How many things stand in the way."""
        return sum(map(len, self.errors.values())) + len(self.beside)

    @property
    def hot(self) -> int | None:
        """The YAML line that followed the form."""
        return self.lines.get(self.changed) if self.side == FORM else None

    @property
    def rows(self) -> range:
        """The numbers of the text's lines."""
        return range(1, max(self.text.count("\n") + (not self.text.endswith("\n")), 1) + 1)

    @property
    def changed_label(self) -> str:
        """What the field that was changed is called."""
        return LABELS.get(self.changed, "")


def sheet_of_draft(draft: Draft, *, tenant: str, changed: str = "") -> Sheet:
    """Return both sides where the form counts."""
    spec, found = draft_spec(draft)
    text, lines = write_yaml({"tenant": tenant, **spec})
    sheet = Sheet(FORM, draft, text, spec, lines, changed=changed)
    sheet.add(found)
    return sheet


def sheet_of_text(text: str, before: Draft, *, tenant: str) -> Sheet:
    """Return both sides where the YAML counts; an unreadable one leaves the form as it was."""
    try:
        read = read_yaml(text)
    except YamlError as error:
        line = f"Line {error.line}: " if error.line else ""
        return Sheet(YAML, before, text, None, beside=[f"{line}{error.words}"])
    spec = dict(read.values)
    sheet = Sheet(YAML, draft_of(spec), text, spec, read.lines)
    named = spec.pop("tenant", None)
    if named not in (None, tenant):
        hint = f"This page submits for {tenant}: leave the line out."
        sheet.add([FieldError("tenant", "is another one", hint)])
    return sheet


def draft_of(spec: Mapping[str, Any]) -> Draft:
    """Return the form's fields for a specification, as far as they can say it."""
    environment = spec.get("environment")
    types = spec.get("gpu_types")
    return Draft(
        pool=_text(spec.get("pool")),
        name=_text(spec.get("name")),
        gpus=_text(spec.get("gpus")),
        profile=_text(spec.get("profile")),
        gpu_types=tuple(map(_text, types)) if isinstance(types, list | tuple) else (),
        max_price=_text(spec.get("max_price")),
        command=_command_text(spec.get("command")),
        environment=_environment_text(environment) if isinstance(environment, Mapping) else "",
        duration_s=_text(spec.get("duration_s")),
        weight=_text(spec.get("weight")),
    )


def draft_spec(draft: Draft) -> tuple[dict[str, object], list[FieldError]]:
    """Return the specification that the form says, and what cannot be read of it."""
    found: list[FieldError] = []
    said: dict[str, object] = {
        "name": draft.name.strip(),
        "pool": draft.pool,
        "gpus": _whole(draft.gpus),
        "profile": draft.profile.strip(),
        "gpu_types": list(draft.gpu_types),
        "max_price": draft.max_price.strip(),
        "command": _command(draft.command, found),
        "environment": _environment(draft.environment, found),
        "duration_s": _whole(draft.duration_s),
        "weight": _whole(draft.weight),
    }
    return {name: value for name, value in said.items() if value not in ("", [], {})}, found


def job_spec(job: Job, *, duration_s: int | None = None) -> dict[str, object]:
    """Return the specification of a job as it was submitted: all but its id and times."""
    price, profile = job.max_price, job.profile
    # All types that the job type can run on are what it accepts where none is named.
    is_any = profile is not None and set(job.gpu_types) == set(profile.speedups)
    said: dict[str, object] = {
        "name": job.name,
        "pool": job.pool.name,
        "gpus": job.gpus,
        "profile": None if profile is None else profile.name,
        "gpu_types": [] if is_any else list(job.gpu_types),
        "max_price": None if price is None else format(price.normalize(), "f"),
        "command": list(job.command),
        "environment": dict(job.environment),
        "weight": job.weight if job.weight != 1 else None,
        "duration_s": duration_s,
    }
    return {name: value for name, value in said.items() if value not in (None, [], {})}


def curl_words(spec: Mapping[str, Any], url: str) -> str:
    """Return the HTTP call that submits a specification."""
    body = json.dumps(spec, ensure_ascii=False)
    # Double quotes here, so that the shell puts the token in.
    bearer = '-H "Authorization: Bearer $EVENSHARE_TOKEN"'
    kind = "-H 'Content-Type: application/json'"
    return f"curl -sS {bearer} {kind} -d {shlex.quote(body)} {shlex.quote(url)}"


def spec_context(job: Job, url: str) -> dict[str, str]:
    """Return what templates/jobs/_job_spec.html reads: three ways to submit the same again."""
    spec = {"tenant": job.tenant.slug, **job_spec(job)}
    text, _ = write_yaml(spec)
    return {"spec_yaml": text, "spec_cli": submit_command(spec), "spec_curl": curl_words(spec, url)}


def _subject(place: str, name: str) -> str:
    """What a finding speaks of: the field itself, its third item, its variable."""
    rest = place.removeprefix(name)
    item = _ITEM.fullmatch(rest)
    return f"Item {int(item[1]) + 1}" if item else rest.lstrip(".") or "It"


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, "")


def _whole(text: str) -> object:
    """A whole number, or the text as it is, which is refused with a reason later."""
    text = text.strip()
    return int(text) if _WHOLE.fullmatch(text) else text


def _command_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return shlex.join(_text(item) for item in value)
    return _text(value) if isinstance(value, str) else ""


def _command(text: str, found: list[FieldError]) -> list[str]:
    """Split as a shell would, with its quotes, and nothing else of a shell."""
    if len(text) > MOST_CHARACTERS:
        found.append(FieldError("command", "is longer than 256 KiB"))
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        hint = "Close the quote, or put a lone quote into the other kind of quotes."
        found.append(FieldError("command", f"cannot be split: {str(error).lower()}", hint))
        return []


def _environment_text(variables: Mapping[Any, object]) -> str:
    return "\n".join(f"{key}={_line(_text(value))}" for key, value in variables.items())


def _line(value: str) -> str:
    """A value that would not survive as a line of its own is written as JSON."""
    needs = "\n" in value or "\r" in value or value[:1] == '"'
    return json.dumps(value, ensure_ascii=False) if needs else value


def _environment(text: str, found: list[FieldError]) -> dict[str, str]:
    variables: dict[str, str] = {}
    if len(text) > MOST_CHARACTERS:
        found.append(FieldError("environment", "is longer than 256 KiB"))
        return variables
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals:
            hint = "Write NAME=value, one a line."
            found.append(FieldError(f"environment.Line {number}", "has no =", hint))
        elif name.strip() in variables:
            place, reason = f"environment.Line {number}", f"sets {name.strip()[:80]} again"
            found.append(FieldError(place, reason, "Keep one of the two."))
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
