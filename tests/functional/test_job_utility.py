"""A job's utility by every way of submission, and its plan on its page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.models import Job, JobPlan
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, town

BID = {"kind": "bid", "per_gpu_hour": "0.8"}
LINEAR = {"kind": "linear", "g": "100", "k": "-2"}


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


class TestSubmission:
    @pytest.mark.parametrize(
        "form", [BID, "bid per_gpu_hour=0.80", {"kind": "bid", "per_gpu_hour": 0.8}]
    )
    def test_stores_and_returns_utility(self, stage: ApiStage, form: object) -> None:
        made = stage.post("jobs", stage.spec(utility=form)).json()
        assert made["utility"] == BID
        assert stage.get(f"jobs/{made['id']}").json()["utility"] == BID
        assert Job.objects.get().utility == BID

    def test_without_utility_returns_empty_object(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec()).json()
        assert made["utility"] == {}
        assert Job.objects.get().utility is None
        assert stage.get(f"jobs/{made['id']}").json()["utility"] == {}

    @pytest.mark.parametrize(
        ("bad", "field"),
        [
            ("steep", "utility.kind"),
            (5, "utility"),
            ([], "utility"),
            ("x" * 300, "utility"),
            ({**LINEAR, "k": "2"}, "utility.k"),
            ({**BID, "g": "1"}, "utility.g"),
            ({"kind": "convex", "e": "1"}, "utility.kappa"),
        ],
    )
    def test_invalid_utility_names_field(self, stage: ApiStage, bad: object, field: str) -> None:
        refused = stage.post("jobs", stage.spec(utility=bad))
        assert refused.status_code == 400
        (error,) = refused.json()["errors"]
        assert error["field"] == field
        assert not Job.objects.exists()


class TestForm:
    def test_submits_utility_and_clone_keeps_it(self, place: Town) -> None:
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "act": "submit"}
        typed = "kind=linear\ng=100\nk=-2"
        place.owner.post("/t/north/jobs/new/", {**sent, "utility": typed})
        job = Job.objects.latest("pk")
        assert job.utility == LINEAR
        clone = place.owner.get(f"/t/north/jobs/new/?from={job.uid}").content.decode()
        assert "kind=linear" in clone
        assert "k=-2" in clone

    def test_accepts_yaml(self, place: Town) -> None:
        lines = ("gpus: 1", "utility:", "  kind: bid", "  per_gpu_hour: 0.8", "")
        yaml = "\n".join([f"pool: {place.cluster.pool.name}", *lines])
        place.owner.post("/t/north/jobs/new/", {"side": "yaml", "yaml": yaml, "act": "submit"})
        assert Job.objects.latest("pk").utility == BID


class TestPlan:
    def planned(self, place: Town, **fields: object) -> Job:
        job = place.submit()
        Job.objects.filter(pk=job.pk).update(reason_code=fields.pop("reason"))
        row = {
            "round": 3, "at": BEGIN, "gpu_type": "v100", "gpus": 2, "borrowed": 0, "price": 0,
            "cost": 0, "value": 0, "needed": "0.8", "lowest": "1.25", **fields,
        }  # fmt: skip
        JobPlan.objects.create(job=job, tenant_id=job.tenant_id, **row)
        return job

    def test_refused_plan_shows_required_price(self, place: Town) -> None:
        job = self.planned(place, reason="price_above_value", kind="refused")
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "Borrowing costs more than the job's value" in page
        assert "0.8000" in page
        assert "1.2500" in page

    def test_later_plan_shows_expected_gain(self, place: Town) -> None:
        start = BEGIN + timedelta(hours=1)
        job = self.planned(
            place, reason="planned_later", kind="borrowed", borrowed=2, starts_at=start,
            ends_at=start + timedelta(hours=2), cost="1.5", value="4",
        )  # fmt: skip
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "Its plan" in page
        assert "2.50 credits" in page

    def test_is_hidden_if_another_reason_decides(self, place: Town) -> None:
        job = self.planned(place, reason="no_free_gpus", kind="refused")
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "Borrowing costs more" not in page
