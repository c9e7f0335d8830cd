"""Adds an example of each request and answer to the API's description.

Answers to reading operations are recorded ones: tests/functional/rest_examples.py writes them, and
tests compare them with the portal's answers. Other answers consist of recorded objects, or else of
recorded values of fields with the same name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from portal.site.api_requests import BODIES, JOB, OF_A_JOB, PLACES

Json = dict[str, Any]
FILE = Path(__file__).with_name("api_examples.json")
INSTANT, UID = "2030-01-01T09:30:15Z", "3f0d5c1e-8a4b-4d6e-b7a9-2c1f0e9d8b7a"
_PLAIN: dict[str, tuple[Any, ...]] = {
    "integer": (1,),
    "number": (0.5,),
    "boolean": (True,),
    "string": ("text", "0.250000"),
    "null": (None,),
}
_FORMATS = {"date-time": INSTANT, "uuid": UID, "date": INSTANT[:10]}


@cache
def recorded() -> Mapping[str, Json]:
    """Return the recorded `url` and `answer` of operations, by name."""
    answers: dict[str, Json] = json.loads(FILE.read_text(encoding="utf-8"))
    return answers


def url_of(operation: str, path: str) -> str:
    """Return a URL for an operation: the recorded one, or its path with typical values."""
    if operation in recorded():
        return str(recorded()[operation]["url"])
    places = {**PLACES, "uid": JOB} if path.startswith(OF_A_JOB) else PLACES
    return re.sub(r"\{(\w+)\}", lambda place: quote(places[place[1]]), path)


def add_examples(document: Json) -> Json:
    """Add examples to a description, and return it."""
    examples = _Examples(document["components"]["schemas"])
    for methods in document["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            for place in _contents(operation.get("requestBody", {})):
                place["examples"] = _named(BODIES[name])
            if answer := recorded().get(name):
                examples.keep(_schema(operation), answer["answer"])
    for methods in document["paths"].values():
        for operation in methods.values():
            answer = recorded().get(operation["operationId"])
            for place in _contents(_success(operation)):
                value = answer["answer"] if answer else examples.of(place["schema"])
                place["examples"] = _named(value)
    return document


def example_in(content: Json) -> Any:
    """Return the example in a request's or an answer's content, or None without JSON."""
    named = content.get("application/json", {}).get("examples", {})
    return named["example"]["value"] if named else None


def _named(value: Any) -> Json:
    return {"example": {"value": value}}


def _success(operation: Json) -> Json:
    """Return the answer to a request that is not refused."""
    status = next(one for one in operation["responses"] if one < "300")
    answer: Json = operation["responses"][status]
    return answer


def _contents(body: Json) -> Iterator[Json]:
    """Yield the JSON of a request or an answer."""
    if "application/json" in body.get("content", {}):
        yield body["content"]["application/json"]


def _schema(operation: Json) -> Json:
    schema: Json = next(_contents(_success(operation)), {}).get("schema", {})
    return schema


class _Examples:
    """Builds examples of schemas from recorded objects."""

    def __init__(self, components: Mapping[str, Json]) -> None:
        self._components = components
        self._objects: dict[str, Any] = {}
        self._values: dict[str, list[Any]] = {}

    def keep(self, schema: Json, value: Any) -> None:
        """Keep the objects in a recorded answer, by component, and the values of its fields."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if isinstance(value, list) and value:
            self.keep(schema.get("items", {}), value[0])
        if name and isinstance(value, dict):
            self._objects.setdefault(name, value)
            for field, of_field in self._components[name].get("properties", {}).items():
                self.keep(of_field, value.get(field))
                if isinstance(value.get(field), str | int | float):
                    self._values.setdefault(field, []).append(value[field])

    def of(self, schema: Json, field: str = "") -> Any:
        """Return a value that a schema allows."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in self._objects:
            return self._objects[name]
        within = [self._components[name]] if name else []
        for key in ("allOf", "oneOf", "anyOf"):
            within += schema.get(key, [])
        return self.of(within[0], field) if within else self._made(schema, field)

    def _made(self, schema: Json, field: str) -> Any:
        if "enum" in schema:
            return schema["enum"][0]
        kinds = schema.get("type", "null")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "object":
            fields = schema.get("properties", {})
            return {name: self.of(one, name) for name, one in fields.items()}
        if kind == "array":
            return [self.of(schema.get("items", {}), field)]
        return self._plain(kind, schema, field)

    def _plain(self, kind: str, schema: Json, field: str) -> Any:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        values = (*self._values.get(field, ()), *_PLAIN[kind])
        return next(value for value in values if _fits(value, kind, schema))


def _fits(value: Any, kind: str, schema: Json) -> bool:
    is_same_kind = type(value) is type(_PLAIN[kind][0])
    return is_same_kind and re.search(schema.get("pattern", ""), str(value)) is not None
