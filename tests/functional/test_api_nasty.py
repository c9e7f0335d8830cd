"""Test hostile input field by field: a 4xx that names the field, and never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.apps import apps

from portal.site.json_boundary import json_read
from scheduling.models import Job
from scheduling.requests.jobs import JobRequest
from tenants.api.problems import Problem
from tenants.input.requests import request_fields
from tests.functional.api_stage import ApiStage, api_stage
from tests.unit.scheduling.test_submission import BAD_ITEMS, BAD_KEYS


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "deep lists": b"[" * 200_000 + b"]" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "one level too deep": b"[" * 33 + b"]" * 33,
    "brackets in a key": b'{"' + b"[" * 100 + b'":1}',
    "an open string with brackets": b'{"a":"' + b"[" * 1000,
    "huge number": b'{"gpus":' + b"9" * 5000 + b"}",
    "huge exponent": b'{"max_price":1e999999999}',
    "NaN": b'{"gpus":NaN}',
    "Infinity": b'{"gpus":-Infinity}',
    "latin-1": '{"name":"é"}'.encode("latin-1"),
    "utf-16": '{"name":"a"}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "twice the same name": b'{"gpus":1,"gpus":2}',
    "raw NUL": b'{"name":"\x00"}',
    "escaped NUL": b'{"name":"\\u0000"}',
    "escaped NUL in a key": b'{"a\\u0000":1}',
    "half a pair": b'{"command":["ok","\\ud800"]}',
    "half a pair in a key": b'{"environment":{"\\udfff":"1"}}',
    "10 MB command": json.dumps({"command": ["x" * 10_000_000]}).encode(),
    "just too large": b'"' + b"x" * 2**20 + b'"',
    "many fields": json.dumps({f"f{i}": i for i in range(20_000)}).encode(),
    "trailing": b"{} {}",
}


class TestHostileBody:
    @pytest.mark.parametrize("path", ["jobs", "jobs/dry-run", "jobs/bulk", "tokens"])
    @pytest.mark.parametrize("name", BODIES)
    def test_returns_small_problem_response(self, stage: ApiStage, path: str, name: str) -> None:
        refused = stage.post(path, BODIES[name], as_="" if path == "tokens" else "ada")
        assert refused.status_code in (400, 413), refused.content[:300]
        assert refused["Content-Type"] == "application/problem+json"
        assert len(refused.content) < 40_000

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("escaped NUL", "name"),
            ("half a pair", "command[1]"),
            ("twice the same name", "gpus"),
            ("half a pair in a key", "environment.\\\\udfff"),
        ],
    )
    def test_error_names_field(self, name: str, field: str) -> None:
        with pytest.raises(Problem) as caught:
            json_read(BODIES[name])
        assert caught.value.errors[0].field.replace("\\\\", "\\") == field.replace("\\\\", "\\")

    def test_accepts_maximum_nesting_depth(self) -> None:
        assert json_read(b"[" * 32 + b"]" * 32)
        assert json_read(b'{"a":"' + b"[" * 1000 + b'\\""}') == {"a": "[" * 1000 + '"'}

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "x", ""])
    def test_rejects_other_content_types(self, stage: ApiStage, kind: str) -> None:
        from django.test import Client

        refused = Client().generic(
            "POST", "/api/v1/jobs", b"a=1", content_type=kind,
            headers={"Authorization": f"Bearer {stage.secrets['ada']}"},
        )  # fmt: skip
        assert refused.status_code in (400, 415)


FIELDS: dict[str, list[Any]] = {
    "pool": ["", "x", 5, [], {}, "a" * 500, "\u202e", "x'; DROP TABLE scheduling_job; --"],
    "gpus": [0, -1, 1.5, "2", True, [], {}, 9, 10**30],
    "command": ["ls", {}, 5, ["a"] * 257, []],
    "name": ["", "A", "a" * 64, "a b", "<script>", 5, [], {}],
    "tenant": ["bb", "zz", "", 5, [], {}, "\u202e", "a" * 500],
    "gpu_types": ["v100", {}, ["x"] * 17],
    "max_price": [-1, "-1", "1e5", "NaN", 1.0000001, True, []],
    "environment": [[], "A=1"],
    "weight": [0, 1001, "1", 1.5, True],
    "duration_s": [0, -1, "1", 10**12],
    "held": [1.5, "yes", {"a": 1}, [[]]],
    "profile": ["nobody", 0, False, 5, [], {}, True, "a" * 500, "\u202e", "<script>"],
}
# No field of a job has these types.
OF_ANOTHER_KIND: list[Any] = [1.5, True, {"a": 1}, [[]]]
KNOWN = tuple(request_fields(JobRequest))


class TestHostileField:
    @pytest.mark.parametrize("path", ["jobs", "jobs/dry-run"])
    def test_invalid_value_names_field(self, stage: ApiStage, path: str) -> None:
        assert set(FIELDS) <= set(KNOWN)
        for field in KNOWN:
            values = FIELDS.get(field, OF_ANOTHER_KIND)
            for value in values:
                refused = stage.post(path, stage.spec(**{field: value}))
                if path == "jobs/dry-run" and refused.status_code == 200:
                    assert refused.json()["reason_code"] == "too_large"
                    continue
                assert refused.status_code == 400, (field, value, refused.content)
                named = refused.json()["errors"][0]["field"]
                inside = f"{field}.kind" if field == "utility" and value else f"{field}[0]"
                assert named in (field, inside), (field, value)
        assert not Job.objects.exists()

    def test_invalid_item_names_its_path(self, stage: ApiStage) -> None:
        for place, values in BAD_ITEMS.items():
            for value in values:
                spec = stage.spec(**{place.split("[")[0].split(".")[0]: value})
                refused = stage.post("jobs", spec)
                assert refused.status_code == 400
                assert refused.json()["errors"][0]["field"] == place

    def test_invalid_environment_keys_are_named(self, stage: ApiStage) -> None:
        refused = stage.post("jobs", stage.spec(environment=dict.fromkeys(BAD_KEYS, "1")))
        named = {error["field"] for error in refused.json()["errors"]}
        assert named == {f"environment.{key}" for key in BAD_KEYS}

    def test_rejects_model_fields_outside_the_schema(self, stage: ApiStage) -> None:
        models = [apps.get_model("scheduling", "Job"), apps.get_model("scheduling", "VirtualWork")]
        names = {
            name
            for model in models
            for field in model._meta.get_fields()
            for name in (field.name, getattr(field, "attname", field.name))
        }
        for path in ("jobs", "jobs/dry-run"):
            for name in sorted(names - set(KNOWN)):
                refused = stage.post(path, stage.spec(**{name: 1}))
                assert refused.status_code == 400, name
                assert refused.json()["errors"][0]["field"] == name
        assert not Job.objects.exists()

    def test_rejects_extra_fields_in_cancel_and_bulk(self, stage: ApiStage) -> None:
        job = stage.job()
        assert stage.post(f"jobs/{job.uid}/cancel", {"state": "failed"}).status_code == 400
        assert stage.post("jobs/bulk", {"jobs": [stage.spec()], "tenant": "bb"}).status_code == 400
        smuggled = stage.post("jobs/bulk", {"jobs": [stage.spec(), stage.spec(tenant="bb")]})
        assert smuggled.json()["errors"][0]["field"] == "jobs[1].tenant"
        job.refresh_from_db()
        assert job.state == "pending"


class TestHostileUrl:
    @pytest.mark.parametrize(
        "path",
        [
            "jobs/not-a-uuid", "pools/%00", "pools/..", "rounds/x/99999999999999999999999999",
            "rounds/x/-1", "jobs?pool=%00", "jobs?pool=%FF", "jobs?tenant=%F0%9F%92%A9",
            "jobs?tenant=" + "a" * 400, "quotas?pool=%E2%80%AE", "rounds?pool=nothing",
            "jobs//", "%2e%2e/%2e%2e/etc/passwd", "docs/x", "schema/", "jobs/%2f/cancel",
            "jobs/a%0Ab", "tokens/%0A",
        ],
    )  # fmt: skip
    def test_never_fails_with_server_error(self, stage: ApiStage, path: str) -> None:
        assert stage.get(path).status_code in (200, 400, 404)

    def test_log_parameters_must_be_numbers_in_range(self, stage: ApiStage) -> None:
        uid = stage.job().uid
        for query in ("offset=x", "limit=0", "limit=262145", "lease=0", "lease=-1", "offset=1e9"):
            refused = stage.get(f"jobs/{uid}/logs?{query}")
            assert refused.json()["errors"][0]["field"] == query.split("=")[0]
        assert stage.get(f"jobs/{uid}/logs?lease=5").status_code == 404
        assert stage.get(f"jobs/{uid}/logs?offset=-100&limit=5").status_code == 200

    def test_invalid_authorization_returns_401(self, stage: ApiStage) -> None:
        for value in ("", "Bearer", "Bearer ", "Basic eDp5", "Bearer " + "a" * 9000, "Bearer \xff"):
            refused = stage.get("jobs", as_="", Authorization=value)
            assert refused.status_code == 401, value
