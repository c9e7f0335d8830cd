"""Writes the fields of a job's request as a table for the client, which is installed apart.

`python -m scheduling.requests.client_table` prints client/src/evenshare/cli/job_fields.py, as
`make fields` writes it; a test compares. Pure.
"""

from __future__ import annotations

import sys

from scheduling.requests.jobs import JobRequest
from tenants.input.requests import RequestField, request_fields

_HEAD = '''"""The fields of a job as the portal reads them, a copy made by `make fields`."""

from __future__ import annotations

from typing import NamedTuple


class JobField(NamedTuple):
    """One field of a job. `option` is empty where the command line does not ask for it."""

    name: str
    option: str
    shape: str
    is_required: bool
    is_shown: bool
    about: str


# What stands for an option where the words after it are the value.
COMMAND = "--"
JOB_FIELDS = (
'''


def client_table() -> str:
    return _HEAD + "".join(map(_row, request_fields(JobRequest).values())) + ")\n"


def _row(field: RequestField) -> str:
    values = (field.name, field.option, field.shape.value, field.is_required, field.input.is_shown)
    # As the formatter writes it, so that it may look at the file.
    cells = [*(_literal(value) for value in values), _literal(field.description)]
    return "".join(("    JobField(\n", *(f"        {cell},\n" for cell in cells), "    ),\n"))


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    sys.stdout.write(client_table())
