"""Profiling runs: jobs that find out how fast a job type is while a larger one waits."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import SECOND_US
from scheduling.models import Job, Measurement, Profile, Round, VirtualSpeeds
from scheduling.selectors.replay import replay_stored_round
from scheduling.selectors.stored_rounds import round_values
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

ITERATION_US = 250_000
PER_S = SECOND_US // ITERATION_US
HALF_S = 150


@pytest.fixture
def lab() -> Cluster:
    """Eight GPUs on one node, of which another job has four for long."""
    lab = cluster(
        {"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=600, policy="unisched", profiling_s=2 * HALF_S
    )
    lab.submit("b", 4, 5000)
    lab.round()
    return lab


def job_type(lab: Cluster, name: str = "gru", *, reports: bool = True) -> Profile:
    profile = lab.profile("a", name, v100=1000)
    if reports:
        VirtualSpeeds.objects.create(
            profile=profile, tenant=profile.tenant, speedups=profile.speedups,
            iteration_us=ITERATION_US,
        )  # fmt: skip
    return profile


def submit(lab: Cluster, profile: Profile, **fields: Any) -> Job:
    given: dict[str, Any] = {"gpus": 8, "duration_s": 500, "iterations": 500 * PER_S, **fields}
    gpus, duration_s = given.pop("gpus"), given.pop("duration_s")
    return lab.submit("a", gpus, duration_s, profile=profile, **given)


def runs(profile: Profile) -> list[Job]:
    return list(Job.objects.filter(profile=profile, profiling_s__gt=0).order_by("id"))


def ran_s(run: Job) -> float:
    """How long a run held its GPUs, which it did once."""
    assert run.ended_at is not None
    assert run.first_started_at is not None
    return (run.ended_at - run.first_started_at).total_seconds()


def play(lab: Cluster, seconds: int) -> None:
    for _ in range(seconds // 10):
        lab.round(after_s=10)


def last(lab: Cluster) -> Snapshot:
    return round_values(Round.objects.filter(pool=lab.pool).latest("number"))[0]


def estimate(lab: Cluster, job: Job) -> JobEstimate | None:
    return next((one for one in last(lab).estimates if one.id == job.pk), None)


class TestAJobThatWaits:
    def test_is_estimated_by_its_types_runs_on_one_gpu_and_on_two(self, lab: Cluster) -> None:
        profile = job_type(lab)
        job = submit(lab, profile)
        lab.round(after_s=10)
        assert (runs(profile), estimate(lab, job)) == ([], None)
        lab.round(after_s=10)
        (one,) = runs(profile)
        assert (one.gpus, one.profiling_s, one.profiled_for) == (1, HALF_S, job)
        assert last(lab).profilers == (one.pk,)
        play(lab, HALF_S + 20)
        one, two = runs(profile)
        assert (one.state, two.gpus) == ("succeeded", 2)
        assert ran_s(one) == HALF_S
        play(lab, HALF_S + 20)
        assert [run.state for run in runs(profile)] == ["succeeded", "succeeded"]
        made = estimate(lab, job)
        assert made is not None
        assert (made.source, made.is_profiled) == (EstimateSource.FITTED, True)
        known = next(one for one in last(lab).jobs if one.id == job.pk)
        assert known.estimate_us == pytest.approx(500 * SECOND_US, rel=0.01)
        measured = Measurement.objects.filter(profile=profile, kind="iteration")
        assert set(measured.values_list("gpus", flat=True)) == {1, 2}
        for row in Round.objects.filter(pool=lab.pool):
            assert replay_stored_round(row).same
