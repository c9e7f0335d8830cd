"""Test how reported stopping metrics determine the work that rounds expect of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command

from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling import tasks
from scheduling.engine.refits import due_histories, is_refit_due, refit
from scheduling.management.commands import refit_curves
from scheduling.models import Job, MetricHistory, Profile, Round, StopForecast, VirtualSpeeds
from scheduling.selectors.jobs.estimates import read_estimate
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from tests.factories import Cluster, cluster
from tests.stages import staged

SPEEDS = {"v100": 1000}
ITERATION_US = 250_000
PER_S = SECOND_US // ITERATION_US
TRUE_S, CAP_S = 1200, 2000


def small_lab() -> Cluster:
    return cluster({"a": 4, "b": 4}, nodes=2, lease_s=60, policy="sjf")


lab = staged(small_lab)


def job_type(lab: Cluster, tenant: str = "a") -> Profile:
    profile = lab.profile(tenant, "gru", **SPEEDS)
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups=SPEEDS, iteration_us=ITERATION_US
    )
    return profile


def submit(lab: Cluster, profile: Profile, seconds: int = TRUE_S, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "iterations": CAP_S * PER_S, "stop_metric": "accuracy", "stop_rule": "at_least",
        "stop_value": "0.93", "gpu_types": ["v100"], **fields,
    }  # fmt: skip
    job = lab.submit(profile.tenant.slug, 1, seconds, profile=profile, **given)
    job.refresh_from_db()
    return job


def play(lab: Cluster, rounds: int) -> None:
    """Run rounds, and fit the curves between them."""
    for _ in range(rounds):
        lab.round(after_s=10)
        refit()


def estimate(lab: Cluster, job: Job) -> tuple[int | None, JobEstimate]:
    """Return the last round's estimate of a job."""
    snapshot: Snapshot = round_values(Round.objects.filter(pool=lab.pool).latest("number"))[0]
    work = {one.id: one.estimate_us for one in snapshot.jobs}
    (found,) = (one for one in snapshot.estimates if one.id == job.pk)
    return work[job.pk], found


class TestRoundEstimates:
    def test_use_cap_below_six_evaluations(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab))
        lab.round()
        play(lab, 6)
        history, forecast = MetricHistory.objects.get(), StopForecast.objects.get()
        assert (history.job_id, history.tenant_id) == (job.pk, job.tenant_id)
        assert 0 < history.evaluations < 6
        assert forecast.source == "cap"
        assert forecast.note.startswith(f"the cap: {forecast.evaluations} evaluations are too few")
        work_us, one = estimate(lab, job)
        assert work_us == pytest.approx(CAP_S * SECOND_US, rel=0.01)
        assert (one.source, one.error_milli) == (EstimateSource.CAP, ONE_MILLI)

    def test_predict_stop_half_way_and_replay_without_history(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab))
        lab.round()
        play(lab, TRUE_S // 2 // 10)
        work_us, one = estimate(lab, job)
        assert work_us == pytest.approx(TRUE_S * SECOND_US, rel=0.1)
        assert one.source is EstimateSource.FITTED
        assert 0 < one.error_milli < 500
        view = read_estimate(job)
        assert view is not None
        assert view.work_s == pytest.approx(TRUE_S, rel=0.1)
        MetricHistory.objects.all().delete()
        StopForecast.objects.all().delete()
        assert all(replay_stored_round(row).same for row in Round.objects.filter(pool=lab.pool))

    def test_predict_stop_from_loss(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab), stop_metric="loss", stop_rule="at_most", stop_value="0.25")
        lab.round()
        play(lab, TRUE_S // 2 // 10)
        assert estimate(lab, job)[0] == pytest.approx(TRUE_S * SECOND_US, rel=0.15)

    def test_history_spans_leases_and_ignores_repeats(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab))
        lab.round()
        play(lab, 8)
        before = MetricHistory.objects.get().points
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        play(lab, 2)
        after = MetricHistory.objects.get()
        assert after.points[: len(before)] == before
        steps = [step for step, _ in after.points]
        assert steps == sorted(set(steps))
        assert not due_histories().exists()


class TestRefits:
    def test_alternate_between_tenants(self, lab: Cluster) -> None:
        many = [evaluated(lab, "a", count) for count in range(3)]
        one = evaluated(lab, "b", 0)
        assert [row.job_id for row in due_histories()] == [many[0], one, *many[1:]]
        assert refit(most=2) == 2
        assert set(StopForecast.objects.values_list("job_id", flat=True)) == {many[0], one}
        assert refit() == 2
        assert refit() == 0

    def test_are_due_after_enough_new_evaluations(self, lab: Cluster) -> None:
        job = evaluated(lab, "a", 0, points=100)
        assert refit() == 1
        history = MetricHistory.objects.get(job=job)
        for later, is_due in ((10_100, False), (10_500, True)):
            history.iteration = later
            history.save()
            assert is_refit_due() is is_due
        Job.objects.filter(pk=job).update(state="succeeded")
        assert not is_refit_due()

    def test_use_cap_if_no_curve_fits(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> None:
            raise FloatingPointError

        monkeypatch.setattr("evenshare_core.estimation.curves.estimate_stop", fail)
        evaluated(lab, "a", 0)
        refit()
        row = StopForecast.objects.get()
        assert (row.source, row.iterations, row.error_milli) == ("cap", 50_000, ONE_MILLI)
        assert row.note == "the cap: no curve could be fitted to its evaluations"

    @pytest.mark.parametrize("metrics", [[0.0] * 40, [(-1.0) ** n * 9.9e11 for n in range(40)]])
    def test_stay_within_cap_for_extreme_metrics(self, lab: Cluster, metrics: list[float]) -> None:
        job = evaluated(lab, "a", 0)
        MetricHistory.objects.filter(job=job).update(
            points=[[100 * n, metric] for n, metric in enumerate(metrics, 1)], evaluations=40
        )
        assert refit() == 1
        row = StopForecast.objects.get()
        assert row.low <= row.iterations <= row.high <= 50_000

    def test_run_in_separate_process_when_due(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[str] = []

        class Runs:
            def poll(self) -> None:
                return None

        def begin(command: str, *_: str) -> Runs:
            started.append(command)
            return Runs()

        monkeypatch.setattr(tasks, "_started", begin)
        monkeypatch.setattr(tasks, "_refits", [])
        assert tasks.refits() == 0
        evaluated(lab, "a", 0)
        assert tasks.refits() == 1
        assert tasks.refits() == 0
        assert started == ["refit_curves"]

    def test_command_ends_when_nothing_is_left(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        evaluated(lab, "a", 0)
        monkeypatch.setattr(refit_curves, "IDLE_S", 0.0)
        monkeypatch.setattr(refit_curves, "PAUSE_S", 0.0)
        monkeypatch.setattr("os.nice", lambda _: 0)
        call_command("refit_curves")
        assert StopForecast.objects.count() == 1


def evaluated(lab: Cluster, tenant: str, number: int, *, points: int = 3) -> int:
    """Create a job with evaluations, without a round."""
    job = lab.submit(
        tenant, 1, 60, comment=str(number), iterations=50_000, stop_metric="accuracy",
        stop_rule="at_least", stop_value="0.93",
    )  # fmt: skip
    rows = [[100 * n, 0.9 - 0.5 / n] for n in range(1, points + 1)]
    MetricHistory.objects.create(
        job=job, tenant_id=job.tenant_id, points=rows, evaluations=points, iteration=100 * points
    )
    return job.pk
