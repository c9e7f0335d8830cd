"""Test the command's login, configuration, usage, exit codes and output on a terminal."""

import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from evenshare.cli.main import main
from evenshare.cli.terminal import Terminal, inert

from .conftest import Run
from .portal import TOKEN, Portal


@pytest.fixture
def anonymous(portal: Portal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Remove the token from the environment, and return the path of the file that login writes."""
    assert portal.url
    monkeypatch.delenv("EVENSHARE_TOKEN")
    return tmp_path / "evenshare" / "config.json"


class TestLogin:
    def test_creates_token_and_stores_it_privately(
        self, run: Run, portal: Portal, anonymous: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("right\n"))
        done = run("login", "--username", "ada", "--password", "-")
        assert done.code == 0
        body = portal.seen[0][3]
        assert (body["username"], body["scopes"]) == ("ada", ["jobs:write", "jobs:read", "read"])
        assert stat.S_IMODE(anonymous.stat().st_mode) == 0o600
        assert stat.S_IMODE(anonymous.parent.stat().st_mode) == 0o700
        assert TOKEN not in done.out + done.err
        assert run("job", "list").code == 0

    def test_reads_token_and_verifies_it(
        self, run: Run, anonymous: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("es_wrong\n"))
        done = run("login", "--token", "-")
        assert done.code == 3
        assert not anonymous.exists()
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
        assert run("login", "--token", "-").code == 0

    def test_wrong_password_stores_nothing(self, run: Run, anonymous: Path) -> None:
        done = run("login", "--username", "ada", "--password", "wrong")
        assert done.code == 3
        assert "Wrong name or password (401)" in done.err
        assert not anonymous.exists()

    def test_sends_token_only_to_its_address(
        self, run: Run, portal: Portal, anonymous: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("login", "--token", TOKEN)
        kept = json.loads(anonymous.read_text())
        monkeypatch.setenv("EVENSHARE_URL", portal.url.replace("127.0.0.1", "localhost"))
        assert run("job", "list").code == 3
        assert "authorization" not in portal.seen[-1][2]
        assert kept == {"url": portal.url, "tokens": {portal.url: TOKEN}}

    @pytest.mark.parametrize(
        "words",
        [
            ["--url", "ftp://x"],
            ["--url", "http://user:word@host"],
            ["--url", "x"],
            ["--token", "a b"],
            ["--token", "a\nb"],
            ["--token", "a", "--username", "b"],
            ["--password", "x"],
        ],
    )
    def test_rejects_invalid_addresses_and_tokens(
        self, words: list[str], run: Run, portal: Portal
    ) -> None:
        assert run("login", *words).code == 2
        assert portal.seen == []


class TestConnection:
    def test_is_retried_after_failures(self, run: Run, portal: Portal) -> None:
        portal.script = ["cut", 502, 503]
        assert run("job", "list").code == 0
        assert len(portal.seen) == 4

    def test_unreachable_server_is_reported(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EVENSHARE_URL", "http://127.0.0.1:9")
        done = run("job", "list")
        assert done.code == 3
        assert "http://127.0.0.1:9 does not answer" in done.err

    def test_does_not_follow_redirects(self, run: Run, portal: Portal) -> None:
        portal.script = [302]
        done = run("job", "list")
        assert done.code == 3
        assert "redirects to http://elsewhere.invalid/" in done.err

    def test_without_token_suggests_login(self, run: Run, anonymous: Path) -> None:
        done = run("job", "list")
        assert done.code == 3
        assert "-> log in with: evenshare login" in done.err

    def test_prints_errors_as_json_on_demand(self, run: Run, anonymous: Path) -> None:
        done = run("job", "list", "--output", "json")
        assert json.loads(done.err)["reason_code"] == "not_authenticated"


class TestCommandLine:
    @pytest.mark.parametrize(
        "words",
        [
            [],
            ["job"],
            ["job", "sumbit"],
            ["job", "submit", "--pool", "p", "--gpus", "1"],
            ["job", "submit", "--pool", "p", "--gpus", "1", "--"],
            ["job", "submit", "--pool", "p", "--gpus", "1", "python", "x.py"],
            ["job", "submit", "--pool", "p", "--gpus", "0", "--", "true"],
            ["job", "submit", "--pool", "p", "--gpus", "9" * 5000, "--", "true"],
            ["job", "submit", "--pool", "p", "--gpus", "٢", "--", "true"],
            ["job", "submit", "--gpus", "1", "--", "true"],
            ["job", "submit", "--pool", "p", "--gpus", "1", "--env", "A", "--", "true"],
            ["job", "list", "--", "x"],
            ["queue"],
        ],
    )
    def test_invalid_arguments_exit_2_without_request(
        self, words: list[str], run: Run, portal: Portal
    ) -> None:
        assert run(*words).code == 2
        assert portal.seen == []

    @pytest.mark.parametrize("words", [["--help"], ["job", "submit", "--help"], ["--version"]])
    def test_help_and_version_exit_0(self, words: list[str], run: Run) -> None:
        done = run(*words)
        assert done.code == 0
        assert "evenshare" in done.out

    def test_corrupt_configuration_file_is_reported(self, run: Run, anonymous: Path) -> None:
        anonymous.parent.mkdir()
        anonymous.write_text("{")
        done = run("job", "list")
        assert done.code == 2
        assert str(anonymous) in done.err


class TestTerminal:
    class Screen(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    def test_prints_sign_word_and_colour(self) -> None:
        out = self.Screen()
        screen = Terminal(out, out, {"TERM": "xterm"})
        screen.table(["STATE", "N"], [[screen.state("running"), "1"]])
        assert (
            out.getvalue()
            == "\x1b[2mSTATE\x1b[0m      \x1b[2mN\x1b[0m\n\x1b[34m● running\x1b[0m  1\n"
        )

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_prints_no_colour_if_disabled(self, environment: dict[str, str]) -> None:
        out = self.Screen()
        assert Terminal(out, out, environment).state("failed") == "✗ failed"

    @pytest.mark.parametrize("code", [*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066, 0xFEFF])
    def test_escapes_control_characters(self, code: int) -> None:
        assert inert(f"a{chr(code)}b").isprintable()
        assert chr(code) not in inert(f"a{chr(code)}b")

    def test_survives_closed_pipe(self, portal: Portal) -> None:
        """A separate process is used, because the command closes the file descriptor for good."""
        import subprocess

        from .job import SOURCE

        for _ in range(300):
            portal.job()
        with subprocess.Popen(
            [sys.executable, "-m", "evenshare", "job", "list", "--all", "--output", "json"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == ""
        assert process.returncode == 0


def test_main_reads_arguments_from_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evenshare", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("evenshare ")
