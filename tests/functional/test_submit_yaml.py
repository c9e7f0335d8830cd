"""Test submission of a job as YAML over REST: the submit page's parser, errors with lines."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from scheduling.models import Job
from scheduling.selectors.jobs.requests import job_as_request
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import town

YAML = "application/yaml"


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


def text_of(stage: ApiStage, *more: str) -> str:
    rows = ("# first run", f"pool: {stage.pool}", "gpus: 2", "command: [python, x.py]", *more)
    return "\n".join(rows) + "\n"


def place(refused: Any) -> list[tuple[str, int | None]]:
    assert refused.status_code == 400
    return [(error["field"], error.get("line")) for error in refused.json()["errors"]]


class TestYamlSubmission:
    def test_makes_same_job_as_json(self, stage: ApiStage) -> None:
        text = text_of(stage, "comment: 1.50", "environment:", "  SEED: 007")
        made = stage.post("jobs", text.encode(), content_type=YAML)
        assert made.status_code == 201
        job = made.json()
        assert (job["gpus"], job["comment"]) == (2, "1.50")
        assert Job.objects.get(uid=job["id"]).environment == {"SEED": "007"}

    def test_is_overridden_by_fields_beside_it(self, stage: ApiStage) -> None:
        text = text_of(stage, "comment: first", "environment: {SEED: 1, MODE: fast}")
        fields = {"gpus": 1, "comment": None, "environment": {"SEED": "2"}}
        made = stage.post("jobs", {"yaml": text, **fields}).json()
        assert (made["gpus"], made["comment"]) == (1, "")
        environment = Job.objects.get(uid=made["id"]).environment
        assert environment == {"SEED": "2", "MODE": "fast"}

    def test_repeats_with_same_key_as_json(self, stage: ApiStage) -> None:
        key = {"Idempotency-Key": "k"}
        first = stage.post("jobs", text_of(stage).encode(), content_type=YAML, **key).json()
        again = stage.post("jobs", stage.spec(), **key)
        assert (again.json()["id"], Job.objects.count()) == (first["id"], 1)

    def test_is_estimated_by_dry_run(self, stage: ApiStage) -> None:
        answer = stage.post("jobs/dry-run", text_of(stage).encode(), content_type=YAML)
        assert answer.json()["feasible"]
        assert not Job.objects.exists()


class TestYamlErrors:
    @pytest.mark.parametrize(
        ("rows", "errors"),
        [
            (("weight: lots",), [("weight", 5)]),
            (("", "comment: 'x", "weight: 2"), [("yaml", 6)]),
            (("gpus: 3",), [("yaml", 5)]),
            (("nice: 10", "weight: 0"), [("nice", 5), ("weight", 6)]),
            (("name: &a x",), [("yaml", 5)]),
            (("tenant: bb",), [("tenant", 5)]),
        ],
    )
    def test_name_line_and_field(
        self, stage: ApiStage, rows: tuple[str, ...], errors: list[tuple[str, int]]
    ) -> None:
        text = text_of(stage, *rows)
        for path in ("jobs", "jobs/dry-run"):
            assert place(stage.post(path, text.encode(), content_type=YAML)) == errors
        assert not Job.objects.exists()

    def test_of_overrides_have_no_line(self, stage: ApiStage) -> None:
        text = text_of(stage, "weight: 2")
        assert place(stage.post("jobs", {"yaml": text, "weight": 0})) == [("weight", None)]

    def test_of_json_have_no_line(self, stage: ApiStage) -> None:
        assert place(stage.post("jobs", stage.spec(weight=0))) == [("weight", None)]

    @pytest.mark.parametrize("bad", [5, None, ["pool: x"]])
    def test_refuse_text_that_is_no_string(self, stage: ApiStage, bad: object) -> None:
        assert place(stage.post("jobs", {"yaml": bad})) == [("yaml", None)]

    def test_refuse_bytes_that_are_no_text(self, stage: ApiStage) -> None:
        assert place(stage.post("jobs", b"name: \xff", content_type=YAML)) == [("yaml", None)]

    def test_refuse_yaml_inside_yaml(self, stage: ApiStage) -> None:
        text = text_of(stage, "yaml: 'gpus: 1'")
        assert place(stage.post("jobs", text.encode(), content_type=YAML)) == [("yaml", 5)]


class TestCopiedYaml:
    @pytest.mark.usefixtures("db")
    def test_of_job_page_is_accepted(self) -> None:
        there = town()
        sent = {
            "side": "form", "pool": there.cluster.pool.name, "gpus": "1", "act": "submit",
            "command": "python x.py", "comment": 'two: "words"', "environment": "SEED=1",
        }  # fmt: skip # rows of what belongs together
        there.owner.post("/t/north/jobs/new/", sent)
        job = Job.objects.get()
        page = there.owner.get(f"/jobs/{job.uid}/").content.decode()
        [text] = re.findall(r"(?s)<pre[^>]*>((?:(?!</pre>).)*?pool: .*?)</pre>", page)
        copied = unescape(re.sub(r"<[^>]+>", "", text))
        made = there.owner.post("/api/v1/jobs", copied.encode(), content_type=YAML)
        assert made.status_code == 201, (copied, made.content)
        again = Job.objects.exclude(pk=job.pk).get()
        assert {**job_as_request(again), "name": job.name} == job_as_request(job)
