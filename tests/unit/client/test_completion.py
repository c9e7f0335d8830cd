"""Test completion in real shells, and its values from the portal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare.cli import completion
from evenshare.cli.api import Transport
from tests.tools import require_tool

from .conftest import Run
from .job import SOURCE
from .portal import Portal

# A script for each shell that completes the last word of $TYPED, one candidate per line.
ASK = {
    "bash": """
        source "$SCRIPT"
        COMP_WORDS=($TYPED); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _evenshare
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        compdef() { :; }
        source "$SCRIPT"
        compadd() { shift; print -rl -- "${(P@)1}"; }
        _files() { :; }
        words=(${=TYPED}); CURRENT=${#words}; _evenshare
    """,
    "fish": """
        source $SCRIPT
        complete -C $TYPED
    """,
}
OPTIONS = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("-N",)}


def words(run: Run, *typed: str) -> list[str]:
    return run("completion", "words", "--", *typed).out.split()


@pytest.fixture(params=sorted(ASK))
def shell(request: pytest.FixtureRequest) -> str:
    require_tool(request.param)
    return str(request.param)


class TestShell:
    def test_completes_commands_options_and_choices(
        self, shell: str, run: Run, tmp_path: Path
    ) -> None:
        script, command = tmp_path / "script", tmp_path / "evenshare"
        script.write_text(run("completion", shell).out)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m evenshare "$@"\n')
        command.chmod(0o755)
        ask = tmp_path / "ask"
        ask.write_text(ASK[shell])
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "HOME": str(tmp_path),
            "SCRIPT": str(script),
            "EVENSHARE_URL": "http://127.0.0.1:9",
        }

        def completed(*typed: str) -> set[str]:
            done = subprocess.run(
                [shell, *OPTIONS[shell], str(ask)],
                env={**environment, "TYPED": " ".join(("evenshare", *typed))},
                capture_output=True, text=True, check=True,
            )  # fmt: skip # rows of what belongs together
            assert done.stderr == ""
            return set(done.stdout.split())

        assert completed("job", "s") == {"show", "submit"}
        assert completed("job", "list", "--li") == {"--limit"}
        assert completed("sharing", "set", "--mode", "LEND") == {"LEND", "LEND_AND_BORROW"}


class TestWords:
    @pytest.mark.parametrize(
        ("typed", "expected"),
        [
            (["pri"], ["price"]),
            (["price", ""], ["forecast", "history", "show"]),
            (["price", "--pool", "x", "h"], ["history"]),
            (["quota", "w"], ["withdraw"]),
            (["job", "submit", "--wait", "--dr"], ["--dry-run"]),
            (["round", "verify", "7", "--la"], ["--last"]),
            (["job", "show", "12345678", "--exp"], ["--explain"]),
            (["job", "submit", "--", "--w"], []),
            (["job", "submit", "-f", ""], []),
            (["nonsense", "x"], []),
            (["completion", "z"], ["zsh"]),
        ],
    )
    def test_follow_from_parser(
        self, typed: list[str], expected: list[str], run: Run, portal: Portal
    ) -> None:
        assert words(run, *typed) == expected
        assert portal.seen == []

    def test_offer_options_if_nothing_else_may_follow(self, run: Run) -> None:
        assert "--pool" in words(run, "queue", "")
        assert words(run, "job", "") == sorted(words(run, "job", ""))

    def test_include_ids_and_pools_of_portal(self, run: Run, portal: Portal) -> None:
        portal.queue = [{"name": "local"}]
        first, other = (portal.job(id=f"{digit}1111111-0000") for digit in "ab")
        assert words(run, "job", "why", "") == [first["id"], other["id"]]
        assert words(run, "job", "why", "b") == [other["id"]]
        # Neither the second place of a command nor the id of an offer is a job.
        assert first["id"] not in words(run, "job", "why", first["id"], "")
        assert words(run, "offer", "revoke", "") == []

    def test_include_pools_for_every_option_and_argument(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            Transport, "get", lambda *_: {"results": [{"name": "lab"}, {"name": "local"}]}
        )
        assert words(run, "queue", "--pool", "lo") == ["local"]
        assert words(run, "pool", "show", "") == ["lab", "local"]

    def test_are_empty_if_portal_refuses(self, run: Run, portal: Portal) -> None:
        portal.script = [401, 401]
        done = run("completion", "words", "--", "job", "why", "")
        assert (done.code, done.out, done.err) == (0, "", "")

    def test_do_not_wait_for_a_portal_that_hangs(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, hanging: threading.Event
    ) -> None:
        monkeypatch.setattr(completion, "PATIENCE_S", 0.01)
        monkeypatch.setattr(Transport, "get", lambda *_, **__: hanging.wait())
        assert words(run, "job", "why", "") == []


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
