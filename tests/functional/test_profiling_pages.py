"""Profiling runs in lists, on the job's page, on its type's page, and over REST."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from scheduling.models import Job, Pool, Profile
from tests.factories import BEGIN
from tests.functional.operate_stage import edit, operate_stage
from tests.functional.visitors import Town, town


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    place = town()
    Pool.objects.update(profiling_s=300)
    return place


@pytest.fixture
def profile(place: Town) -> Profile:
    return place.cluster.profile("north", "gru", v100=1000)


@pytest.fixture
def job(place: Town, profile: Profile) -> Job:
    return place.cluster.submit("north", 8, 60, profile=profile)


@pytest.fixture
def run(place: Town, job: Job) -> Job:
    return place.cluster.submit(
        "north", 1, 60, profile=job.profile, profiling_s=150, profiled_for=job
    )


def text(client: Client, path: str, status: int = 200) -> str:
    page = client.get(path)
    assert page.status_code == status
    return " ".join(page.content.decode().split())


class TestProfilingRun:
    def test_job_page_names_its_type_and_waiting_job(self, place: Town, job: Job, run: Job) -> None:
        shown = text(place.owner, f"/jobs/{run.uid}/")
        assert (
            'A profiling run of job type <a href="/t/north/profiles/gru/?pool=pool-1">gru</a>.'
            in shown
        )
        assert "It ends after 2 min 30 s on GPUs" in shown
        assert f'<a href="/jobs/{job.uid}/">{job.name}</a> was unknown' in shown

    def test_has_no_estimate(self, place: Town, run: Job) -> None:
        Job.objects.filter(pk=run.pk).update(estimate_s=150, estimate_source="profiling")
        shown = text(place.owner, f"/jobs/{run.uid}/")
        assert "xpected" not in shown
        assert place.owner.get(f"/api/v1/jobs/{run.uid}").json()["estimate"] is None

    def test_is_marked_in_job_list(self, place: Town, run: Job) -> None:
        assert run.pk
        for query in ("", "?state=pending"):
            shown = text(place.owner, f"/t/north/jobs/{query}")
            assert shown.count("profiling run of gru") == 1

    def test_is_marked_in_api(self, place: Town, job: Job, run: Job) -> None:
        lasts = {
            one["id"]: one["profiling_s"]
            for one in place.owner.get("/api/v1/jobs").json()["results"]
        }
        assert lasts == {str(job.uid): 0, str(run.uid): 150}


class TestProfiledJob:
    def test_links_to_its_profiling_run(self, place: Town, job: Job, run: Job) -> None:
        shown = text(place.owner, f"/jobs/{job.uid}/")
        assert f'Its job type is being profiled by <a href="/jobs/{run.uid}/">' in shown

    def test_omits_run_once_job_started_or_run_ended(self, place: Town, job: Job, run: Job) -> None:
        Job.objects.filter(pk=run.pk).update(state="succeeded", ended_at=BEGIN)
        assert 'id="profiling"' not in text(place.owner, f"/jobs/{job.uid}/")
        Job.objects.filter(pk=run.pk).update(state="running")
        Job.objects.filter(pk=job.pk).update(terms=1)
        assert 'id="profiling"' not in text(place.owner, f"/jobs/{job.uid}/")


class TestProfilePage:
    PAGE = "/t/north/profiles/gru/?pool=pool-1"
    REST = "/api/v1/pools/pool-1/profiles/north/gru"

    def test_shows_latest_runs_with_state(self, place: Town, profile: Profile, run: Job) -> None:
        assert "A profiling run on 1 GPU is queued." in text(place.owner, self.PAGE)
        Job.objects.filter(pk=run.pk).update(state="running")
        assert "A profiling run on 1 GPU is running." in text(place.owner, self.PAGE)
        ended = {"state": "succeeded", "ended_at": BEGIN + timedelta(hours=1)}
        Job.objects.filter(pk=run.pk).update(**ended)
        second = place.cluster.submit("north", 2, 60, profile=profile, profiling_s=150)
        Job.objects.filter(pk=second.pk).update(**ended)
        shown = text(place.owner, self.PAGE)
        assert "Last profiled on 2 GPUs." in shown
        assert f"/jobs/{run.uid}/" in shown
        assert place.owner.get(self.REST).json()["profiling_runs"] == [
            {
                "job": str(one.uid), "gpus": one.gpus, "state": "succeeded", "phase": "succeeded",
                "ended_at": "2030-01-01T01:00:00.000000Z",
            }
            for one in (second, run)
        ]  # fmt: skip

    def test_omits_cancelled_runs(self, place: Town, run: Job) -> None:
        Job.objects.filter(pk=run.pk).update(state="cancelled", ended_at=BEGIN)
        assert 'id="profiling"' not in text(place.owner, self.PAGE)

    def test_returns_404_to_other_tenants(self, place: Town, run: Job) -> None:
        text(place.neighbour, self.PAGE, 404)
        text(place.neighbour, f"/jobs/{run.uid}/", 404)


class TestPoolSetting:
    @pytest.mark.usefixtures("db")
    def test_operator_sets_profiling_time_within_bounds(self) -> None:
        stage, one = operate_stage(), "operate/pools/{pool}"
        after = edit(stage, "PATCH", one, {"profiling_s": 300}, seen=one).json()
        assert (after["profiling_s"], Pool.objects.get().profiling_s) == (300, 300)
        for wrong in (-1, 3601, True, None):
            refused = edit(stage, "PATCH", one, {"profiling_s": wrong}, seen=one)
            assert [row["field"] for row in refused.json()["errors"]] == ["profiling_s"]
        assert Pool.objects.get().profiling_s == 300
