"""A job's expected run time, on its page and in REST."""

from __future__ import annotations

import pytest

from evenshare_core.domain.estimates import EstimateSource
from portal.jobs.text.estimates import estimate_text
from scheduling.models import Job, Measurement, RunRecord
from scheduling.selectors.jobs.estimates import EstimateView
from tests.factories import BEGIN
from tests.functional.visitors import Town, town


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    return town()


class TestJob:
    def test_shows_estimate_with_error_and_source(self, place: Town) -> None:
        profile = place.cluster.profile("north", "gru", v100=1000)
        Measurement.objects.create(
            profile=profile, tenant_id=profile.tenant_id, kind="iteration", gpu_type="v100", gpus=2,
            used_reports=14, used_mean=120_000_000, used_deviation=1_000_000, seen_at=BEGIN,
        )  # fmt: skip
        RunRecord.objects.create(
            profile=profile, tenant_id=profile.tenant_id, gpus=4, ended_at=BEGIN,
            runs=[{"held": {"v100": 600 * 10**6}, "declared_s": None}] * 3,
        )  # fmt: skip
        by_count = place.cluster.submit("north", 2, 60, profile=profile, iterations=100_000)
        by_runs = place.cluster.submit("north", 4, 60, profile=profile)
        nobody = place.cluster.submit("north", 8, 60, profile=profile)
        for job, words in (
            (by_count, "Expected to run 3 h 20 min ± 1 %, by its iterations and 14 reports of"),
            (by_runs, "Expected to run 10 min ± 6 %, from 3 measured runs."),
        ):
            assert words in shown(place, job)
        assert "Expected to run" not in shown(place, nobody)
        row = place.owner.get(f"/api/v1/jobs/{by_count.uid}").json()
        assert row["estimate"] == {
            "seconds": 12_000.0, "error_percent": 1.1, "source": "measured", "basis": 14,
            "overhead_seconds": 0.0,
        }  # fmt: skip
        rows = place.owner.get("/api/v1/jobs").json()["results"]
        assert [one["estimate"] and one["estimate"]["source"] for one in rows] == [
            None, "history", "measured",
        ]  # fmt: skip

    def test_ended_job_has_no_estimate(self, place: Town) -> None:
        job = place.cluster.submit("north", 1, 60, estimate_s=90)
        assert "Expected to run 1 min 30 s, as declared." in shown(place, job)
        Job.objects.update(state="succeeded", ended_at=BEGIN)
        assert "Expected to run" not in shown(place, job)
        assert place.owner.get(f"/api/v1/jobs/{job.uid}").json()["estimate"] is None


def shown(place: Town, job: Job) -> str:
    page = place.owner.get(f"/jobs/{job.uid}/")
    assert page.status_code == 200
    return " ".join(page.content.decode().split())


class TestEstimateText:
    @pytest.mark.parametrize(
        ("source", "error", "words"),
        [
            ("fitted", 250, "Expected to run 1 h ± 25 %, by its iterations and 2 reports of their"),
            ("history", 1000, "Expected to run 1 h, from 2 measured runs."),
            ("declared", 120, "Expected to run 1 h ± 12 %, as declared."),
            ("cap", 1000, "Runs at most 1 h: the time of its maximum iterations, by 2 reports."),
        ],
    )
    def test_names_source_and_error(self, source: str, error: int, words: str) -> None:
        view = EstimateView(3600, error, EstimateSource(source), 2, 0)
        assert estimate_text(view).startswith(words)

    def test_is_empty_without_estimate(self) -> None:
        assert estimate_text(None) == ""
