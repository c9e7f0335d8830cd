"""Test how a job records curves of its metrics, over all its leases, and links."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from evenshare.runtime.metrics import MOST_BYTES, MOST_METRICS, MOST_OF_ONE, MetricLog, thinned
from tests.tools import PATIENCE_S

from .job import Job, preempt

TRAIN = """
import sys, time
from evenshare import lease
state = lease.resume(default={"step": 0})
lease.link("W&B", "https://wandb.ai/vision/runs/3")
lease.link("local", "http://localhost/")
for step in lease.steps(state["step"], int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    lease.log({"loss": 1 / (step + 1), "bad": float("nan")})
    if (step + 1) % 10 == 0:
        lease.report(accuracy=step)
    lease.store({"step": step + 1})
"""
OWN_LOOP = """
from evenshare import lease
for number in range(3):
    lease.log({"plain": number})
lease.log({"val loss (ema)": 3}, step=70)
lease.step(10, counted=1)
lease.log({"also": 2})
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def steps(job: Job, name: str) -> list[int]:
    return [point[0] for point in job.metrics["series"][name]]


def written(log: MetricLog, file: Path) -> dict[str, Any]:
    log.write()
    said: dict[str, Any] = json.loads(file.read_text())
    return said


class TestTraining:
    def test_writes_curves_of_logged_and_reported_metrics(self, job: Job) -> None:
        assert job.start(TRAIN, "20", "0").wait(PATIENCE_S) == 0, job.text
        assert sorted(job.metrics["series"]) == ["accuracy", "loss"]
        assert steps(job, "loss") == list(range(1, 21))
        assert steps(job, "accuracy") == [10, 20]
        assert job.metrics["series"]["loss"][3][1] == 0.25
        assert job.metrics["links"] == {"W&B": "https://wandb.ai/vision/runs/3"}
        assert job.metrics["thinned"] is False

    def test_continues_curves_after_preemption(self, job: Job) -> None:
        process = job.start(TRAIN, "1000000", "0.1")
        job.reaches(6)
        assert preempt(process) == 99
        before = steps(job, "loss")
        assert before == list(range(1, before[-1] + 1))
        assert job.start(TRAIN, "40", "0").wait(PATIENCE_S) == 0, job.text
        assert steps(job, "loss") == list(range(1, 41))

    def test_own_loop_counts_its_points(self, job: Job) -> None:
        assert job.start(OWN_LOOP).wait(PATIENCE_S) == 0, job.text
        assert steps(job, "plain") == [1, 2, 3]
        assert steps(job, "val_loss__ema_") == [70]
        assert (steps(job, "counted"), steps(job, "also")) == ([10], [10])

    def test_does_nothing_outside_portal(self, job: Job) -> None:
        from evenshare import lease

        lease.log({"loss": 1})
        lease.link("W&B", "https://wandb.ai/")
        assert job.metrics == {}


class TestMetricLog:
    def test_stays_small_and_keeps_first_and_newest_point(self, tmp_path: Path) -> None:
        file = tmp_path / "metrics.json"
        log = MetricLog(file)
        for step in range(1, 20_001):
            log.add(step, {"loss": -1 / 3 / step})
        said = written(log, file)
        points = said["series"]["loss"]
        assert MOST_OF_ONE // 4 < len(points) <= MOST_OF_ONE
        assert (points[0][0], points[-1][0], said["thinned"]) == (1, 20_000, True)

    def test_thinning_keeps_first_and_newest_point(self) -> None:
        points = [(step, 0.5, 0) for step in range(7, 1003)]
        kept = thinned(points, 100)
        assert 50 <= len(kept) <= 100
        assert (kept[0], kept[-1]) == (points[0], points[-1])

    def test_many_metrics_share_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "metrics.json"
        log = MetricLog(file)
        for step in range(2**52, 2**52 + 400):
            log.add(step, {f"a-long-name-of-a-metric/{n}": -(math.pi**n) for n in range(100)})
        said = written(log, file)
        assert len(said["series"]) == MOST_METRICS
        assert file.stat().st_size <= MOST_BYTES

    def test_repeated_step_replaces_and_late_step_is_left_out(self, tmp_path: Path) -> None:
        file = tmp_path / "metrics.json"
        log = MetricLog(file)
        for step, value in ((5, 1), (5, 2), (4, 3), (6, 4), (-1, 5), (2**60, 6)):
            log.add(step, {"loss": value})
        points = written(log, file)["series"]["loss"]
        assert [point[:2] for point in points] == [[5, 2.0], [6, 4.0]]

    def test_restarted_program_replaces_repeated_steps(self, tmp_path: Path) -> None:
        file = tmp_path / "metrics.json"
        first, again = MetricLog(file), MetricLog(file)
        for step in range(1, 9):
            first.add(step, {"loss": 1, "rare": 1})
        first.write()
        again.add(4, {"loss": 2})
        series = written(again, file)["series"]
        assert [point[:2] for point in series["loss"]] == [[1, 1.0], [2, 1.0], [3, 1.0], [4, 2.0]]
        assert len(series["rare"]) == 8

    @pytest.mark.parametrize(
        "said",
        [
            b"", b"{", b"\xff", b"[]", b"{}", b'{"series": 3}', b'{"series": {"a": [[1]]}}',
            b'{"series": {}, "links": 3}', b"[" * 100_000,
            b'{"series": {"a": [[1, NaN]]}}', b'{"series": {"a": [[1e999, 1]]}}',
            b"x" * (MOST_BYTES + 9),
        ],
    )  # fmt: skip
    def test_unusable_file_is_replaced(self, tmp_path: Path, said: bytes) -> None:
        file = tmp_path / "metrics.json"
        file.write_bytes(said)
        log = MetricLog(file)
        log.add(3, {"loss": 1})
        assert [point[:2] for point in written(log, file)["series"]["loss"]] == [[3, 1.0]]

    @pytest.mark.parametrize(
        "url",
        [
            "http://wandb.ai/", "javascript:alert(1)", "https://user@wandb.ai/", "https://",
            "https://wandb.ai/a b", "https://wandb.ai/" + "x" * 500, "https://bücher.de/",
        ],
    )  # fmt: skip
    def test_other_addresses_are_no_links(self, tmp_path: Path, url: str) -> None:
        file = tmp_path / "metrics.json"
        log = MetricLog(file)
        log.add(1, {"loss": 1})
        log.link("run", url)
        assert written(log, file)["links"] == {}
