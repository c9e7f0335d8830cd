"""Login, configuration, usage, exit codes, and terminal output."""

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
    """Clear the token from the environment; return the file that login writes."""
    assert portal.url
    monkeypatch.delenv("EVENSHARE_TOKEN")
    return tmp_path / "evenshare" / "config.json"


class TestLogin:
    def test_has_a_token_made_and_keeps_it_private(
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

    def test_reads_a_token_and_tries_it(
        self, run: Run, anonymous: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("es_wrong\n"))
        done = run("login", "--token", "-")
        assert done.code == 3
        assert not anonymous.exists()
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
        assert run("login", "--token", "-").code == 0

    def test_of_a_wrong_password_keeps_nothing(self, run: Run, anonymous: Path) -> None:
        done = run("login", "--username", "ada", "--password", "wrong")
        assert done.code == 3
        assert "Wrong name or password (401)" in done.err
        assert not anonymous.exists()

    def test_keeps_a_token_for_its_own_address(
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
    def test_refuses_what_cannot_be(self, words: list[str], run: Run, portal: Portal) -> None:
        assert run("login", *words).code == 2
        assert portal.seen == []


class TestTheConnection:
    def test_is_tried_again_when_it_breaks(self, run: Run, portal: Portal) -> None:
        portal.script = ["cut", 502, 503]
        assert run("job", "list").code == 0
        assert len(portal.seen) == 4

    def test_that_cannot_be_made_is_told(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVENSHARE_URL", "http://127.0.0.1:9")
        done = run("job", "list")
        assert done.code == 3
        assert "http://127.0.0.1:9 does not answer" in done.err

    def test_is_never_redirected_with_the_token(self, run: Run, portal: Portal) -> None:
        portal.script = [302]
        done = run("job", "list")
        assert done.code == 3
        assert "redirects to http://elsewhere.invalid/" in done.err

    def test_without_a_token_says_what_to_do(self, run: Run, anonymous: Path) -> None:
        done = run("job", "list")
        assert done.code == 3
        assert "-> log in with: evenshare login" in done.err

    def test_errors_are_json_on_demand(self, run: Run, anonymous: Path) -> None:
        done = run("job", "list", "--output", "json")
        assert json.loads(done.err)["reason_code"] == "not_authenticated"


class TestUsage:
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
    def test_wrong_words_are_2_and_send_nothing(
        self, words: list[str], run: Run, portal: Portal
    ) -> None:
        assert run(*words).code == 2
        assert portal.seen == []

    @pytest.mark.parametrize("words", [["--help"], ["job", "submit", "--help"], ["--version"]])
    def test_help_is_not_an_error(self, words: list[str], run: Run) -> None:
        done = run(*words)
        assert done.code == 0
        assert "evenshare" in done.out

    def test_a_spoilt_file_is_told(self, run: Run, anonymous: Path) -> None:
        anonymous.parent.mkdir()
        anonymous.write_text("{")
        done = run("job", "list")
        assert done.code == 2
        assert str(anonymous) in done.err


class TestTheTerminal:
    class Screen(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    def test_gets_a_sign_a_word_and_a_colour(self) -> None:
        out = self.Screen()
        screen = Terminal(out, out, {"TERM": "xterm"})
        screen.table(["STATE", "N"], [[screen.state("running"), "1"]])
        assert (
            out.getvalue()
            == "\x1b[2mSTATE\x1b[0m      \x1b[2mN\x1b[0m\n\x1b[34m● running\x1b[0m  1\n"
        )

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_gets_no_colour_where_none_is_wanted(self, environment: dict[str, str]) -> None:
        out = self.Screen()
        assert Terminal(out, out, environment).state("failed") == "✗ failed"

    @pytest.mark.parametrize("code", [*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066, 0xFEFF])
    def test_never_gets_a_control(self, code: int) -> None:
        assert inert(f"a{chr(code)}b").isprintable()
        assert chr(code) not in inert(f"a{chr(code)}b")

    def test_outlives_the_end_of_its_pipe(self, portal: Portal) -> None:
        """The command runs in a separate process, because it closes the descriptor for good."""
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


def test_main_takes_its_words_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evenshare", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("evenshare ")
