"""Test how a job records iteration counts: rarely, in complete files, and by one rank only."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from evenshare.runtime.iterations import IterationLog
from tests.tools import PATIENCE_S, eventually

from .job import Job, preempt

KEYS = {
    "version", "lease", "iterations", "time_us", "first_us", "suspended_us", "memory_bytes",
}  # fmt: skip
STEPS = """
import sys, time
from evenshare import lease
state = lease.resume(default={"step": 0})
lease.memory(3_000_000)
for step in lease.steps(state["step"], int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    lease.store({"step": step + 1})
lease.memory(2_000_000)
"""
OWN_LOOP = """
import time
from evenshare import lease
for number in range(5):
    time.sleep(0.02)
    lease.step(10, loss=1.0 / (number + 1))
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


class TestLoop:
    def test_steps_loop_is_timed_without_first_iteration(self, job: Job) -> None:
        before_us = time.time_ns() // 1000
        process = job.start(STEPS, "6", "0.03")
        assert process.wait(PATIENCE_S) == 0, job.text
        said = job.iterations
        assert set(said) == KEYS
        assert (said["version"], said["lease"], said["iterations"]) == (1, 1, 5)
        assert said["time_us"] >= 5 * 30_000
        assert before_us + 30_000 <= said["first_us"] <= time.time_ns() // 1000
        assert (said["suspended_us"], said["memory_bytes"]) == (None, 3_000_000)

    def test_custom_loop_counts_iterations_by_step_calls(self, job: Job) -> None:
        assert job.start(OWN_LOOP).wait(PATIENCE_S) == 0, job.text
        assert job.iterations["iterations"] == 40
        assert job.iterations["time_us"] >= 4 * 20_000
        assert job.progress["step"] == 50
        assert job.progress["metrics"] == {"loss": 0.2}

    def test_reports_suspend_time_and_restarts_after_preemption(self, job: Job) -> None:
        process = job.start(STEPS, "1000000", "0.005")
        job.reaches(3)
        assert preempt(process) == 99
        first = job.iterations
        assert 0 <= first["suspended_us"] < PATIENCE_S * 10**6
        assert job.start(STEPS, str(job.progress["step"] + 3), "0").wait(PATIENCE_S) == 0, job.text
        again = job.iterations
        assert (again["lease"], again["iterations"], again["suspended_us"]) == (2, 2, None)
        assert again["first_us"] > first["first_us"]

    def test_rejects_double_or_invalid_counts(self, job: Job) -> None:
        process = job.start("""
from evenshare import lease
for step in lease.steps(0, 1):
    for wrong in (0, -1, 1.5):
        try:
            lease.step(wrong)
        except ValueError as error:
            print(error)
    try:
        lease.step()
    except RuntimeError as error:
        print(error)
""")
        assert process.wait(PATIENCE_S) == 0, job.text
        assert job.text.count("must be a whole number from 1") == 3
        assert "steps() counts the iterations already" in job.text

    def test_stops_writing_after_newer_lease(self, job: Job) -> None:
        old = job.start(STEPS, "1000000", "0.005")
        job.reaches(2)
        job.grant()
        assert old.wait(PATIENCE_S) == 97
        assert job.iterations["lease"] == 1

    def test_works_outside_portal(self, job: Job) -> None:
        job.folder.joinpath("lease").unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": job.environment()["PYTHONPATH"]}
        done = subprocess.run(
            [job.python, "-c", OWN_LOOP], env=environment, cwd=job.folder, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert list(job.folder.iterdir()) == []


class TestIterationFile:
    def test_is_always_complete(self, job: Job) -> None:
        process = job.start(STEPS, "1000000", "0.001")
        file = job.folder / "iterations.json"
        eventually(file.exists)
        begin_s = time.monotonic()
        seen: set[int] = set()
        while len(seen) < 3:
            seen.add(json.loads(file.read_bytes())["iterations"])
        # The file is written at most once a second.
        assert time.monotonic() - begin_s >= 1
        process.kill()
        process.wait()
        assert not [one for one in job.folder.iterdir() if one.name.startswith(".iterations")]

    def test_write_errors_are_ignored(self, tmp_path: Path) -> None:
        counted = IterationLog(tmp_path / "no" / "such" / "folder", 1)
        counted.add(1)
        counted.add(3)
        assert counted.waits
        counted.write()
        assert not counted.waits

    def test_contains_no_time_that_has_not_passed(self, tmp_path: Path) -> None:
        counted = IterationLog(tmp_path / "iterations.json", 7)
        begin_ns = time.monotonic_ns()
        for _ in range(1000):
            counted.add(1)
        counted.write()
        said = json.loads((tmp_path / "iterations.json").read_text())
        assert said["iterations"] == 999
        # An iteration takes at least a microsecond.
        assert 999 <= said["time_us"] <= max(999, (time.monotonic_ns() - begin_ns) // 1000)
