"""Test that the schema is complete and matches the answers, and attack it with its examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django import Settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from portal.site.api import document
from tests.functional.api_stage import PLAIN, ApiStage, api_stage

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
Modes = tuple[schemathesis.GenerationMode, ...]
# Requests that the schema allows, and others.
MODES: Modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
# Examples per operation and mode, in `make test` and `make test-rest`; `make soak` multiplies the
# number. A request takes longer to generate than to answer, so in `make test` each operation has
# one of the modes.
EXAMPLES, SOAK_EXAMPLES = (2, 3), 300


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("committed_db")
    stage = api_stage()
    stage.job(command=["python"])
    stage.job("bb")
    stage.cluster.round()
    stage.cluster.submit("aa", 8, 60)
    stage.cluster.round(after_s=10)
    stage.cluster.seal()
    return stage


def attack(stage: ApiStage, examples: int, modes: Sequence[Modes] = (MODES,)) -> int:
    """Send requests that the schema allows, and others; return their number.

    The `modes` alternate between operations.
    """
    # This comes before the first request. The client closes no request, so later queries do not
    # belong to the test.
    known = {"uid": str(stage.cluster.pool.jobs.order_by("id")[0].uid), "name": stage.pool}
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application())
    sent = 0
    hosts = {"Authorization": f"Bearer {stage.secrets['ada']}", "Host": "localhost"} | PLAIN
    # Operators' requests are in test_api_operate_fields.py.
    operations = schema.exclude(path_regex="/operate/").get_all_operations()
    for found, operation_modes in zip(operations, cycle(modes), strict=False):
        assert isinstance(found, Ok)
        operation = found.ok()
        for mode in operation_modes:
            strategy = operation.as_strategy(generation_mode=mode)

            @hypothesis_settings(
                max_examples=examples,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy, real=st.booleans())
            def once(case: Any, real: bool) -> None:
                nonlocal sent
                sent += 1
                if real and case.path_parameters:
                    for name in case.path_parameters:
                        case.path_parameters[name] = known.get(name, 1)
                case.call_and_validate(headers=hosts, checks=CHECKS)

            once()
    return sent


class TestSchema:
    def test_is_openapi_3_1_and_public(self, stage: ApiStage) -> None:
        answer = stage.get("schema", as_="")
        assert answer.status_code == 200
        assert answer.json()["openapi"].startswith("3.1")

    def test_describes_every_operation_and_its_errors(self) -> None:
        for path, operations in document()["paths"].items():
            for method, operation in operations.items():
                assert operation.get("description"), f"{method} {path}"
                assert set(operation["responses"]) >= {"400", "429"}

    def test_identifies_objects_by_name_instead_of_row_id(self) -> None:
        """A row's id cannot identify a tenant, pool, job or account to a reader."""
        named = {
            *("tenant", "pool", "gpu_type", "node", "job", "profile"),
            *("user", "borrower", "lender", "account"),
        }
        numbers = {
            f"{schema}.{field}"
            for schema, form in document()["components"]["schemas"].items()
            for field, kind in form.get("properties", {}).items()
            if "integer" in kind.get("type", ()) and (field in named or field.endswith("_id"))
        }
        assert numbers == set()

    def test_every_operation_is_in_the_manual(self) -> None:
        manual = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
        listed = {
            (method, re.sub(r"<\w+>", "{}", path))
            for method, path in re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^` ?]*)", manual)
        }
        there = {
            (method.upper(), re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1")))
            for path, operations in document()["paths"].items()
            for method in operations
        }
        assert there <= listed

    def test_docs_pages_show_every_operation_with_its_examples(self, stage: ApiStage) -> None:
        index = stage.get("docs", as_="").content.decode()
        shown = set(re.findall(r'href="/api/v1/docs/([-\w]+)#(\w+)"', index))
        described = document()
        operations = [one for path in described["paths"].values() for one in path.values()]
        assert shown == {(one["tags"][0], one["operationId"]) for one in operations}
        jobs = stage.get("docs/jobs", as_="").content.decode()
        for name, operation in shown:
            assert (f'id="{operation}"' in jobs) is (name == "jobs")
        assert "$EVENSHARE_URL/api/v1/jobs/6deca7d5" in jobs
        assert stage.get("docs/odd", as_="").status_code == 404

    def test_docs_search_finds_operations_with_all_words(self, stage: ApiStage) -> None:
        for asked, names in (
            ("priority", {"job_priority"}),
            ("price FORECAST", {"price_forecast"}),
        ):
            page = stage.get(f"docs?q={asked}", as_="").content.decode()
            found = set(re.findall(r"/api/v1/docs/[-\w]+#(\w+)", page))
            assert names <= found
            assert len(found) < 10
        assert "Try" in stage.get("docs?q=<b>", as_="").content.decode()


class TestOperations:
    @pytest.mark.parametrize("turn", range(len(EXAMPLES)))
    def test_match_schema_and_never_fail(
        self, stage: ApiStage, settings: Settings, turn: int
    ) -> None:
        settings.SUBMISSIONS_PER_S = 10_000
        modes = [MODES[:1], MODES[1:]] if turn == 0 else [MODES]
        sent = attack(stage, EXAMPLES[turn], modes)
        assert sent > 50

    @pytest.mark.soak
    def test_match_schema_in_long_run(self, stage: ApiStage) -> None:
        attack(stage, SOAK_EXAMPLES)
