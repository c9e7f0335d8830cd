"""Test forecasts of when a metric stops a job: on the job's page, in REST, and who sees them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.engine.refits import refit
from scheduling.models import Job, MetricHistory, StopForecast, VirtualSpeeds
from tests.factories import BEGIN
from tests.functional.visitors import Town, town

ITERATION_US = 250_000
PER_S = 10**6 // ITERATION_US
TRUE_S, CAP_S = 1200, 2000


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    return town()


def submit(place: Town, **fields: Any) -> Job:
    profile = place.cluster.profile("north", "gru", v100=1000)
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups={"v100": 1000}, iteration_us=ITERATION_US
    )
    given: dict[str, Any] = {
        "iterations": CAP_S * PER_S, "stop_metric": "accuracy", "stop_rule": "at_least",
        "stop_value": "0.93", "gpu_types": ["v100"], **fields,
    }  # fmt: skip
    return place.cluster.submit("north", 1, TRUE_S, profile=profile, **given)


def shown(place: Town, job: Job) -> str:
    page = place.owner.get(f"/jobs/{job.uid}/")
    assert page.status_code == 200
    return " ".join(page.content.decode().split())


class TestJobWithStopMetric:
    def test_page_and_api_show_same_forecast(self, place: Town) -> None:
        job = submit(place)
        place.play(61)
        assert refit() == 1
        stop = StopForecast.objects.get(job=job)
        assert stop.source == "fitted"
        words = (
            f"Expected to reach accuracy &gt;= 0.93 after {stop.iterations:,} iterations"
            f" (10 % to 90 %: {stop.low:,} to {stop.high:,}), from {stop.evaluations} evaluations"
        )
        page = shown(place, job)
        assert words in page
        assert "As a table" in page
        assert "Expected to run" in page
        assert "by the curve of its accuracy and" in page
        row = place.owner.get(f"/api/v1/jobs/{job.uid}").json()
        assert row["stop_estimate"] == {
            "iterations": stop.iterations, "low": stop.low, "high": stop.high,
            "error_percent": stop.error_milli / 10, "source": "fitted", "note": "",
            "evaluations": stop.evaluations, "iteration": stop.iteration,
        }  # fmt: skip
        assert row["estimate"]["source"] == "fitted"
        assert row["estimate"]["seconds"] == pytest.approx(stop.iterations / PER_S, rel=0.01)

    def test_uses_iteration_cap_with_few_evaluations(self, place: Town) -> None:
        job = submit(place)
        assert "No evaluation of accuracy was reported" in shown(place, job)
        assert "count all of its 8,000 iterations" in shown(place, job)
        place.play(8)
        refit()
        count = StopForecast.objects.get().evaluations
        assert 0 < count < 6
        words = f"all of its 8,000 iterations: {count} evaluations are too few, 6 are needed"
        assert words in shown(place, job)
        row = place.owner.get(f"/api/v1/jobs/{job.uid}").json()["stop_estimate"]
        assert (row["source"], row["iterations"]) == ("cap", 8000)

    def test_shows_whether_metric_was_reached(self, place: Town) -> None:
        job = submit(place)
        place.play(125)
        refit()
        assert Job.objects.get().state == "succeeded"
        last = MetricHistory.objects.get()
        assert last.is_met
        words = f"Reached accuracy &gt;= 0.93 after {last.iteration:,} iterations"
        assert words in shown(place, job)
        assert place.owner.get(f"/api/v1/jobs/{job.uid}").json()["stop_estimate"] is None
        Job.objects.update(stop_value="0.99")
        assert "Ended without accuracy &gt;= 0.99: 0.93" in shown(place, job)

    def test_shows_rejected_report(self, place: Town) -> None:
        job = submit(place)
        MetricHistory.objects.create(job=job, tenant_id=job.tenant_id, refused="is no JSON")
        assert "A report was ignored: it is no JSON." in shown(place, job)

    def test_returns_404_to_other_tenants(self, place: Town) -> None:
        job = submit(place)
        place.play(30)
        refit()
        for who in (place.neighbour, place.outsider):
            assert who.get(f"/jobs/{job.uid}/").status_code == 404
            assert who.get(f"/api/v1/jobs/{job.uid}").status_code == 404
        assert place.mate.get(f"/jobs/{job.uid}/").status_code == 200


class TestJobWithoutStopMetric:
    def test_loads_no_chart(self, place: Town) -> None:
        job = place.cluster.submit("north", 1, 60, iterations=9, submitted_by=None)
        page = shown(place, job)
        assert 'id="metric"' not in page
        assert "charts.js" not in page
        assert place.owner.get(f"/api/v1/jobs/{job.uid}").json()["stop_estimate"] is None

    def test_list_needs_no_forecast_query(
        self, place: Town, django_assert_max_num_queries: Any
    ) -> None:
        place.cluster.submit("north", 1, 60)
        with django_assert_max_num_queries(40) as seen:
            assert place.owner.get("/api/v1/jobs").status_code == 200
        assert not [one for one in seen if "stopforecast" in one["sql"]]
        assert place.cluster.at == BEGIN
