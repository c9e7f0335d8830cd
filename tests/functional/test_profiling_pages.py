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


class TestARun:
    def test_says_on_its_page_what_it_is_and_for_which_job(
        self, place: Town, job: Job, run: Job
    ) -> None:
        shown = text(place.owner, f"/jobs/{run.uid}/")
        assert (
            'A profiling run of job type <a href="/t/north/profiles/gru/?pool=pool-1">gru</a>.'
            in shown
        )
        assert "It ends after 2 min 30 s on GPUs" in shown
        assert f'<a href="/jobs/{job.uid}/">{job.name}</a> was unknown' in shown

    def test_is_not_said_to_be_expected_by_its_owner(self, place: Town, run: Job) -> None:
        Job.objects.filter(pk=run.pk).update(estimate_s=150, estimate_source="profiling")
        shown = text(place.owner, f"/jobs/{run.uid}/")
        assert "xpected" not in shown
        assert place.owner.get(f"/api/v1/jobs/{run.uid}").json()["estimate"] is None

    def test_is_named_in_the_list_among_queued_ones_too(self, place: Town, run: Job) -> None:
        assert run.pk
        for query in ("", "?state=pending"):
            shown = text(place.owner, f"/t/north/jobs/{query}")
            assert shown.count("profiling run of gru") == 1

    def test_is_marked_in_the_api(self, place: Town, job: Job, run: Job) -> None:
        lasts = {
            one["id"]: one["profiling_s"]
            for one in place.owner.get("/api/v1/jobs").json()["results"]
        }
        assert lasts == {str(job.uid): 0, str(run.uid): 150}


class TestAJobOfTheType:
    def test_says_which_run_profiles_it_now(self, place: Town, job: Job, run: Job) -> None:
        shown = text(place.owner, f"/jobs/{job.uid}/")
        assert f'Its job type is being profiled by <a href="/jobs/{run.uid}/">' in shown

    def test_says_nothing_of_it_once_it_started_or_the_run_is_over(
        self, place: Town, job: Job, run: Job
    ) -> None:
        Job.objects.filter(pk=run.pk).update(state="succeeded", ended_at=BEGIN)
        assert 'id="profiling"' not in text(place.owner, f"/jobs/{job.uid}/")
        Job.objects.filter(pk=run.pk).update(state="running")
        Job.objects.filter(pk=job.pk).update(terms=1)
        assert 'id="profiling"' not in text(place.owner, f"/jobs/{job.uid}/")


class TestTheJobType:
    PAGE = "/t/north/profiles/gru/?pool=pool-1"
    REST = "/api/v1/pools/pool-1/profiles/north/gru"

    def test_tells_its_newest_runs_and_how_it_stands(
        self, place: Town, profile: Profile, run: Job
    ) -> None:
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

    def test_says_nothing_of_runs_that_were_withdrawn(self, place: Town, run: Job) -> None:
        Job.objects.filter(pk=run.pk).update(state="cancelled", ended_at=BEGIN)
        assert 'id="profiling"' not in text(place.owner, self.PAGE)

    def test_is_not_there_for_others(self, place: Town, run: Job) -> None:
        text(place.neighbour, self.PAGE, 404)
        text(place.neighbour, f"/jobs/{run.uid}/", 404)


class TestThePool:
    @pytest.mark.usefixtures("db")
    def test_says_how_long_job_types_are_profiled_and_an_operator_sets_it(self) -> None:
        stage, one = operate_stage(), "operate/pools/{pool}"
        after = edit(stage, "PATCH", one, {"profiling_s": 300}, seen=one).json()
        assert (after["profiling_s"], Pool.objects.get().profiling_s) == (300, 300)
        for wrong in (-1, 3601, True, None):
            refused = edit(stage, "PATCH", one, {"profiling_s": wrong}, seen=one)
            assert [row["field"] for row in refused.json()["errors"]] == ["profiling_s"]
        assert Pool.objects.get().profiling_s == 300
