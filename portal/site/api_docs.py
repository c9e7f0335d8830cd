"""The pages of the API: all operations by resource, and each resource with its examples."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_safe

from portal.charts.figures import plural
from portal.site.api import described
from portal.site.api_examples import example_in, url_of
from portal.site.api_requests import COMMANDS, PLACE_TEXTS

Schema = Mapping[str, Any]
QUERY_MAX = 100
_JSON = "application/json"
# Resources by topic, in the order of the page; a test compares them with the description.
TOPICS = {
    gettext_noop("Jobs"): ("jobs", "sweeps", "usage"),
    gettext_noop("Pools and rounds"): ("pools", "rounds", "chain"),
    gettext_noop("Quota and prices"): ("quotas", "quota-requests", "prices", "price-forecasts"),
    gettext_noop("Credits"): (
        *("ledgers", "entries", "transfers", "credit"),
        *("income", "contribution"),
    ),
    gettext_noop("Tenants and tokens"): ("tenants", "tokens"),
    gettext_noop("Notifications"): ("subscriptions", "messages", "deliveries"),
    gettext_noop("Operator"): ("operate",),
}


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A parameter or a field. `link` is the object that it contains, if any."""

    name: str
    kind: str
    is_required: bool
    text: SafeString
    link: str = ""


@dataclass(frozen=True, slots=True)
class ObjectPanel:
    """A request or an answer, field by field."""

    name: str
    text: SafeString
    fields: tuple[FieldLine, ...]


@dataclass(frozen=True, slots=True)
class OperationPanel:
    """An operation with its examples. `statuses` are those of refusals."""

    name: str
    method: str
    path: str
    title: SafeString
    text: SafeString
    parameters: tuple[FieldLine, ...]
    takes: str
    gives: str
    curl: str
    command: str
    status: str
    answer: str
    statuses: str
    searched: str

    def has_all(self, parts: Sequence[str]) -> bool:
        return all(part in self.searched for part in parts)


@dataclass(frozen=True, slots=True)
class ResourcePanel:
    """The operations of a resource, and the objects that they take and give."""

    name: str
    operations: tuple[OperationPanel, ...]
    objects: tuple[ObjectPanel, ...]


@dataclass(frozen=True, slots=True)
class TopicPanel:
    """Operations of a topic, each with its resource's name."""

    key: str
    name: str
    operations: tuple[tuple[str, OperationPanel], ...]

    @property
    def resources(self) -> str:
        return ", ".join(dict.fromkeys(resource for resource, _row in self.operations))


@require_safe
def docs(request: HttpRequest) -> HttpResponseBase:
    """Show all operations by resource, or those with all searched words."""
    asked = request.GET.get("q", "").strip()[:QUERY_MAX]
    shown = [topic for topic in _topics(asked.lower().split()) if topic.operations]
    count = sum(len(topic.operations) for topic in shown)
    context = {
        "nav_key": "api",
        "asked": asked,
        "shown": shown,
        "operations": plural(count, "operation"),
        "example": _curl("GET", request.build_absolute_uri("/api/v1/jobs"), None),
    }
    return render(request, "site/api_docs.html", context)


def _topics(parts: Sequence[str]) -> Iterator[TopicPanel]:
    """Yield each topic with its operations that have all parts."""
    for name, names in TOPICS.items():
        rows = (
            (resource, row)
            for resource in names
            for row in resources()[resource].operations
            if row.has_all(parts)
        )
        yield TopicPanel(names[0], _(name), tuple(rows))


@require_safe
def resource_page(request: HttpRequest, resource: str) -> HttpResponseBase:
    """Show a resource: its operations with examples, and its objects."""
    panel = resources().get(resource)
    if panel is None:
        raise Http404
    context = {
        "nav_key": "api",
        "resource": panel,
        "names": tuple(resources()),
        "operations": plural(len(panel.operations), "operation"),
    }
    return render(request, "site/api_resource.html", context)


@cache
def resources() -> Mapping[str, ResourcePanel]:
    """Return the resources by name, in the order of their URLs."""
    document = described()
    components = document["components"]["schemas"]
    operations: dict[str, list[OperationPanel]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            panel = _operation(path, method.upper(), operation)
            operations.setdefault(operation["tags"][0], []).append(panel)
    return {
        name: ResourcePanel(name, tuple(rows), tuple(_objects(rows, components)))
        for name, rows in operations.items()
    }


def _operation(path: str, method: str, operation: Schema) -> OperationPanel:
    name, content = operation["operationId"], operation.get("requestBody", {}).get("content", {})
    status = next(one for one in operation["responses"] if one < "300")
    answer = operation["responses"][status].get("content", {})
    title, *rest = re.split(r"\.\s+", operation["description"], maxsplit=1)
    example = example_in(answer)
    parameters = tuple(_parameter(one) for one in operation.get("parameters", ()))
    refused = [one for one in operation["responses"] if one >= "400"]
    return OperationPanel(
        name=name,
        method=method,
        path=path,
        title=marked(title.rstrip(".")),
        text=marked(" ".join(rest)),
        parameters=parameters,
        takes=_name(content.get(_JSON, {}).get("schema", {})),
        gives=_name(answer.get(_JSON, {}).get("schema", {})),
        curl=_curl(method, url_of(name, path), example_in(content)),
        command=COMMANDS.get(name, ""),
        status=status,
        answer="" if example is None else json.dumps(example, indent=2, ensure_ascii=False),
        statuses=", ".join(sorted(refused)),
        searched=" ".join(
            [name, method, path, operation["description"], *(one.name for one in parameters)]
        ).lower(),
    )


def _curl(method: str, url: str, body: Any) -> str:
    """Return the request for `curl`, with the client's variables; `url` may name its site."""
    parts = ["curl", "-H", '"Authorization: Bearer $EVENSHARE_TOKEN"']
    if method != "GET":
        parts += ["-X", method]
    if body is not None:
        parts += ["-H", "'Content-Type: application/json'"]
        parts += ["-d", shlex.quote(json.dumps(body, ensure_ascii=False))]
    site = "$EVENSHARE_URL" if url.startswith("/") else ""
    return " ".join([*parts, f'"{site}{url}"'])


def _parameter(one: Schema) -> FieldLine:
    kind = {"path": "in the path", "header": "header"}.get(one["in"], _kind(one["schema"]))
    text = one.get("description") or PLACE_TEXTS.get(one["name"], "")
    return FieldLine(one["name"], kind, bool(one.get("required")), marked(text))


def _objects(rows: Sequence[OperationPanel], components: Mapping[str, Schema]) -> Iterator[Any]:
    """Yield the objects of operations, then the objects within them."""
    names = list(dict.fromkeys(name for row in rows for name in (row.takes, row.gives) if name))
    for name in names:  # which grows meanwhile
        schema = components[name]
        panel = ObjectPanel(
            name,
            marked(schema.get("description", "")),
            tuple(_field(key, one, schema) for key, one in schema.get("properties", {}).items()),
        )
        for field in panel.fields:
            if field.link and "properties" in components[field.link] and field.link not in names:
                names.append(field.link)
        if panel.fields:
            yield panel


def _field(name: str, schema: Schema, parent: Schema) -> FieldLine:
    link = next(_links(schema), "")
    is_required = name in parent.get("required", ())
    is_object = "properties" in described()["components"]["schemas"].get(link, {})
    text = marked(schema.get("description", ""))
    return FieldLine(name, _kind(schema), is_required, text, link if is_object else "")


def _kind(schema: Schema) -> str:
    """Return a type as a reader writes it: `text`, `list of int`, `JobRow or null`."""
    if name := _name(schema):
        component = described()["components"]["schemas"][name]
        return name if "properties" in component else _kind(component)
    for key in ("allOf", "oneOf", "anyOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[key]))
    if "enum" in schema:
        return " or ".join("null" if one is None else str(one) for one in schema["enum"])
    kinds = schema.get("type", "anything")
    return " or ".join(
        _plain(one, schema) for one in ([kinds] if isinstance(kinds, str) else kinds)
    )


def _plain(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "string":
        return {"date-time": "time", "uuid": "id"}.get(schema.get("format", ""), "text")
    return {"integer": "whole number", "boolean": "true or false"}.get(kind, kind)


def _links(schema: Any) -> Iterator[str]:
    """Yield the components that a field refers to."""
    if isinstance(schema, Mapping):
        if name := _name(schema):
            yield name
        for value in schema.values():
            yield from _links(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _links(value)


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def marked(text: str) -> SafeString:
    """Return a description as HTML, with text between backticks as code."""
    parts = [
        (format_html("<code>{}</code>", part) if at % 2 else part,)
        for at, part in enumerate(text.split("`"))
    ]
    return format_html_join("", "{}", parts)
