"""Test how a job records evaluations of its stopping metric: few, and in complete files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evenshare.runtime.contract import ContractError, read
from evenshare.runtime.evaluations import MOST, Criterion, EvaluationLog
from tests.tools import PATIENCE_S

from .job import Job, preempt

TRAIN = """
import sys, time
from evenshare import lease
state = lease.resume(default={"step": 0})
for step in lease.steps(state["step"], int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    lease.report(loss=1.0)
    if (step + 1) % 5 == 0:
        lease.report(accuracy=(step + 1) / 100)
    lease.store({"step": step + 1})
    if lease.reached():
        print("reached", step + 1)
        break
"""
OWN_LOOP = """
from evenshare import lease
for number in range(4):
    lease.step(10, accuracy=float("nan") if number == 1 else number / 10)
lease.report(step=35, accuracy=0.5)
lease.report(step=60, accuracy="0.4")
lease.report(step=70, accuracy=object())
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, criterion=("accuracy", "at_least", "0.5"))


class TestTraining:
    def test_reports_evaluations_and_stops_at_target(self, job: Job) -> None:
        assert job.start(TRAIN, "100", "0").wait(PATIENCE_S) == 0, job.text
        assert "reached 50" in job.text
        assert job.evaluations == {
            "version": 1, "lease": 1, "metric": "accuracy",
            "points": [[step, step / 100] for step in range(5, 51, 5)],
        }  # fmt: skip

    def test_reports_only_current_lease_after_preemption(self, job: Job) -> None:
        process = job.start(TRAIN, "1000000", "0.1")
        job.reaches(6)
        assert preempt(process) == 99
        first = job.evaluations
        assert (first["lease"], first["points"][0]) == (1, [5, 0.05])
        assert job.start(TRAIN, "100", "0").wait(PATIENCE_S) == 0, job.text
        again = job.evaluations
        assert again["lease"] == 2
        assert again["points"][0][0] > first["points"][-1][0]
        assert again["points"][-1] == [50, 0.5]

    def test_custom_loop_drops_invalid_and_repeated_evaluations(self, job: Job) -> None:
        assert job.start(OWN_LOOP).wait(PATIENCE_S) == 0, job.text
        assert job.evaluations["points"] == [[10, 0.0], [30, 0.2], [40, 0.3], [60, 0.4]]

    def test_writes_nothing_without_criterion(self, tmp_path: Path) -> None:
        job = Job(tmp_path)
        assert job.start(TRAIN, "20", "0").wait(PATIENCE_S) == 0, job.text
        assert job.evaluations == {}
        assert "reached" not in job.text


class TestEvaluationLog:
    def test_stays_small_for_many_evaluations(self, tmp_path: Path) -> None:
        file = tmp_path / "evaluations.json"
        log = EvaluationLog(file, 1, Criterion("loss", False, 0.1))
        for step in range(1, 20_001):
            log.add(step, 1 / step)
        log.write()
        assert file.stat().st_size < 16 * 1024
        points = json.loads(file.read_text())["points"]
        assert MOST // 2 - 2 <= len(points) <= MOST
        # The first evaluation that met the target is kept, and so is the newest.
        assert [10, 0.1] in points
        assert points[-1][0] == 20_000
        assert log.is_met

    def test_is_written_only_after_changes(self, tmp_path: Path) -> None:
        file = tmp_path / "evaluations.json"
        log = EvaluationLog(file, 1, Criterion("loss", False, 0.1))
        assert not log.waits
        log.write()
        assert not file.exists()
        log.add(1, 0.5)
        log.write()
        file.unlink()
        log.write()
        assert not file.exists()


class TestInvalidCriterion:
    @pytest.mark.parametrize(
        ("changed", "name"),
        [
            ({"EVENSHARE_STOP_RULE": "about"}, "EVENSHARE_STOP_RULE"),
            ({"EVENSHARE_STOP_VALUE": "high"}, "EVENSHARE_STOP_VALUE"),
            ({"EVENSHARE_STOP_VALUE": "nan"}, "EVENSHARE_STOP_VALUE"),
        ],
    )
    def test_fails_at_start_and_names_variable(
        self, tmp_path: Path, changed: dict[str, str], name: str
    ) -> None:
        good = {
            "EVENSHARE_JOB_DIR": str(tmp_path), "EVENSHARE_LEASE": "1",
            "EVENSHARE_STOP_METRIC": "loss", "EVENSHARE_STOP_RULE": "at_most",
            "EVENSHARE_STOP_VALUE": "0.25",
        }  # fmt: skip
        assert read(good).criterion == Criterion("loss", False, 0.25)
        with pytest.raises(ContractError, match=name):
            read(good | changed)
