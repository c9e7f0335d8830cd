"""Options of trace formats, shared by `simulate` and `import_trace`."""

import argparse
from collections.abc import Sequence

from evenshare_core.cli.files import InputError
from evenshare_core.simulation.trace_formats import FIELDS, FORMS


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the format, the mapping of columns, and the set of jobs to read."""
    add = parser.add_argument
    forms = ", ".join(FORMS)
    add(
        "--format",
        choices=["auto", *FORMS],
        default="auto",
        metavar="FORMAT",
        help=f"of the trace: {forms}; by default what its beginning says",
    )
    add(
        "--map", nargs="+", action="extend", default=[], metavar="COLUMN=FIELD",
        help=f"what a column of the trace means; fields: {', '.join(FIELDS)}",
    )  # fmt: skip # rows of what belongs together
    add("--set", default="", metavar="NAME", help="the set of jobs, if the trace has several")


def read_mapping(texts: Sequence[str]) -> dict[str, str]:
    """Return the fields by column from the values of `--map`.

    Raises:
        InputError: a text is not COLUMN=FIELD, or repeats a column.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        column, sign, name = (part.strip() for part in text.rpartition("="))
        if not sign or not column:
            raise InputError(f"--map must be COLUMN=FIELD, not {text!r}")
        if column in pairs:
            raise InputError(f"--map names column {column!r} twice")
        pairs[column] = name
    return pairs
