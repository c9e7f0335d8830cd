"""Test profiling runs as real processes: programs see that they are profiled, and end on time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.domain.estimates import EstimateSource
from scheduling.models import Job, Lease, Measurement
from scheduling.selectors.jobs.estimates import read_estimate
from tests.factories import Cluster, cluster
from tests.integration.local_world import local_world, processes_below
from tests.integration.test_local_executor_rounds import state_of, turn
from tests.tools import eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

# A program that trains without end in its own folder.
TRAIN = """
import os, time
from evenshare import lease
print("profiling:", os.environ.get("EVENSHARE_PROFILING"), flush=True)
state = lease.resume(default={"step": 0})
for step in lease.steps(state["step"], 10**6):
    time.sleep(0.02)
    lease.store({"step": step + 1})
"""
SLEEP = "import time; time.sleep(600)"
HALF_S = 3


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Cluster]:
    with local_world(tmp_path / "jobs"):
        lengths: dict[str, Any] = {"round_s": 1, "lease_s": 600, "grace_s": 600}
        made = cluster(
            {"a": 4, "b": 4}, nodes=1, gpus=8, executor="local", policy="unisched",
            profiling_s=2 * HALF_S, **lengths,
        )  # fmt: skip
        yield made
        for job in Job.objects.filter(state__in=Job.ACTIVE_STATES):
            Job.objects.filter(pk=job.pk).update(cancel_asked_at=job.submitted_at)
        eventually(lambda: turn(made) and not Lease.objects.exclude(state="ended").exists())
        eventually(lambda: not processes_below(tmp_path / "jobs"))


def waiting_job(lab: Cluster, program: str) -> Job:
    """Submit a job of four GPUs of a new type, while another tenant's job leaves only two GPUs."""
    turn(lab)
    other = lab.submit("b", 6, 600, command=["python", "-c", SLEEP])
    eventually(lambda: turn(lab) and state_of(other) == "running")
    profile = lab.profile("a", "net", v100=1000)
    return lab.submit(
        "a", 4, 1, command=["python", "-c", program], profile=profile, gpu_types=["v100"],
        environment={"LEVEL": "7"}, iterations=1000, cpus=8,
    )  # fmt: skip


class TestWaitingJob:
    def test_is_estimated_by_two_runs_that_are_ended(self, lab: Cluster, tmp_path: Path) -> None:
        job = waiting_job(lab, TRAIN)
        over = Job.objects.filter(profiling_s=HALF_S, state="succeeded").order_by("id")
        eventually(lambda: turn(lab) and over.count() == 2)
        assert state_of(job) == "pending"
        assert [(run.gpus, run.cpus, run.environment) for run in over] == [
            (1, 2, {"LEVEL": "7"}), (2, 4, {"LEVEL": "7"}),
        ]  # fmt: skip
        for run in over:
            (lease,) = Lease.objects.filter(job=run)
            assert lease.end_reason == "profiled"
            assert lease.ended_at is not None
            assert lease.started_at is not None
            assert (lease.ended_at - lease.started_at).total_seconds() >= HALF_S
            assert (tmp_path / f"jobs/{run.pk}/checkpoints").is_dir()
            log = (tmp_path / f"jobs/{run.pk}/leases/1/out.log").read_text()
            assert log.startswith("profiling: 1\n")
        assert not (tmp_path / f"jobs/{job.pk}").exists()
        measured = Measurement.objects.filter(kind="iteration")
        assert set(measured.values_list("gpus", flat=True)) == {1, 2}
        estimate = read_estimate(Job.objects.select_related("profile").get(pk=job.pk))
        assert estimate is not None
        assert estimate.source is EstimateSource.FITTED
        assert estimate.work_s >= 1000 * 0.02


class TestProgramWithoutReports:
    def test_is_ended_and_not_profiled_again(self, lab: Cluster) -> None:
        waiting_job(lab, SLEEP)
        runs = Job.objects.filter(profiling_s=HALF_S)
        eventually(lambda: turn(lab) and runs.filter(state="succeeded").exists())
        before = lab.at
        eventually(lambda: turn(lab) and (lab.at - before).total_seconds() > HALF_S)
        assert runs.count() == 1
        assert not Measurement.objects.filter(kind="iteration").exists()
