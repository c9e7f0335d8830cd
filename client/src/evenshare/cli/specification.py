"""The specification of `evenshare job submit`: options, or a YAML file and options over it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenshare.errors import UsageError

from .job_fields import COMMAND, JOB_FIELDS, JobField

STANDARD_INPUT = "-"
# The portal refuses longer texts; more is not read, whatever the file is.
LARGEST_BYTES = 2**20


def specification(options: argparse.Namespace) -> dict[str, Any]:
    """Return the body of a submission.

    The portal parses a file's YAML, and its fields yield to the options. Raises UsageError.
    """
    body = {field.name: _value(options, field) for field in JOB_FIELDS if field.option}
    given = {name: value for name, value in body.items() if value not in (None, [], {})}
    if options.file is not None:
        return {"yaml": file_text(options.file), **given}
    missing = [f.option for f in JOB_FIELDS if f.is_required and f.name not in given]
    if missing:
        raise UsageError(f"{' and '.join(missing)}: required without --file")
    if not options.command and "session" not in given:
        raise UsageError("put the job's program after --, as in: -- python train.py")
    return given


def file_text(path: str) -> str:
    """Return the text of a file, or of standard input if the path is a dash."""
    try:
        if path == STANDARD_INPUT:
            data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            raise UsageError(f"{path} is too long for a job's specification")
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None


def _value(options: argparse.Namespace, field: JobField) -> Any:
    """Return the command line's value of a field, or None if it is not given."""
    if field.option == COMMAND:
        return list(options.command)
    value = getattr(options, field.name)
    return _pairs(value, field.option) if field.shape in ("pairs", "lists") else value


def _pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair or pair.startswith("="):
            raise UsageError(f"{option} takes NAME=VALUE, not {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)
