"""Test that real processes report their iterations in files, and that rounds measure them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.models import IterationReading, Job, Lease, Measurement, MeasurementNote
from tests.factories import Cluster, cluster
from tests.integration.local_world import local_world, processes_below
from tests.integration.test_local_executor_rounds import state_of, turn
from tests.tools import eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

TRAIN = """
import sys, time
from evenshare import lease
state = lease.resume(default={"step": 0})
for step in lease.steps(state["step"], int(sys.argv[1])):
    time.sleep(0.02)
    lease.memory(123_456_789)
    lease.store({"step": step + 1})
"""
# The program reports each of these values in turn, then ends.
HOSTILE = """
import json, os, pathlib, time
place = pathlib.Path(os.environ["EVENSHARE_ITERATIONS"])
good = dict(version=1, lease=1, iterations=9, time_us=9, first_us=None, suspended_us=None,
            memory_bytes=0)
for said in ("{", "x" * 10**6, json.dumps({**good, "time_us": 2**52}), json.dumps([good])):
    place.write_text(said)
    time.sleep(1.5)
place.unlink()
os.mkfifo(place)
time.sleep(1.5)
place.unlink()
place.mkdir()
time.sleep(1.5)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Cluster]:
    with local_world(tmp_path / "jobs"):
        lengths: dict[str, Any] = {"round_s": 1, "lease_s": 3, "grace_s": 600}
        made = cluster({"a": 2}, nodes=1, gpus=2, executor="local", policy="ltgf", **lengths)
        yield made
        for lease in Lease.objects.exclude(state="ended"):
            Job.objects.filter(pk=lease.job_id).update(cancel_asked_at=lease.granted_at)
        eventually(lambda: turn(made) and not Lease.objects.exclude(state="ended").exists())
        eventually(lambda: not processes_below(tmp_path / "jobs"))


def submit(lab: Cluster, program: str, *arguments: str) -> Job:
    turn(lab)
    profile = lab.profile("a", "net", v100=1000)
    command = ["python", "-c", program, *arguments]
    return lab.submit("a", 1, 1, command=command, profile=profile, gpu_types=["v100"])


class TestTraining:
    def test_is_measured_while_running_and_to_its_end(self, lab: Cluster) -> None:
        job = submit(lab, TRAIN, "150")
        eventually(lambda: turn(lab) and Measurement.objects.filter(kind="iteration").exists())
        assert state_of(job) == "running"
        eventually(lambda: turn(lab) and state_of(job) == "succeeded")
        row = Measurement.objects.get(kind="iteration")
        leases = Lease.objects.filter(job=job).count()
        # The first iteration of each lease is left out, and so is the iteration that the lease's
        # end interrupted.
        assert 100 <= row.iterations <= 150 - leases
        assert row.reports >= 2
        assert row.mean >= 20_000_000
        assert (row.gpu_type, row.gpus, row.several_nodes) == ("v100", 1, False)
        assert row.memory_bytes == 123_456_789
        resume = Measurement.objects.get(kind="resume")
        assert (resume.reports, resume.gpu_type) == (leases, "")
        assert resume.mean >= 20_000
        assert not MeasurementNote.objects.exists()

    def test_cancelled_run_reports_suspend_cost(self, lab: Cluster) -> None:
        job = submit(lab, TRAIN, "100000")
        eventually(lambda: turn(lab) and IterationReading.objects.exists())
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        eventually(lambda: turn(lab) and state_of(job) == "cancelled")
        assert Measurement.objects.get(kind="suspend").reports == 1


class TestInvalidIterations:
    def test_are_rejected_and_noted_once(self, lab: Cluster) -> None:
        job = submit(lab, HOSTILE)
        eventually(lambda: turn(lab) and state_of(job) == "succeeded")
        assert not Measurement.objects.exists()
        note = MeasurementNote.objects.get()
        assert (note.kind, note.job_id) == ("refused", job.pk)
        assert note.data["why"]
