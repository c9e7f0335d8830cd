"""Readers of the command and the environment of a job's process."""

import re
from collections.abc import Mapping

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors
from tenants.input.readers import NOT_TEXTS, text
from tenants.language import gettext_noop, number

KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
KIB = 1024
ARGUMENTS, ARGUMENT_BYTES, TOTAL_BYTES = 256, 32 * KIB, 256 * KIB
TOTAL_TEXT = gettext_noop("is longer than {most} bytes in total")
VARIABLES = 256
COMMAND_HINT = gettext_noop('Use a list of the program and its arguments: ["python", "train.py"].')

# Variables that control which code a program loads, or that the executor sets itself.
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


def read_command(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
    """Read a program and its arguments; they are never passed to a shell."""
    value = given.get("command", [])
    if not isinstance(value, list | tuple):
        errors.add("command", _(NOT_TEXTS), _(COMMAND_HINT))
        return ()
    if not value:
        if "command" in given:
            errors.add("command", _("is required"), _(COMMAND_HINT), "required")
        return ()
    if len(value) > ARGUMENTS:
        errors.add(
            "command",
            _("has more than {most} items").format(most=ARGUMENTS),
            code="too_long",
        )
        return ()
    read = [
        text(item, f"command[{i}]", errors, most_bytes=ARGUMENT_BYTES)
        for i, item in enumerate(value)
    ]
    items = tuple(item for item in read if item is not None)
    if read[0] is not None and not read[0].strip():
        errors.add("command[0]", _("has no program"), _(COMMAND_HINT))
    if sum(len(item.encode()) for item in items) > TOTAL_BYTES:
        errors.add("command", _(TOTAL_TEXT).format(most=number(TOTAL_BYTES)), code="too_long")
    return items


def read_environment(given: Mapping[str, object], errors: FieldErrors) -> dict[str, str]:
    """Read variables for the job's process; refuse variables that change how programs load."""
    value = given.get("environment", {})
    if not isinstance(value, Mapping):
        errors.add("environment", _("must be an object of strings"), _('Use {"SEED": "1"}.'))
        return {}
    if len(value) > VARIABLES:
        errors.add(
            "environment",
            _("has more than {most} variables").format(most=VARIABLES),
            code="too_long",
        )
        return {}
    read: dict[str, str] = {}
    for key, item in value.items():
        place = f"environment.{_shown(key)}"
        if not isinstance(key, str) or not KEY.fullmatch(key):
            hint = _("At most 128 letters, digits and _, not starting with a digit.")
            errors.add(place, _("is not a usable name"), hint, "bad_text")
        elif key.upper() in DENIED or key.upper().startswith(DENIED_STARTS):
            errors.add(place, _("may not be set by a job"), _("The executor sets it."), "refused")
        elif (usable := text(item, place, errors, most_bytes=ARGUMENT_BYTES)) is not None:
            read[key] = usable
    if sum(len(key) + len(item.encode()) for key, item in read.items()) > TOTAL_BYTES:
        errors.add("environment", _(TOTAL_TEXT).format(most=number(TOTAL_BYTES)), code="too_long")
    return read


def _shown(key: object) -> str:
    """Return a key for an error message: short, printable, without lone surrogates."""
    return ascii(key).strip("'")[:80]
