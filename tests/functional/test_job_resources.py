"""CPUs and memory of a job: by every way of submission, and shown while it waits."""

from __future__ import annotations

import pytest

from scheduling.models import Job, Node, Pool
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, town


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


class TestSubmission:
    def test_stores_cpus_and_memory_in_single_and_bulk(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(cpus=12, memory_mb=65_536)).json()
        assert (made["cpus"], made["memory_mb"]) == (12, 65_536)
        shown = stage.get(f"jobs/{made['id']}").json()
        assert (shown["cpus"], shown["memory_mb"]) == (12, 65_536)
        specs = [stage.spec(cpus=1), stage.spec()]
        bulk = stage.post("jobs/bulk", {"jobs": specs}).json()["results"]
        assert [(job["cpus"], job["memory_mb"]) for job in bulk] == [(1, 0), (0, 0)]

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("cpus", -1), ("cpus", "8"), ("cpus", 1.5), ("cpus", 10**6 + 1), ("cpus", []),
            ("memory_mb", -1), ("memory_mb", 10**8 + 1), ("memory_mb", "64G"),
            ("memory_mb", True),
        ],
    )  # fmt: skip
    def test_rejects_invalid_value_by_field(self, stage: ApiStage, field: str, bad: object) -> None:
        refused = stage.post("jobs", stage.spec(**{field: bad}))
        assert refused.status_code == 400
        assert [error["field"] for error in refused.json()["errors"]] == [field]
        assert not Job.objects.exists()


class TestForm:
    def test_explains_scope_and_policy_of_cpus_and_memory(self, place: Town) -> None:
        page = text(place.owner.get("/t/north/jobs/new/"))
        assert "Optional. For all its GPUs together." in page
        assert "Only pools with the policy dominant resource fairness count them." in page

    def test_submits_values_and_clone_keeps_them(self, place: Town) -> None:
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "act": "submit"}
        place.owner.post("/t/north/jobs/new/", {**sent, "cpus": "8", "memory_mb": "4096"})
        job = Job.objects.latest("pk")
        assert (job.cpus, job.memory_mb) == (8, 4096)
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "It also needs 8 CPUs and 4,096 MB of memory in total" in page
        assert "cpus: 8" in page
        assert "memory_mb: 4096" in page
        clone = place.owner.get(f"/t/north/jobs/new/?from={job.uid}").content.decode()
        assert 'value="8"' in clone
        assert 'value="4096"' in clone

    def test_job_page_omits_unset_cpus_and_memory(self, place: Town) -> None:
        job = place.submit()
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "It also needs" not in page
        assert "cpus:" not in page


class TestWaitingJob:
    @pytest.mark.usefixtures("committed_db")
    def test_reason_shows_its_missing_cpus(self) -> None:
        place = town()
        pool = place.cluster.pool
        Pool.objects.filter(pk=pool.pk).update(policy="drf", options={})
        Job.objects.all().update(state="cancelled", ended_at=place.cluster.at)
        Node.objects.filter(pool=pool).update(cpus=4)
        jobs = [place.cluster.submit("north", 1, 600, cpus=cpus) for cpus in (5, 900)]
        place.cluster.round(after_s=600)
        for job in jobs:
            page = text(place.owner.get(f"/jobs/{job.uid}/"))
            assert (
                f"It needs {job.cpus} CPUs in addition to its GPUs. Enough GPUs were free, but not"
                " enough CPUs or memory on their nodes."
            ) in page
            assert "2 jobs of" in page
            assert "smallest job" not in page


class TestNodesPage:
    def test_shows_and_changes_cpus_and_memory_of_nodes(self, place: Town) -> None:
        path = f"/operate/pools/{place.cluster.pool.name}/nodes/"
        sent = {"do": "change", "nodes": ["n0000", "n0001"], "cpus": "96", "memory_mb": "512000"}
        assert place.operator.post(path, sent).status_code == 302
        shown = text(place.operator.get(path))
        assert shown.count("96 CPUs and 512,000 MB of memory") == 2
        assert "Only the policy dominant resource fairness counts them." in shown
        again = place.operator.post(path, sent, follow=True)
        assert "Nothing was changed." in text(again)
        add = {"do": "add", "name": "n9", "gpu_type": "a100", "gpus": "8", "cpus": "64"}
        place.operator.post(path, add)
        assert Node.objects.get(name="n9").cpus == 64

    def test_shows_errors_of_invalid_values(self, place: Town) -> None:
        path = f"/operate/pools/{place.cluster.pool.name}/nodes/"
        refused = place.operator.post(path, {"do": "change", "nodes": ["n7"], "cpus": "many"})
        assert refused.status_code == 422
        assert "must be a whole number" in refused.content.decode()
        refused = place.operator.post(path, {"do": "change", "nodes": ["n7"]})
        shown = refused.content.decode()
        assert "Give CPUs, memory, or both." in shown
        assert "Choose nodes of this pool." in shown
