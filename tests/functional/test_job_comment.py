"""Test a job's comment: set by every way of submission, and shown everywhere."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import town

NOTE = "ablation 3: without dropout"


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


class TestComment:
    def test_is_stored_by_single_and_bulk_submission(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(comment=f" {NOTE} ")).json()
        assert made["comment"] == NOTE
        assert stage.get(f"jobs/{made['id']}").json()["comment"] == NOTE
        specs = [stage.spec(comment=NOTE), stage.spec()]
        bulk = stage.post("jobs/bulk", {"jobs": specs}).json()["results"]
        assert [job["comment"] for job in bulk] == [NOTE, ""]

    @pytest.mark.parametrize("bad", ["x" * 201, "two\nlines", "\u202e", 5, []])
    def test_rejects_anything_but_one_short_line(self, stage: ApiStage, bad: object) -> None:
        refused = stage.post("jobs", stage.spec(comment=bad))
        assert refused.status_code == 400
        assert [error["field"] for error in refused.json()["errors"]] == ["comment"]
        assert not Job.objects.exists()

    @pytest.mark.usefixtures("db")
    def test_is_submitted_by_form_and_shown_on_job_page(self) -> None:
        place = town()
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "comment": NOTE}
        place.owner.post("/t/north/jobs/new/", {**sent, "act": "submit"})
        job = Job.objects.get()
        assert job.comment == NOTE
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert f'comment: "{NOTE}"'.replace('"', "&quot;") in page
        clone = place.owner.get(f"/t/north/jobs/new/?from={job.uid}").content.decode()
        assert f'value="{NOTE}"' in clone
