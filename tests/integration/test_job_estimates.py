"""Test that measurements of job types and durations of runs become the rounds' estimates."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling.engine.estimates import SIZES_MOST, keep_runs
from scheduling.models import Job, Measurement, Profile, Round, RunRecord, VirtualSpeeds
from scheduling.selectors.jobs.estimates import read_estimate
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

TRUE = {"k80": 1000, "v100": 4000}
ITERATION_US = 250_000
PER_S = SECOND_US // ITERATION_US


@pytest.fixture
def lab() -> Cluster:
    lab = cluster({"a": 4, "b": 4}, nodes=1, lease_s=60, policy="sjf")
    lab.add_type("k80", nodes=1, gpus=4, quotas={"a": 4, "b": 4})
    return lab


def job_type(lab: Cluster, name: str = "gru") -> Profile:
    profile = lab.profile("a", name, **TRUE)
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups=TRUE, iteration_us=ITERATION_US
    )
    return profile


def submit(lab: Cluster, profile: Profile, seconds: int, **fields: Any) -> Job:
    given: dict[str, Any] = {"gpus": 1, "gpu_types": ["v100"], **fields}
    return lab.submit("a", profile=profile, duration_s=seconds, **given)


def play(lab: Cluster, rounds: int) -> None:
    for _ in range(rounds):
        lab.round(after_s=10)


def last(lab: Cluster) -> Snapshot:
    return round_values(Round.objects.filter(pool=lab.pool).latest("number"))[0]


def estimates(lab: Cluster) -> dict[int, tuple[int | None, JobEstimate]]:
    snapshot = last(lab)
    work = {job.id: job.estimate_us for job in snapshot.jobs}
    return {one.id: (work[one.id], one) for one in snapshot.estimates}


class TestRoundEstimates:
    def test_use_measured_iterations_of_job(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 800)
        lab.round()
        play(lab, 6)
        job = submit(lab, profile, 500, iterations=500 * PER_S)
        play(lab, 1)
        work_us, one = estimates(lab)[job.pk]
        assert work_us == pytest.approx(500 * SECOND_US, rel=0.01)
        assert one.source is EstimateSource.MEASURED
        assert one.error_milli <= 20
        assert one.is_profiled
        view = read_estimate(job)
        assert view is not None
        # On a V100, the only type that the job accepts, the same work takes a quarter of the time.
        assert view.work_s == pytest.approx(125, rel=0.01)
        assert (view.source, view.basis) == (EstimateSource.MEASURED, 5)

    def test_use_earlier_runs_of_job_type(self, lab: Cluster) -> None:
        profile = job_type(lab)
        for seconds in (390, 400, 412):
            submit(lab, profile, seconds)
        lab.round()
        play(lab, 14)
        assert not Job.objects.exclude(state="succeeded").exists()
        job = submit(lab, profile, 405, gpu_types=["k80"])
        play(lab, 1)
        work_us, one = estimates(lab)[job.pk]
        assert work_us == pytest.approx(405 * SECOND_US, rel=0.05)
        assert one.source is EstimateSource.HISTORY
        assert 50 <= one.error_milli <= 100

    def test_shortest_job_first_uses_estimates(self, lab: Cluster) -> None:
        short, long = job_type(lab, "short"), job_type(lab, "long")
        for profile, seconds in ((short, 80), (long, 800)):
            submit(lab, profile, seconds, gpus=4)
        lab.round()
        play(lab, 40)
        assert not Job.objects.exclude(state="succeeded").exists()
        late = [submit(lab, long, 800, gpus=4), submit(lab, short, 80, gpus=4)]
        play(lab, 1)
        for job in late:
            job.refresh_from_db()
        assert [job.state for job in late] == ["pending", "running"]
        assert all(replay_stored_round(row).same for row in Round.objects.filter(pool=lab.pool))

    def test_replay_needs_no_measurement(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 200)
        lab.round()
        play(lab, 8)
        submit(lab, profile, 200, iterations=200 * PER_S)
        play(lab, 2)
        assert last(lab).estimates
        Measurement.objects.all().delete()
        RunRecord.objects.all().delete()
        assert all(replay_stored_round(row).same for row in Round.objects.filter(pool=lab.pool))

    def test_are_empty_without_job_type_or_history(self, lab: Cluster) -> None:
        for profile in (None, lab.profile("a", "new", **TRUE)):
            lab.submit("a", 1, 300, profile=profile)
            lab.submit("a", 1, 300, profile=profile, estimate_s=70, iterations=9)
        lab.round()
        snapshot = last(lab)
        assert snapshot.estimates == ()
        assert snapshot.schema < 8
        assert [job.estimate_us for job in snapshot.jobs] == [None, 70 * SECOND_US] * 2
        seen = [read_estimate(job) for job in Job.objects.order_by("id")]
        assert [one and one.source.value for one in seen] == [None, "declared"] * 2

    def test_keep_declared_value_with_observed_error(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 400, estimate_s=500)
        lab.round()
        play(lab, 14)
        job = submit(lab, profile, 400, estimate_s=500)
        play(lab, 1)
        work_us, one = estimates(lab)[job.pk]
        assert work_us == 500 * SECOND_US
        assert (one.source, one.error_milli) == (EstimateSource.DECLARED, 200)

    def test_use_cap_for_job_that_stops_by_metric(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 800)
        lab.round()
        play(lab, 6)
        job = submit(
            lab, profile, 300, iterations=500 * PER_S, stop_metric="loss", stop_rule="at_most",
            stop_value="0.1",
        )  # fmt: skip
        play(lab, 1)
        work_us, one = estimates(lab)[job.pk]
        assert work_us == pytest.approx(500 * SECOND_US, rel=0.01)
        assert (one.source, one.error_milli) == (EstimateSource.CAP, ONE_MILLI)

    def test_stay_stable_while_reports_agree(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 3000)
        lab.round()
        play(lab, 6)
        job = submit(lab, profile, 3000, iterations=3000 * PER_S)
        amounts = set()
        for _ in range(10):
            play(lab, 1)
            amounts.add(estimates(lab)[job.pk][0])
        assert len(amounts) <= 3


class TestRuns:
    def test_are_stored_in_gpu_time_by_type(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile, 400)
        lab.round()
        play(lab, 12)
        (row,) = RunRecord.objects.all()
        assert (row.gpus, row.tenant_id) == (1, profile.tenant_id)
        assert row.runs == [{"held": {"v100": 100 * SECOND_US}, "declared_s": None}]
        job = submit(lab, profile, 400)
        view = read_estimate(job)
        assert view is not None
        assert view.work_s == 100
        profile.speedups = {"k80": 1000, "v100": 8000}
        profile.save()
        job.refresh_from_db()
        again = read_estimate(job)
        assert again is not None
        assert again.work_s == 100

    def test_omit_failed_runs(self, lab: Cluster) -> None:
        profile = job_type(lab)
        job = submit(lab, profile, 100)
        type(job.virtual_work).objects.filter(job=job).update(exit_code=1)
        lab.round()
        play(lab, 8)
        job.refresh_from_db()
        assert job.state == "failed"
        assert not RunRecord.objects.exists()

    def test_are_bounded(self, lab: Cluster) -> None:
        profile = job_type(lab)
        RunRecord.objects.bulk_create(
            RunRecord(
                tenant=profile.tenant, profile=profile, gpus=100 + n, ended_at=lab.at,
                runs=[{"held": {"v100": n}, "declared_s": None}],
            )
            for n in range(SIZES_MOST)
        )  # fmt: skip
        for _ in range(2):
            submit(lab, profile, 40, gpus=2)
        lab.round()
        play(lab, 5)
        assert RunRecord.objects.count() == SIZES_MOST
        row = RunRecord.objects.get(gpus=2)
        assert len(row.runs) == 2
        row.runs = row.runs * 15
        row.save()
        for _ in range(2):
            submit(lab, profile, 44, gpus=2)
        play(lab, 5)
        row.refresh_from_db()
        assert len(row.runs) == 31
        assert [run["held"]["v100"] for run in row.runs[-3:]] == [10_000_000, *[11_000_000] * 2]

    def test_need_no_query_without_jobs(self, lab: Cluster, django_assert_num_queries: Any) -> None:
        assert lab.pool.pk
        with django_assert_num_queries(0):
            keep_runs([])
        assert connection.queries_limit
