"""Test real processes that report their metric in files, and the ends that rounds estimate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.refits import refit
from scheduling.models import Job, Lease, MetricHistory, StopForecast
from tests.architecture.sources import ROOT
from tests.factories import Cluster, cluster
from tests.integration.local_world import local_world, processes_below
from tests.integration.test_local_executor_rounds import state_of, turn
from tests.tools import eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

# The program reports each of these values in turn, then ends.
HOSTILE = """
import json, os, pathlib, time
place = pathlib.Path(os.environ["EVENSHARE_EVALUATIONS"])
good = {"version": 1, "lease": int(os.environ["EVENSHARE_LEASE"]), "metric": "accuracy"}
def say(*points, **other):
    return json.dumps({**good, "points": points, **other})
for said in (
    "{", "x" * 10**7, say([1, float("nan")]), say([1, 1e308]), say([2, 0.1], [1, 0.2]),
    say([3, 0.1], [3, 0.1]), say([1, 0.5], metric="another"), say(*[[n, 0] for n in range(999)]),
):
    place.write_text(said)
    time.sleep(1.2)
place.unlink()
os.mkfifo(place)
time.sleep(1.2)
place.unlink()
place.mkdir()
time.sleep(1.2)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Cluster]:
    with local_world(tmp_path / "jobs"):
        lengths: dict[str, Any] = {"round_s": 1, "lease_s": 6, "grace_s": 600}
        made = cluster({"a": 2}, nodes=1, gpus=2, executor="local", policy="ltgf", **lengths)
        yield made
        for lease in Lease.objects.exclude(state="ended"):
            Job.objects.filter(pk=lease.job_id).update(cancel_asked_at=lease.granted_at)
        eventually(lambda: turn(made) and not Lease.objects.exclude(state="ended").exists())
        eventually(lambda: not processes_below(tmp_path / "jobs"))


def submit(lab: Cluster, *command: str, target: str) -> Job:
    turn(lab)
    return lab.submit(
        "a", 1, 1, command=["python", *command], gpu_types=["v100"], iterations=3000,
        stop_metric="accuracy", stop_rule="at_least", stop_value=target,
    )  # fmt: skip


class TestTraining:
    def test_example_fits_curve_and_stops_at_target(self, lab: Cluster) -> None:
        train = str(ROOT / "examples" / "train.py")
        job = submit(lab, train, "--steps", "3000", target="0.93")

        def forecast() -> StopForecast | None:
            turn(lab)
            refit()
            return StopForecast.objects.filter(job=job, evaluations__gte=6).first()

        eventually(lambda: forecast() is not None or state_of(job) == "succeeded")
        seen = StopForecast.objects.get(job=job)
        # The estimate depends on the training so far, but is never above the cap.
        assert seen.source in ("fitted", "cap", "measured")
        assert seen.low <= seen.iterations <= seen.high <= 3000
        eventually(lambda: turn(lab) and state_of(job) == "succeeded")
        history = MetricHistory.objects.get(job=job)
        assert history.is_met
        assert history.refused == ""
        steps = [step for step, _ in history.points]
        # All evaluations of all leases are stored.
        assert steps == list(range(20, steps[-1] + 1, 20))
        assert steps[-1] < 3000
        assert [metric >= 0.93 for _, metric in history.points].count(True) == 1


class TestInvalidEvaluations:
    def test_are_rejected_with_reason(self, lab: Cluster) -> None:
        job = submit(lab, "-c", HOSTILE, target="0.9")
        reasons: set[str] = set()

        def noted() -> bool:
            turn(lab)
            refit()
            reasons.update(MetricHistory.objects.filter(job=job).values_list("refused", flat=True))
            return state_of(job) == "succeeded"

        eventually(noted)
        history = MetricHistory.objects.get(job=job)
        assert (history.points, history.evaluations) == ([], 0)
        assert not StopForecast.objects.exists()
        assert len(reasons - {""}) >= 4
