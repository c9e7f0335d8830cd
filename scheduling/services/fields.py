"""The values of a specification, one reader per kind. Each notes what is wrong; none raises."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,63}")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
CREDITS = re.compile(r"[0-9]{1,14}(\.[0-9]{1,6})?")

KIB = 1024
ARGUMENTS, ARGUMENT_BYTES, TOTAL_BYTES = 256, 32 * KIB, 256 * KIB
VARIABLES = 256
FINDINGS = 100
PLAIN_CONTROLS = frozenset("\t\n")

# Variables that decide what a program loads, or that the executor sets itself.
DENIED_STARTS = (
    *("LD_", "DYLD_", "PYTHON", "SLURM_", "SBATCH_", "EVENSHARE_", "BASH_FUNC_", "MALLOC_"),
    *("GCONV_", "PERL5", "RUBY", "NODE_", "CUDA_VISIBLE", "NVIDIA_VISIBLE"),
)
DENIED = frozenset(
    {
        *("PATH", "HOME", "IFS", "ENV", "BASH_ENV", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4"),
        *("CDPATH", "GLOBIGNORE", "PROMPT_COMMAND", "USER", "LOGNAME", "PWD", "OLDPWD", "TMPDIR"),
        *("LOCPATH", "NLSPATH", "JAVA_TOOL_OPTIONS", "HOSTALIASES", "RES_OPTIONS"),
    }
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field, and what to do. `code` names the kind for programs."""

    field: str
    reason: str
    hint: str = ""
    code: str = "invalid"


class SpecError(Exception):
    """A specification cannot be submitted; `errors` are all findings, never empty."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field} {error.reason}" for error in errors))
        self.errors = tuple(errors)


@dataclass
class Findings:
    """Collects what is wrong; at most `FINDINGS`, so that a hostile list stays short."""

    errors: list[FieldError] = field(default_factory=list)

    def add(self, name: str, reason: str, hint: str = "", code: str = "invalid") -> None:
        """Note one finding."""
        if len(self.errors) < FINDINGS:
            self.errors.append(FieldError(name, reason, hint, code))

    def raise_any(self, order: Sequence[str]) -> None:
        """Raise what was found, in the order of fields.

        Raises:
            SpecError: something was found.
        """
        if not self.errors:
            return
        places = {name: place for place, name in enumerate(order)}
        last = len(places)
        raise SpecError(
            sorted(self.errors, key=lambda e: places.get(re.split(r"[.\[]", e.field)[0], last))
        )


def one(name: str, reason: str, hint: str = "", code: str = "invalid") -> list[FieldError]:
    """Return a single finding as a list."""
    return [FieldError(name, reason, hint, code)]


def whole(
    given: Mapping[str, object],
    name: str,
    found: Findings,
    *,
    least: int,
    most: int = 1_000_000,
    required: bool = False,
) -> int | None:
    """Read a whole number within [least, most]; None where it is absent or wrong."""
    if name not in given:
        if required:
            found.add(name, "is required", f"Write a whole number from {least} on.", "required")
        return None
    value = given[name]
    # bool is an int in Python, and `true` GPUs are nobody's wish.
    if not isinstance(value, int) or isinstance(value, bool):
        found.add(name, "must be a whole number", "Write it without quotes and decimals.")
        return None
    if not least <= value <= most:
        found.add(name, f"must be from {least} to {most}", code="out_of_range")
        return None
    return value


def text(value: object, name: str, found: Findings, *, most_bytes: int) -> str | None:
    """Read a text that any program and Postgres can take; None where it is wrong."""
    if not isinstance(value, str):
        found.add(name, "must be a text", "Write it in quotes.")
        return None
    if len(value) > most_bytes:  # before anything that takes time with its length
        found.add(name, f"is longer than {most_bytes:,} bytes", code="too_long")
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        found.add(name, "has half a surrogate pair", "Write it in valid Unicode.", "bad_text")
        return None
    if size > most_bytes:
        found.add(name, f"is longer than {most_bytes:,} bytes", code="too_long")
        return None
    for sign in value:
        if sign not in PLAIN_CONTROLS and unicodedata.category(sign) == "Cc":
            reason = f"has the control character U+{ord(sign):04X}"
            found.add(name, reason, "Only tab and newline are allowed.", "bad_text")
            return None
    return value


def texts(given: Mapping[str, object], name: str, found: Findings, *, most: int) -> tuple[str, ...]:
    """Read a list of short names; empty where it is absent or wrong."""
    value = given.get(name, [])
    if not isinstance(value, list | tuple):
        found.add(name, "must be a list of texts", 'Write ["a", "b"].')
        return ()
    if len(value) > most:
        found.add(name, f"has more than {most} items", code="too_long")
        return ()
    read = [text(item, f"{name}[{i}]", found, most_bytes=64) for i, item in enumerate(value)]
    return tuple(item for item in read if item is not None)


def command(given: Mapping[str, object], found: Findings, *, required: bool) -> tuple[str, ...]:
    """Read a program and its arguments; no shell ever sees them."""
    value = given.get("command", [])
    hint = 'Write the program and its arguments: ["python", "train.py"].'
    if not isinstance(value, list | tuple):
        found.add("command", "must be a list of texts", hint)
        return ()
    if not value:
        if required or "command" in given:
            found.add("command", "is required", hint, "required")
        return ()
    if len(value) > ARGUMENTS:
        found.add("command", f"has more than {ARGUMENTS} items", code="too_long")
        return ()
    read = [
        text(item, f"command[{i}]", found, most_bytes=ARGUMENT_BYTES)
        for i, item in enumerate(value)
    ]
    items = tuple(item for item in read if item is not None)
    if read[0] is not None and not read[0].strip():
        found.add("command[0]", "names no program", hint)
    if sum(len(item.encode()) for item in items) > TOTAL_BYTES:
        found.add("command", f"is longer than {TOTAL_BYTES:,} bytes in all", code="too_long")
    return items


def name(given: Mapping[str, object], found: Findings) -> str:
    """Read a job's name; empty where it is absent or wrong."""
    if "name" not in given:
        return ""
    value = given["name"]
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    hint = "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends."
    found.add("name", "is not a usable name", hint, "bad_text")
    return ""


def credits(given: Mapping[str, object], name: str, found: Findings) -> Decimal | None:  # noqa: A001 - the unit's word
    """Read an amount of credits with at most six decimals; None where it is absent or wrong."""
    if name not in given:
        return None
    value = given[name]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**14:
        return Decimal(value)
    # An exponent is refused before it is written out: 1e999999999 would fill the memory.
    if isinstance(value, Decimal) and value.is_finite() and -7 < value.adjusted() < 14:
        value = format(value, "f")
    if isinstance(value, str) and CREDITS.fullmatch(value):
        return Decimal(value)
    hint = 'Write credits per GPU-hour as a text, such as "0.25", with at most six decimals.'
    found.add(name, "must be an amount of 0 or more", hint)
    return None


def environment(given: Mapping[str, object], found: Findings) -> dict[str, str]:
    """Read variables for the job's process; what would change how programs load is refused."""
    value = given.get("environment", {})
    if not isinstance(value, Mapping):
        found.add("environment", "must be an object of texts", 'Write {"SEED": "1"}.')
        return {}
    if len(value) > VARIABLES:
        found.add("environment", f"has more than {VARIABLES} variables", code="too_long")
        return {}
    read: dict[str, str] = {}
    for key, item in value.items():
        place = f"environment.{_shown(key)}"
        if not isinstance(key, str) or not KEY.fullmatch(key):
            hint = "Letters, digits and _, at most 128, not beginning with a digit."
            found.add(place, "is not a usable name", hint, "bad_text")
        elif key.upper() in DENIED or key.upper().startswith(DENIED_STARTS):
            found.add(place, "may not be set by a job", "The executor decides it.", "refused")
        elif (usable := text(item, place, found, most_bytes=ARGUMENT_BYTES)) is not None:
            read[key] = usable
    if sum(len(key) + len(item.encode()) for key, item in read.items()) > TOTAL_BYTES:
        found.add("environment", f"is longer than {TOTAL_BYTES:,} bytes in all", code="too_long")
    return read


def _shown(key: object) -> str:
    """A key as an error message may repeat it: short, printable, without half surrogates."""
    return ascii(key).strip("'")[:80]
