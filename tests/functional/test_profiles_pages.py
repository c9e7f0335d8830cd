"""A tenant's page of job types, the same over REST, and speeds on a mixed pool's pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from scheduling.models import Job, Profile
from tests.functional.visitors import Town, town

JSON = "application/json"


@pytest.fixture
def place(committed_db: str) -> Town:  # noqa: ARG001 - the fixture is what is wanted of it
    place = town()
    place.cluster.add_type("k80", nodes=2, gpus=4, quotas={"north": 4, "south": 4})
    return place


def text(client: Client, path: str, status: int = 200) -> str:
    page = client.get(path)
    assert page.status_code == status
    return page.content.decode()


def declare(client: Client, **fields: str) -> Any:
    return client.post("/t/north/profiles/?pool=pool-1", {"act": "put", **fields})


class TestPage:
    def test_without_profiles_treats_gpu_types_as_equal(self, place: Town) -> None:
        assert "equally fast on all GPU types" in text(place.owner, "/t/north/profiles/")

    def test_declares_and_deletes_profile(self, place: Town) -> None:
        answer = declare(place.owner, name="gru", **{"speed-k80": "2", "speed-v100": "9.62"})
        assert answer.status_code == 302
        shown = text(place.owner, "/t/north/profiles/")
        assert "4.810" in shown
        assert "declared by the tenant" in shown
        assert (
            place.owner.post(
                "/t/north/profiles/?pool=pool-1", {"act": "drop", "name": "gru"}
            ).status_code
            == 302
        )
        assert not Profile.objects.exists()

    def test_shows_error_and_keeps_input(self, place: Town) -> None:
        answer = declare(place.owner, name="gru", **{"speed-k80": "fast"})
        assert answer.status_code == 422
        assert "speeds.k80 must be a speed above 0" in answer.content.decode()
        assert 'value="fast"' in answer.content.decode()

    def test_rejects_deletion_while_jobs_use_profile(self, place: Town) -> None:
        profile = place.cluster.profile("north", "gru", k80=1000)
        Job.objects.filter(pk=place.submit().pk).update(profile=profile, gpu_types=["k80"])
        answer = place.owner.post("/t/north/profiles/?pool=pool-1", {"act": "drop", "name": "gru"})
        assert "Jobs of this type that wait or run: 1" in answer.content.decode()
        assert Profile.objects.exists()

    def test_is_read_only_for_viewer_and_404_for_others(self, place: Town) -> None:
        assert "Save" not in text(place.mate, "/t/north/profiles/")
        assert declare(place.mate, name="gru").status_code == 403
        text(place.neighbour, "/t/north/profiles/", status=404)


class TestApi:
    def put(self, client: Client, tenant: str, body: Any) -> Any:
        path = f"/api/v1/pools/pool-1/profiles/{tenant}/gru"
        return client.put(path, json.dumps(body), content_type=JSON)

    def test_declares_lists_and_deletes_own_profile(self, place: Town) -> None:
        made = self.put(place.owner, "north", {"speeds": {"k80": "1", "v100": 5}, "priority": 2})
        assert made.status_code == 200
        told = place.owner.get("/api/v1/pools/pool-1/profiles").json()
        assert told["results"] == [made.json()]
        assert made.json()["speeds"] == {"k80": "1.000", "v100": "5.000"}
        # Other tenants do not see it.
        assert place.neighbour.get("/api/v1/pools/pool-1/profiles").json()["results"] == []
        gone = place.owner.delete("/api/v1/pools/pool-1/profiles/north/gru")
        assert gone.status_code == 204

    def test_invalid_gpu_type_names_field(self, place: Town) -> None:
        answer = self.put(place.owner, "north", {"speeds": {"h100": "2"}})
        assert answer.status_code == 400
        assert "speeds.h100" in answer.content.decode()

    def test_accepts_job_with_profile(self, place: Town) -> None:
        place.cluster.profile("north", "gru", k80=1000, v100=4810)
        spec = {"pool": "pool-1", "gpus": 1, "profile": "gru", "gpu_types": ["v100"]}
        made = place.owner.post("/api/v1/jobs", json.dumps(spec), content_type=JSON)
        assert made.status_code == 201
        assert (made.json()["profile"], made.json()["gpu_types"]) == ("gru", ["v100"])


class TestThroughput:
    def test_is_shown_in_pool_history_and_on_dashboard(self, place: Town) -> None:
        profile = place.cluster.profile("north", "gru", k80=1000, v100=4810)
        job = place.submit(gpus=2)
        Job.objects.filter(pk=job.pk).update(profile=profile, gpu_types=["v100"])
        place.play()
        pool = text(place.owner, "/pools/pool-1/history/")
        assert "2 GPUs do the work of 9.6 of the slowest type" in pool
        assert "Throughput 9.6 on 2 GPUs" in text(place.owner, "/t/north/?pool=pool-1")

    def test_is_omitted_without_profiles(self, place: Town) -> None:
        place.submit()
        place.play()
        assert "slowest type" not in text(place.owner, "/pools/pool-1/history/")
