"""Test sweeps over REST: submit, list, show, jobs, cancel, resubmit."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.models import Job, Sweep
from tests.functional.api_stage import ApiStage, api_stage

YAML = """\
pool: {pool}
gpus: 1
command: [python, train.py, "--lr={{{{ lr }}}}"]
matrix:
  lr: [0.10, 0.01, 1e-3]
at_once: 2
"""


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


def submit(stage: ApiStage, **fields: Any) -> Any:
    answer = stage.post("sweeps", stage.spec(gpus=1, **fields))
    assert answer.status_code == 201, answer.json()
    return answer.json()


class TestSubmission:
    def test_answers_with_sweep(self, stage: ApiStage) -> None:
        answer = stage.post("sweeps", stage.spec(gpus=1, name="train", array="0-9%3"))
        made = answer.json()
        assert answer.status_code == 201
        assert answer["Location"].endswith(f"/api/v1/sweeps/{made['id']}")
        assert (made["jobs"], made["at_once"], made["array"]) == (10, 3, "0-9%3")
        assert (made["state"], made["counts"]["pending"], made["counts"]["held"]) == (
            "pending", 3, 7,
        )  # fmt: skip
        assert stage.get(f"sweeps/{made['id']}").json() == made
        assert stage.get("sweeps").json()["results"] == [made]

    def test_reads_yaml_and_names_lines(self, stage: ApiStage) -> None:
        text = YAML.format(pool=stage.pool)
        made = stage.post("sweeps", {"yaml": text}).json()
        assert made["matrix"] == {"lr": ["0.10", "0.01", "1e-3"]}
        refused = stage.post("sweeps", {"yaml": text.replace("[0.10", "[{}")}).json()
        assert [(one["field"], one["line"]) for one in refused["errors"]] == [("matrix.lr[0]", 4)]

    def test_reads_rules_in_yaml_as_github_writes_them(self, stage: ApiStage) -> None:
        rules = "  seed: [1, 2]\n  exclude:\n    - {lr: 0.10, seed: 2}\n  include: [{more: yes}]\n"
        text = YAML.format(pool=stage.pool).replace("at_once", f"{rules}at_once")
        made = stage.post("sweeps", {"yaml": text}).json()
        assert (made["jobs"], made["matrix"].keys()) == (5, {"lr", "seed"})
        assert made["exclude"] == [{"lr": "0.10", "seed": "2"}]
        rows = stage.get(f"sweeps/{made['id']}/jobs").json()["results"]
        assert rows[0]["parameters"] == {"lr": "0.10", "seed": "1", "more": "yes"}
        text = text.replace("lr: 0.10,", "rate: 0.10,")
        (error,) = stage.post("sweeps", {"yaml": text}).json()["errors"]
        assert error["field"] == "exclude[0].rate"

    def test_with_key_is_made_once(self, stage: ApiStage) -> None:
        spec, key = stage.spec(gpus=1, array="0-1"), {"Idempotency-Key": "k"}
        one, two = (stage.post("sweeps", spec, **key) for _ in range(2))
        assert (one.json(), two["Idempotent-Replayed"]) == (two.json(), "true")
        assert Sweep.objects.count() == 1

    def test_of_too_many_or_odd_jobs_is_refused_by_field(self, stage: ApiStage) -> None:
        for fields, field in (({"array": "0-1000"}, "array"), ({"matrix": {"l r": [1]}}, "matrix")):
            refused = stage.post("sweeps", stage.spec(gpus=1, **fields))
            assert refused.status_code == 400
            assert [one["field"][:6].strip(".") for one in refused.json()["errors"]] == [field[:6]]
        assert not Job.objects.exists()

    def test_as_job_is_refused_with_address_of_sweeps(self, stage: ApiStage) -> None:
        refused = stage.post("jobs", stage.spec(gpus=1, array="0-1"))
        assert (refused.status_code, refused.json()["reason_code"]) == (400, "is_sweep")
        assert "/api/v1/sweeps" in refused.json()["detail"]

    def test_dry_run_answers_for_first_job(self, stage: ApiStage) -> None:
        answer = stage.post("jobs/dry-run", stage.spec(gpus=1, array="0-3")).json()
        assert answer["feasible"] is True
        refused = stage.post("jobs/dry-run", stage.spec(gpus=1, array="0-3", command=["{{ x }}"]))
        assert [one["field"] for one in refused.json()["errors"]] == ["command"]


class TestJobs:
    def test_are_listed_by_place_with_parameters(self, stage: ApiStage) -> None:
        made = submit(stage, matrix={"lr": ["1", "2", "3"]}, at_once=1)
        address = f"sweeps/{made['id']}/jobs"
        first = stage.get(f"{address}?limit=2").json()
        second = stage.get(f"{address}?cursor={first['next']}").json()
        rows = [*first["results"], *second["results"]]
        assert [row["parameters"] for row in rows] == [{"lr": "1"}, {"lr": "2"}, {"lr": "3"}]
        assert [row["held"] for row in rows] == [False, True, True]
        held = stage.get(f"{address}?state=held").json()["results"]
        assert [row["sweep_index"] for row in held] == [1, 2]
        assert stage.get(f"{address}?state=odd").status_code == 400

    def test_have_their_place_in_answers_about_jobs(self, stage: ApiStage) -> None:
        alone = stage.job()
        made = submit(stage, matrix={"lr": ["1", "2"]})
        rows = stage.get("jobs").json()["results"]
        places = [row["sweep"] for row in rows]
        assert places == [
            {"id": made["id"], "index": 1, "parameters": {"lr": "2"}},
            {"id": made["id"], "index": 0, "parameters": {"lr": "1"}},
            None,
        ]
        shown = [stage.get(f"jobs/{row['id']}").json()["sweep"] for row in rows]
        assert (shown, rows[-1]["id"]) == (places, str(alone.uid))


class TestCancel:
    def test_cancels_and_repeats_without_effect(self, stage: ApiStage) -> None:
        made = submit(stage, array="0-3%1")
        for _ in range(2):
            answer = stage.post(f"sweeps/{made['id']}/cancel")
            assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
            assert answer.json()["counts"]["cancelled"] == 4


class TestResubmission:
    def test_makes_sweep_of_failed_jobs(self, stage: ApiStage) -> None:
        made = submit(stage, array="0-3")
        jobs = Job.objects.filter(sweep__uid=made["id"])
        assert stage.post(f"sweeps/{made['id']}/resubmit").status_code == 409
        jobs.filter(sweep_index=2).update(state="failed", ended_at=stage.cluster.at)
        again = stage.post(f"sweeps/{made['id']}/resubmit")
        assert again.status_code == 201
        assert (again.json()["jobs"], again.json()["origin"]) == (1, made["id"])

    def test_runs_failed_jobs_again_with_their_places(self, stage: ApiStage) -> None:
        # Keys that the database would sort otherwise.
        made = submit(stage, matrix={"seed": ["1", "2"], "lr": ["3", "4"]}, name="t")
        Job.objects.filter(sweep__uid=made["id"], sweep_index=1).update(
            state="failed", ended_at=stage.cluster.at
        )
        again = stage.post(f"sweeps/{made['id']}/resubmit", {}).json()
        assert list(again["matrix"]) == ["seed", "lr"]
        job = Job.objects.get(sweep__uid=again["id"])
        assert (job.parameters, job.sweep_index, job.name) == ({"seed": "1", "lr": "4"}, 1, "t-1")

    def test_with_key_is_made_once(self, stage: ApiStage) -> None:
        made = submit(stage, array="0-1")
        Job.objects.update(state="failed", ended_at=stage.cluster.at)
        address, key = f"sweeps/{made['id']}/resubmit", {"Idempotency-Key": "k"}
        one, two = (stage.post(address, **key) for _ in range(2))
        assert (one.json(), two["Idempotent-Replayed"]) == (two.json(), "true")
        assert Sweep.objects.count() == 2


class TestDependency:
    def test_is_the_reason_of_waiting_and_of_cancelled_job(self, stage: ApiStage) -> None:
        first = stage.post("jobs", stage.spec(name="first")).json()["id"]
        waits = stage.post("jobs", stage.spec(after_ok=[first])).json()["id"]
        (need,) = stage.get(f"jobs/{waits}/why").json()["needs"]
        assert (need["id"], need["condition"], need["is_met"]) == (first, "after_ok", False)
        stage.post(f"jobs/{first}/cancel")
        why = stage.get(f"jobs/{waits}/why").json()
        assert why["words"] == "It was cancelled, because first was cancelled."
        assert why["needs"][0]["is_broken"] is True

    def test_on_other_tenants_job_is_refused_as_unknown(self, stage: ApiStage) -> None:
        strange = str(stage.job("bb").uid)
        refused = stage.post("jobs", stage.spec(after_any=[strange]))
        (error,) = refused.json()["errors"]
        assert (refused.status_code, error["field"]) == (400, "after_any[0]")


class TestOtherTenant:
    def test_finds_no_sweep(self, stage: ApiStage) -> None:
        made = submit(stage, array="0-1")
        address = f"sweeps/{made['id']}"
        for path in (address, f"{address}/jobs"):
            assert stage.get(path, as_="bob").status_code == 404
        for path in (f"{address}/cancel", f"{address}/resubmit"):
            assert stage.post(path, as_="bob").status_code == 404
        assert stage.get("sweeps", as_="bob").json()["results"] == []
