"""Test that the examples of the API are recorded answers and valid requests.

`EVENSHARE_RECORD=1 pytest -n0 tests/unit/portal/test_api_examples.py` copies them from the recorded
corpus.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from evenshare.cli.parser import parser
from portal.site.api import document
from portal.site.api_examples import recorded, url_of
from portal.site.api_requests import COMMANDS
from tests.functional import rest_corpus, rest_examples


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document()))
    return made


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for operation in methods.values():
            yield path, operation


def contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the JSON of a request and of its successful answers."""
    bodies = [operation.get("requestBody", {})]
    bodies += [one for status, one in operation["responses"].items() if status < "300"]
    for body in bodies:
        if "application/json" in body.get("content", {}):
            yield body["content"]["application/json"]


class TestExamples:
    def test_are_the_recorded_answers(self, described: dict[str, Any]) -> None:
        chosen = rest_examples.examples(rest_corpus.read(), described["paths"])
        if os.environ.get("EVENSHARE_RECORD"):
            rest_examples.write(chosen)
            recorded.cache_clear()
        assert recorded() == chosen
        read = {
            methods["get"]["operationId"]
            for methods in described["paths"].values()
            if "get" in methods
        }
        # A file's bytes are not recorded.
        assert read - chosen.keys() == {"job_file"}

    def test_are_there_for_every_request_and_answer_and_fit_their_schemas(
        self, described: dict[str, Any]
    ) -> None:
        wrong = []
        for _, operation in operations(described):
            for content in contents(operation):
                value = content["examples"]["example"]["value"]
                schema = {**content["schema"], "components": described["components"]}
                errors = jsonschema.Draft202012Validator(schema).iter_errors(value)
                wrong += [f"{operation['operationId']}: {one.message}" for one in errors]
        assert not wrong

    def test_have_no_field_that_their_schema_lacks(self, described: dict[str, Any]) -> None:
        components = described["components"]["schemas"]
        for _, operation in operations(described):
            for content in contents({**operation, "responses": {}}):
                fields = components[content["schema"]["$ref"].rpartition("/")[2]]["properties"]
                assert content["examples"]["example"]["value"].keys() <= fields.keys()

    def test_have_a_complete_url(self, described: dict[str, Any]) -> None:
        for path, operation in operations(described):
            assert "{" not in url_of(operation["operationId"], path)


class TestCommands:
    def test_are_accepted_by_the_client(self, described: dict[str, Any]) -> None:
        names = {operation["operationId"] for _, operation in operations(described)}
        assert names >= COMMANDS.keys()
        for command in COMMANDS.values():
            program, *words = shlex.split(command.partition(" -- ")[0])
            assert program == "evenshare"
            parser().parse_args(words)
