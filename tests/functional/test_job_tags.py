"""Test a job's tags: set by every way of submission, shown everywhere, and copied by clones."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import town


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


class TestTags:
    def test_are_stored_once_and_sorted(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(tags=["nightly", "ab-1", "nightly"])).json()
        assert made["tags"] == ["ab-1", "nightly"]
        assert stage.get(f"jobs/{made['id']}").json()["tags"] == ["ab-1", "nightly"]
        bulk = stage.post("jobs/bulk", {"jobs": [stage.spec(tags="b, a c"), stage.spec()]}).json()
        assert [job["tags"] for job in bulk["results"]] == [["a", "b", "c"], []]

    def test_are_refused_unless_few_slugs(self, stage: ApiStage) -> None:
        refusals: list[tuple[object, str]] = [
            (["Upper"], "tags[0]"),
            (["ok", "a b"], "tags[1]"),
            (["x" * 32], "tags[0]"),
            (["ok\n"], "tags[0]"),
            ([5], "tags[0]"),
            ([f"t{i}" for i in range(11)], "tags"),
            ({"a": 1}, "tags"),
            (5, "tags"),
        ]
        for bad, field in refusals:
            refused = stage.post("jobs", stage.spec(tags=bad))
            assert refused.status_code == 400
            assert [error["field"] for error in refused.json()["errors"]] == [field], bad
        assert not Job.objects.exists()

    @pytest.mark.usefixtures("db")
    def test_are_submitted_by_form_shown_and_cloned(self) -> None:
        place = town()
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "command": "true"}
        place.owner.post("/t/north/jobs/new/", {**sent, "tags": "nightly, ab-1", "act": "submit"})
        job = Job.objects.get()
        assert job.tags == ["ab-1", "nightly"]
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert 'href="/t/north/jobs/?tag=ab-1"' in page
        assert "--tag ab-1 --tag nightly" in page
        clone = place.owner.get(f"/t/north/jobs/new/?from={job.uid}").content.decode()
        assert 'value="ab-1 nightly"' in clone
