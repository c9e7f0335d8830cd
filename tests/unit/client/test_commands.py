"""Test what every row of the table of commands has in common."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from evenshare.cli.arguments import CommandRow
from evenshare.cli.parser import parser
from evenshare.cli.table import COMMANDS
from evenshare.cli.terminal import Terminal

from .conftest import Run
from .portal import TOKEN, Portal

MORE = {
    "login": ("--username", "u", "--password", "p"),
    "job submit": ("--pool", "p", "--gpus", "1", "--", "true"),
    "notebook": ("--pool", "p"),
    "round verify": ("--pool", "p"),
    "shell": ("--pool", "p"),
    "statement verify": ("--from", "2030-01-01", "--to", "2030-01-02"),
}


def required(row: CommandRow) -> list[str]:
    """Return the shortest complete arguments of a command."""
    values = []
    for option in row.options:
        if not option.names[0].startswith("-") and option.settings.get("nargs") != "?":
            choices = option.settings.get("choices")
            values.append(choices[0] if choices else "12345678")
        elif option.settings.get("required"):
            values += [option.names[0], "1"]
    return values


LOCAL = {"completion"}  # without a call


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
class TestEveryCommand:
    def test_explains_its_call_and_sends_nothing(
        self, row: CommandRow, run: Run, portal: Portal
    ) -> None:
        if row.name in LOCAL:
            return
        done = run(*row.name.split(), "--explain", *required(row), *MORE.get(row.name, ()))
        assert (done.code, portal.seen) == (0, []), done.err
        assert done.out.startswith("curl -sS")
        assert f"{portal.url}/api/v1/" in done.out
        assert TOKEN not in done.out

    def test_takes_output_as_json(self, row: CommandRow) -> None:
        given = [*row.name.split(), "-o", "json", *required(row)]
        options: argparse.Namespace = parser().parse_args(given)
        assert options.output == "json"


class TestSubmittedFile:
    def test_file_is_sent_as_it_is_with_options_beside_it(
        self, run: Run, tmp_path: Path, portal: Portal
    ) -> None:
        text = "pool: local\ngpus: 2\ncommand: [true]  # é\n"
        (tmp_path / "job.yaml").write_text(text)
        submit = ("job", "submit", "-f", str(tmp_path / "job.yaml"), "--gpus", "3", "--explain")
        bodies = [run(*submit, "-o", "json", *more).json["body"] for more in ((), ("--", "ls"))]
        assert bodies == [
            {"yaml": text, "gpus": 3},
            {"yaml": text, "gpus": 3, "command": ["ls"]},
        ]
        assert portal.seen == []

    @pytest.mark.parametrize("data", [None, b"\xff", b"#" * (2**20 + 1)])
    def test_unreadable_file_is_refused_without_request(
        self, data: bytes | None, run: Run, tmp_path: Path, portal: Portal
    ) -> None:
        if data is not None:
            (tmp_path / "job.yaml").write_bytes(data)
        done = run("job", "submit", "-f", str(tmp_path / "job.yaml"))
        assert (done.code, done.out) == (2, "")
        assert str(tmp_path / "job.yaml") in done.err
        assert portal.seen == []


class TestProgress:
    @pytest.mark.parametrize("watched", [True, False])
    def test_is_printed_only_on_terminal(self, watched: bool) -> None:
        out, err = io.StringIO(), io.StringIO()
        err.isatty = lambda: watched  # type: ignore[method-assign]  # a terminal
        Terminal(out, err, {"TERM": "dumb"}).step("running")
        assert (out.getvalue(), err.getvalue()) == ("", "running\n" if watched else "")
