"""Test the wrapper for programs that handle only SIGTERM."""

import signal
import sys
from pathlib import Path

import pytest

from evenshare import term
from tests.tools import PATIENCE_S

from .job import Job, preempt

WRAPPER = [sys.executable, "-m", "evenshare.term", "--"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    made.grant()
    return made


def python(source: str) -> list[str]:
    return [*WRAPPER, sys.executable, "-c", source]


def sleeper(on_term: str) -> list[str]:
    return python(
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: ({on_term}))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)"
    )


class TestCheckpointSignal:
    @pytest.mark.parametrize(
        ("on_term", "code"),
        [("sys.exit(0)", 99), ("sys.exit(143)", 99), ("sys.exit(5)", 5), ("os.abort()", -6)],
    )
    def test_is_forwarded_as_sigterm(self, on_term: str, code: int, job: Job) -> None:
        process = job.run(sleeper(on_term))
        job.says("up")
        assert preempt(process) == code

    def test_ends_program_without_handler(self, job: Job) -> None:
        process = job.run(python("import time; print('up', flush=True)\nwhile True: time.sleep(1)"))
        job.says("up")
        assert preempt(process) == 99

    def test_is_forwarded_once_if_repeated(self, job: Job) -> None:
        process = job.run(sleeper("print('told', flush=True), time.sleep(0.5), sys.exit(0)"))
        job.says("up")
        for _ in range(20):
            process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE_S) == 99
        assert job.text.count("told") == 1

    def test_to_process_group_does_not_reach_program(self, job: Job) -> None:
        """The program has no handler for the signal, which would kill it."""
        process = job.run(sleeper("print('term', flush=True), sys.exit(0)"))
        job.says("up")
        import os

        os.killpg(process.pid, signal.SIGUSR1)
        assert process.wait(PATIENCE_S) == 99
        assert "term" in job.text

    @pytest.mark.parametrize(("code", "answer"), [(7, 99), (0, 0), (143, 143)])
    def test_exits_with_99_for_listed_codes(self, code: int, answer: int, job: Job) -> None:
        command = sleeper(f"sys.exit({code})")
        process = job.run([*command[:3], "--ok-codes", "7,8", *command[3:]])
        job.says("up")
        assert preempt(process) == answer

    def test_kills_program_after_grace_period(self, job: Job) -> None:
        job.grace_s = 3.0
        process = job.run(sleeper("print('not now', flush=True)"))
        job.says("up")
        assert preempt(process) == -signal.SIGKILL
        assert "not now" in job.text

    def test_leaves_no_process_behind(self, job: Job) -> None:
        """Processes that moved to another session end too."""
        spawn = "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
        process = job.run(python(f"{spawn}\nprint('pid', p.pid, 'end', flush=True)"))
        assert process.wait(PATIENCE_S) == 0
        pid = int(job.text.split()[1])
        assert not Path(f"/proc/{pid}/exe").exists()


class TestFinishedProgram:
    @pytest.mark.parametrize("code", [0, 1, 99])
    def test_passes_on_exit_code(self, code: int, job: Job) -> None:
        assert job.run(python(f"raise SystemExit({code})")).wait(PATIENCE_S) == code

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
    def test_passes_on_signal(self, name: str, job: Job) -> None:
        kill = f"import os, signal; os.kill(os.getpid(), signal.{name})"
        assert job.run(python(kill)).wait(PATIENCE_S) == -signal.Signals[name]

    def test_receives_unchanged_arguments(self, job: Job) -> None:
        show = "import sys; print(sys.argv[1:])"
        words = ["--", "$HOME", "a b", "; true", "--help"]
        assert job.run([*WRAPPER, sys.executable, "-c", show, *words]).wait(PATIENCE_S) == 0
        assert job.text == f"{words}\n"


class TestWrapper:
    @pytest.mark.parametrize(
        "words", [[], ["--"], ["program"], ["--ok-codes", "x", "--", "true"], ["--ok-codes"]]
    )
    def test_prints_usage_for_invalid_arguments(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert term.main(words) == 2
        assert "-- program [argument ...]" in capsys.readouterr().err

    def test_reports_missing_program(self, job: Job) -> None:
        assert job.run([*WRAPPER, "/no/such/program"]).wait(PATIENCE_S) == 127
        assert "could not be started" in job.text
