"""Test what every row of the table of commands has in common."""

from __future__ import annotations

import argparse

import pytest

from evenshare.cli.parser import parser
from evenshare.cli.table import COMMANDS, CommandRow

from .conftest import Run
from .portal import TOKEN, Portal

MORE = {
    "login": ("--username", "u", "--password", "p"),
    "job submit": ("--pool", "p", "--gpus", "1", "--", "true"),
    "round verify": ("--pool", "p"),
    "statement verify": ("--from", "2030-01-01", "--to", "2030-01-02"),
}


def required(row: CommandRow) -> list[str]:
    """Return the shortest complete arguments of a command."""
    values = []
    for option in row.options:
        if not option.names[0].startswith("-") and option.settings.get("nargs") != "?":
            values.append("12345678")
        elif option.settings.get("required"):
            values += [option.names[0], "1"]
    return values


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
class TestEveryCommand:
    def test_explains_its_call_and_sends_nothing(
        self, row: CommandRow, run: Run, portal: Portal
    ) -> None:
        done = run(*row.name.split(), "--explain", *required(row), *MORE.get(row.name, ()))
        assert (done.code, portal.seen) == (0, []), done.err
        assert done.out.startswith("curl -sS")
        assert f"{portal.url}/api/v1/" in done.out
        assert TOKEN not in done.out

    def test_takes_output_as_json(self, row: CommandRow) -> None:
        given = [*row.name.split(), "-o", "json", *required(row)]
        options: argparse.Namespace = parser().parse_args(given)
        assert options.output == "json"
