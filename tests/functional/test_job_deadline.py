"""Test a job's class, deadline and stopping criterion: submitted in every way, shown, refused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from scheduling.models import Job
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, town

STEPS = ["100:100", "120:60.5"]
PAIRS = [["100", "100"], ["120", "60.5"]]
SAID = {
    "job_class": "soft_slo", "deadline": "2h30m", "deadline_steps": STEPS, "estimate_s": 5400,
    "iterations": 800, "stop_when": "accuracy>=0.93",
}  # fmt: skip


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


def seen(job: Job) -> dict[str, object]:
    """Return the columns of the only job."""
    length = None if job.deadline_at is None else job.deadline_at - job.submitted_at
    return {
        "class": job.job_class, "length": length, "steps": job.deadline_steps,
        "estimate": (job.estimate_s, job.estimate_source), "iterations": job.iterations,
        "stop": (job.stop_metric, job.stop_rule, job.stop_value),
    }  # fmt: skip


ALL = {
    "class": "soft_slo", "length": timedelta(hours=2, minutes=30), "steps": PAIRS,
    "estimate": (5400, "declared"), "iterations": 800,
    "stop": ("accuracy", "at_least", Decimal("0.93")),
}  # fmt: skip


class TestSubmission:
    def test_stores_and_returns_deadline_fields(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(**SAID)).json()
        job = Job.objects.get()
        assert seen(job) == ALL
        shown = stage.get(f"jobs/{made['id']}").json()
        for answer in (made, shown):
            assert {name: answer[name] for name in SAID if name != "deadline"} == {
                name: value for name, value in SAID.items() if name != "deadline"
            }
            assert answer["deadline"] == f"{job.deadline_at:%Y-%m-%dT%H:%M:%S.%fZ}"
        assert made["deadline_left_s"] == 9000
        assert 8000 < shown["deadline_left_s"] <= 9000

    def test_without_deadline_is_best_effort(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec()).json()
        names = ("job_class", "deadline", "deadline_steps", "estimate_s", "iterations", "stop_when")
        assert [made[name] for name in names] == ["best_effort", "", [], None, None, ""]
        assert made["deadline_left_s"] is None
        assert seen(Job.objects.get()) == {
            "class": "best_effort", "length": None, "steps": None, "estimate": (None, ""),
            "iterations": None, "stop": ("", "", None),
        }  # fmt: skip

    def test_blank_deadline_means_no_deadline(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(deadline=" \t"))
        assert made.status_code == 201
        assert (made.json()["job_class"], made.json()["deadline"]) == ("best_effort", "")

    @pytest.mark.parametrize(
        ("deadline", "seconds"),
        [("2h30m", 9000), ("90m", 5400), ("5400", 5400), (5400, 5400), ("1d", 86_400),
         ("1h1s", 3601)],
    )  # fmt: skip
    def test_deadline_without_class_is_strict(
        self, stage: ApiStage, deadline: object, seconds: int
    ) -> None:
        assert stage.post("jobs", stage.spec(deadline=deadline)).status_code == 201
        job = Job.objects.get()
        assert job.job_class == "strict_slo"
        assert job.deadline_at == job.submitted_at + timedelta(seconds=seconds)

    def test_accepts_instant_in_pool_time(self, stage: ApiStage) -> None:
        at = (stage.cluster.at + timedelta(days=2)).replace(microsecond=0)
        stage.post("jobs", stage.spec(deadline=at.isoformat()))
        assert Job.objects.get().deadline_at == at

    @pytest.mark.parametrize(
        "steps", [STEPS, PAIRS, [[100, 100], [120, "60.50"]], "100:100 120:60.5"]
    )
    def test_accepts_deadline_steps_as_text_or_pairs(self, stage: ApiStage, steps: object) -> None:
        spec = stage.spec(job_class="soft_slo", deadline="1h", deadline_steps=steps)
        assert stage.post("jobs", spec).json()["deadline_steps"] == STEPS
        assert Job.objects.get().deadline_steps == PAIRS

    def test_bulk_stores_deadline_fields(self, stage: ApiStage) -> None:
        answer = stage.post("jobs/bulk", {"jobs": [stage.spec(**SAID), stage.spec()]})
        assert answer.status_code == 201
        first, second = Job.objects.order_by("pk")
        assert seen(first) == ALL
        assert seen(second)["class"] == "best_effort"

    def test_ended_job_has_no_time_left(self, stage: ApiStage) -> None:
        made = stage.post("jobs", stage.spec(deadline="1h")).json()
        Job.objects.update(state="succeeded", ended_at=BEGIN)
        assert stage.get(f"jobs/{made['id']}").json()["deadline_left_s"] is None


SOFT = {"job_class": "soft_slo", "deadline": "1h"}
BAD: list[tuple[dict[str, object], str, str]] = [
    ({"job_class": "prompt"}, "job_class", "choices"),
    ({"job_class": "profiler", "deadline": "1h"}, "job_class", "choices"),
    ({"job_class": "best_effort", "deadline": "1h"}, "job_class", "takes no deadline"),
    ({"job_class": "strict_slo"}, "deadline", "is required"),
    ({"job_class": "strict_slo", "deadline": " "}, "deadline", "is required"),
    ({"deadline": "soon"}, "deadline", "neither"),
    ({"deadline": "2026-12-01T00:00:00"}, "deadline", "neither"),
    ({"deadline": "30m2h"}, "deadline", "neither"),
    ({"deadline": -5}, "deadline", "neither"),
    ({"deadline": True}, "deadline", "neither"),
    ({"deadline": ["1h"]}, "deadline", "neither"),
    ({"deadline": "0"}, "deadline", "is over already"),
    ({"deadline": "2001-01-01T00:00:00Z"}, "deadline", "is over already"),
    ({"deadline": "28d1s"}, "deadline", "is more than four weeks"),
    ({"deadline": "9999-12-31T00:00:00Z"}, "deadline", "is more than four weeks"),
    ({"job_class": "soft_slo", "deadline": "20d"}, "deadline", "last step"),
    ({"deadline": "1h", "deadline_steps": STEPS}, "deadline_steps", "only for the class soft_slo"),
    ({**SOFT, "deadline_steps": ["110:80"]}, "deadline_steps[0]", "100 percent"),
    ({**SOFT, "deadline_steps": ["100:101"]}, "deadline_steps[0]", "at most 100"),
    ({**SOFT, "deadline_steps": ["100:0"]}, "deadline_steps[0]", "more than 0"),
    ({**SOFT, "deadline_steps": ["100:80", "110:80"]}, "deadline_steps[1]", "fewer points"),
    ({**SOFT, "deadline_steps": ["100:80", "110:90"]}, "deadline_steps[1]", "fewer points"),
    ({**SOFT, "deadline_steps": ["100:80", "100:70"]}, "deadline_steps[1]", "later"),
    ({**SOFT, "deadline_steps": ["100:-5"]}, "deadline_steps[0]", "no points"),
    ({**SOFT, "deadline_steps": ["100"]}, "deadline_steps[0]", "percent and points"),
    ({**SOFT, "deadline_steps": [5]}, "deadline_steps[0]", "percent and points"),
    ({**SOFT, "deadline_steps": {"100": 100}}, "deadline_steps", "list"),
    ({**SOFT, "deadline_steps": ["100:100"] * 17}, "deadline_steps", "from 1 to 16"),
    ({"estimate_s": 0}, "estimate_s", "from 1"),
    ({"iterations": 0}, "iterations", "from 1"),
    ({"iterations": 10**10}, "iterations", "from 1"),
    ({"stop_when": "loss<=0.1"}, "iterations", "required with stop_when"),
    ({"stop_when": "loss<0.1", "iterations": 5}, "stop_when", "criterion"),
    ({"stop_when": "loss<=1e-4", "iterations": 5}, "stop_when", "criterion"),
    ({"stop_when": 5, "iterations": 5}, "stop_when", "criterion"),
]


class TestValidation:
    @pytest.mark.parametrize(("bad", "field", "reason"), BAD)
    def test_error_has_field_and_reason(
        self, stage: ApiStage, bad: dict[str, object], field: str, reason: str
    ) -> None:
        for path, place in (("jobs", ""), ("jobs/dry-run", "")):
            refused = stage.post(path, stage.spec(**bad))
            assert refused.status_code == 400, path
            (error,) = refused.json()["errors"]
            assert error["field"] == place + field
            assert reason in error["reason"]
        assert not Job.objects.exists()

    def test_bulk_error_names_the_job(self, stage: ApiStage) -> None:
        specs = [stage.spec(), stage.spec(deadline="0")]
        (error,) = stage.post("jobs/bulk", {"jobs": specs}).json()["errors"]
        assert error["field"] == "jobs[1].deadline"
        assert not Job.objects.exists()


class TestForm:
    def test_submits_fields_and_clone_keeps_duration(self, place: Town) -> None:
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "act": "submit"}
        typed = {**SAID, "deadline_steps": "100:100 120:60.5"}
        place.owner.post("/t/north/jobs/new/", {**sent, **typed})
        job = Job.objects.latest("pk")
        assert seen(job) == ALL
        # A clone gets the same duration, also after the original's deadline.
        day = timedelta(days=1)
        assert job.deadline_at is not None
        Job.objects.filter(pk=job.pk).update(
            submitted_at=job.submitted_at - day, deadline_at=job.deadline_at - day
        )
        clone = place.owner.get(f"/t/north/jobs/new/?from={job.uid}").content.decode()
        assert "100:100 120:60.5</textarea>" in clone
        for value in ("soft_slo", "2h30m", "5400", "800", "accuracy&gt;=0.93"):
            assert f'value="{value}"' in clone, value

    def test_accepts_yaml(self, place: Town) -> None:
        lines = (
            "gpus: 1", "job_class: soft_slo", "deadline: 2h30m",
            "deadline_steps: [[100, 100], ['120', '60.5']]", "estimate_s: 5400",
            "iterations: 800", "stop_when: accuracy>=0.93", "",
        )  # fmt: skip
        yaml = "\n".join([f"pool: {place.cluster.pool.name}", *lines])
        place.owner.post("/t/north/jobs/new/", {"side": "yaml", "yaml": yaml, "act": "submit"})
        assert seen(Job.objects.latest("pk")) == ALL

    def test_shows_error_for_past_deadline(self, place: Town) -> None:
        sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "1", "act": "submit"}
        page = place.owner.post("/t/north/jobs/new/", {**sent, "deadline": "0"})
        assert "is over already" in page.content.decode()


class TestPage:
    def test_shows_class_time_left_and_steps(self, place: Town) -> None:
        job = place.submit()
        at = place.cluster.at
        Job.objects.filter(pk=job.pk).update(
            job_class="soft_slo", deadline_at=at + timedelta(hours=2), submitted_at=at,
            deadline_steps=PAIRS, estimate_s=5400, iterations=800, stop_metric="accuracy",
            stop_rule="at_least", stop_value="0.93",
        )  # fmt: skip
        page = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "Soft deadline: 1 h 59 min" in page or "Soft deadline: 2 h" in page
        assert "100 points" in page
        assert "60.5 points" in page
        assert "It runs at most 800 iterations, and ends earlier once accuracy>=0.93." in page
        assert "1 h 30 min" in page

    def test_states_that_deadline_is_over(self, place: Town) -> None:
        job = place.submit()
        at = place.cluster.at
        Job.objects.filter(pk=job.pk).update(
            job_class="strict_slo", deadline_at=at - timedelta(hours=1),
            submitted_at=at - timedelta(hours=2),
        )  # fmt: skip
        assert "Strict deadline: it is over" in text(place.owner.get(f"/jobs/{job.uid}/"))

    def test_omits_deadline_of_job_without_one(self, place: Town) -> None:
        page = text(place.owner.get(f"/jobs/{place.submit().uid}/"))
        assert "deadline" not in page.partition("Specification")[0]
