"""Writes the texts of a job's fields and reasons for the client, which is installed separately.

`python -m scheduling.requests.client_table` prints client/src/evenshare/cli/job_fields.py, as `make
fields` writes it; a test compares the two.
"""

import sys
from collections.abc import Mapping

from evenshare_core.domain.reason_texts import GPU_STATES, LIMITS
from scheduling.requests.sweeps import SweepRequest
from tenants.input.requests import RequestField, request_fields

_HEAD = '''"""A job's fields and reason texts, written by `make fields`."""

from __future__ import annotations

from typing import NamedTuple


class JobField(NamedTuple):
    """A field of a job; `option` is empty if the command line cannot set it."""

    name: str
    option: str
    shape: str
    is_required: bool
    is_shown: bool
    about: str


# Marks the field that takes all words after `--`.
COMMAND = "--"
JOB_FIELDS = (
'''


def client_table() -> str:
    rows = "".join(map(_row, request_fields(SweepRequest).values()))
    return f"{_HEAD}{rows})\n{_texts('LIMITS', LIMITS)}{_texts('GPU_STATES', GPU_STATES)}"


def _texts(name: str, texts: Mapping[str, str]) -> str:
    rows = (f"    {_literal(str(code))}: {_literal(text)},\n" for code, text in texts.items())
    return f"{name} = {{\n{''.join(rows)}}}\n"


def _row(field: RequestField) -> str:
    shape = "signed" if (field.least or 0) < 0 else field.shape.value
    values = (field.name, field.option, shape, field.is_required, field.input.is_shown)
    # The output is formatted as ruff would, so that the format check passes.
    cells = [*(_literal(value) for value in values), _literal(field.description)]
    return "".join(("    JobField(\n", *(f"        {cell},\n" for cell in cells), "    ),\n"))


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    sys.stdout.write(client_table())
