"""Test a job's runtime with real processes and signals."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.tools import PATIENCE_S, eventually

from .job import SOURCE, Job, preempt

TRAIN = ROOT / "examples" / "train.py"

COUNT = """
import sys, time
from evenshare import lease
state = lease.resume(default={"step": 0, "sum": 0})
print("from", state["step"], flush=True)
for step in lease.steps(state["step"], int(sys.argv[1])):
    state = {"step": step + 1, "sum": state["sum"] + step}
    lease.report(sum=state["sum"], gone=float("nan"))
    lease.store(state)
    time.sleep(float(sys.argv[2]))
print("done", state["sum"], flush=True)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Kill processes that a failed test leaves behind."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


class TestPreemptedJob:
    def test_exits_with_99_and_resumes_at_same_step(self, job: Job) -> None:
        first = job.start(COUNT, "1000000", "0.005")
        job.reaches(3)
        assert preempt(first) == 99
        reached = job.progress["step"]
        body = job.checkpoints[-1].read_bytes().split(b"\n", 1)[1]
        assert json.loads(body) == {"step": reached, "sum": sum(range(reached))}

        second = job.start(COUNT, str(reached + 5), "0")
        assert second.wait(PATIENCE_S) == 0
        assert f"from {reached}\ndone {sum(range(reached + 5))}\n" in job.text

    def test_example_loses_nothing_in_two_preemptions(self, job: Job, tmp_path: Path) -> None:
        steps = ["--steps", "600"]
        whole = subprocess.run(
            [sys.executable, str(TRAIN), *steps, "--out", str(tmp_path / "whole")],
            # Both runs need the same environment, because variables choose the kernels of a BLAS
            # library.
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
            check=True,
            capture_output=True,
            text=True,
        )
        for at_least in (30, 100):
            process = job.start(TRAIN, *steps, "--out", str(tmp_path / "cut"))
            job.reaches(at_least)
            assert preempt(process) == 99, job.text
        assert job.start(TRAIN, *steps, "--out", str(tmp_path / "cut")).wait(PATIENCE_S) == 0
        assert job.text.count("resumed at step") == 2
        assert whole.stdout.splitlines()[-1] == job.text.splitlines()[-1]
        assert (tmp_path / "whole").read_bytes() == (tmp_path / "cut").read_bytes()

    def test_writes_previous_step_at_once_then_current_step(
        self, job: Job, ended: list[subprocess.Popen[bytes]]
    ) -> None:
        """The second step waits for a file, which fixes the order."""
        go = job.folder / "go"
        process = job.start(
            f"""
import os, time
from evenshare import lease
lease.resume()
lease.store({{"step": 1}})
print("in step 2", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.01)
lease.store({{"step": 2}})
print("never reached", flush=True)
"""
        )
        ended.append(process)
        job.says("in step 2")
        process.send_signal(signal.SIGUSR1)
        eventually(lambda: [p.name for p in job.checkpoints] == ["000001-00000001.ckpt"])
        assert process.poll() is None
        go.touch()
        assert process.wait(PATIENCE_S) == 99
        assert job.checkpoints[-1].read_bytes().endswith(b'{"step":2}')
        assert "never reached" not in job.text

    def test_writes_while_native_code_blocks_main_thread(self, job: Job) -> None:
        """Python's signal handlers wait for the main thread; the wake-up descriptor does not."""
        job.grace_s = 2.0
        process = job.start(
            """
import hashlib
from evenshare import lease
lease.resume()
lease.store({"step": 7})
print("in native code", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)
"""
        )
        job.says("in native code")
        assert preempt(process) == 99
        assert job.checkpoints[-1].read_bytes().endswith(b'{"step":7}')
        assert "inside an iteration" in job.text

    def test_exits_with_99_if_nothing_was_stored(self, job: Job) -> None:
        job.grace_s = 1.0
        process = job.start(
            "import time; from evenshare import lease; lease.resume(); print('up', flush=True)\n"
            "while True: time.sleep(1)"
        )
        job.says("up")
        assert preempt(process) == 99
        assert job.checkpoints == []

    def test_survives_signals_at_any_moment(self, job: Job) -> None:
        """A hundred signals interrupt a loop that only stores checkpoints."""
        job.grace_s = 60.0
        process = job.start(COUNT, "100000000", "0")
        job.reaches(10)
        for _ in range(100):
            process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE_S) == 99
        assert "Traceback" not in job.text

    def test_ends_cleanly_if_another_thread_stores(self, job: Job) -> None:
        process = job.start(
            """
import threading, time
from evenshare import lease
lease.resume()
def train():
    for step in range(1_000_000):
        lease.store({"step": step})
        if step == 3: print("trains", flush=True)
        time.sleep(0.005)
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
        )
        job.says("trains")
        assert preempt(process) == 99
        assert job.checkpoints

    def test_ignores_calls_in_forked_children(self, job: Job) -> None:
        process = job.start(
            """
import os, signal, time
from evenshare import lease
lease.resume()
lease.store({"from": "parent"})
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGUSR1)
    lease.store({"from": "child"})
    lease.flush()
    os._exit(5)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
lease.flush()
"""
        )
        assert process.wait(PATIENCE_S) == 0
        assert "child 5" in job.text
        assert [p.read_bytes()[-17:] for p in job.checkpoints] == [b'{"from":"parent"}']


class TestStaleProcess:
    def test_writes_nothing_and_exits_with_97(self, job: Job) -> None:
        process = job.start(COUNT, "1000000", "0.005")
        job.reaches(3)
        job.grant()
        assert preempt(process) == 97
        assert job.checkpoints == []
        assert "lease 2 runs this job now" in job.text

    def test_exits_at_its_next_report(self, job: Job) -> None:
        process = job.start(COUNT, "1000000", "0.005")
        job.reaches(3)
        job.grant()
        assert process.wait(PATIENCE_S) == 97

    def test_does_not_start(self, job: Job) -> None:
        job.grant()
        stale = job.environment()
        job.grant()
        done = subprocess.run(
            [sys.executable, "-c", "from evenshare import lease; lease.resume(); print('ran')"],
            env=stale,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (97, b"")


class TestUnwritableCheckpoint:
    def test_exits_with_74(self, job: Job) -> None:
        """After the start, a file takes the place of the folder for checkpoints."""
        process = job.start(COUNT, "1000000", "0.005")
        job.reaches(3)
        folder = job.folder / "checkpoints"
        folder.rmdir()
        folder.write_text("")
        assert preempt(process) == 74
        assert "could not be written" in job.text


class TestOutsidePortal:
    def run(self, source: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_calls_have_no_effect(self, tmp_path: Path) -> None:
        done = self.run(
            """
            import signal, threading
            from evenshare import lease
            assert lease.resume(default=dict) == {} and lease.resume({"a": 1}) == {"a": 1}
            for step in lease.steps(2, 5):
                lease.store({(1, 2): object()})
                lease.report(loss=1.0)
            lease.flush()
            assert not lease.inside() and not lease.ending()
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
            assert threading.active_count() == 1
            print(step)
            """,
            tmp_path,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")
        assert list(tmp_path.iterdir()) == []

    def test_folder_keeps_state_between_runs(self, tmp_path: Path) -> None:
        source = """
            from evenshare import lease
            lease.setup(directory="kept")
            state = lease.resume(default={"runs": 0})
            lease.store({"runs": state["runs"] + 1})
            print(state["runs"])
        """
        assert [self.run(source, tmp_path).stdout for _ in range(3)] == ["0\n", "1\n", "2\n"]

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            ("{1: 2}", "the key 1 would come back as text"),
            ("{'a': [(1, 2)]}", "state['a'][0]: a tuple would come back as a list"),
            ("{'a': {1, 2}}", "set is not JSON serializable"),
        ],
    )
    def test_rejects_state_that_json_would_change(
        self, state: str, words: str, tmp_path: Path
    ) -> None:
        done = self.run(
            f"from evenshare import lease\nlease.setup(directory='k')\nlease.store({state})",
            tmp_path,
        )
        assert "TypeError" in done.stderr
        assert words in done.stderr


class TestInvalidContract:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("EVENSHARE_LEASE", "three"),
            ("EVENSHARE_GRACE_S", "nan"),
            ("EVENSHARE_CHECKPOINT_SIGNAL", "SIGNOTHING"),
        ],
    )
    def test_error_names_variable(self, job: Job, name: str, value: str) -> None:
        job.grant()
        done = subprocess.run(
            [sys.executable, "-c", "from evenshare import lease; lease.resume()"],
            env=job.environment() | {name: value},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert f"ContractError: {name}" in done.stderr


class TestProgress:
    def test_is_bounded_finite_and_complete_at_end(self, job: Job) -> None:
        process = job.start(
            """
from evenshare import lease
many = {"m%d" % n: n for n in range(9000)}
lease.report(step=1, total=10, loss=float("inf"), good=2, words="no", **many)
for step in range(1000):
    lease.report(step=step)
"""
        )
        assert process.wait(PATIENCE_S) == 0
        report = job.progress
        assert (report["step"], report["total"], report["lease"]) == (999, 10, 1)
        assert report["metrics"]["good"] == 2
        assert not {"loss", "words"} & set(report["metrics"])
        assert (job.folder / "progress.json").stat().st_size <= 64 * 1024
        assert report["at"].endswith("+00:00")
