"""Writes the types of REST answers and requests for the SDK, from the OpenAPI description.

`python -m portal.site.client_answers` prints client/src/evenshare/sdk/answers.py, as `make fields`
writes it; a test compares the two.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

# The components that the SDK's methods take and return; it also has the components within them.
ROOTS = (
    *("JobSubmission", "JobRow", "JobReason", "JobUsageAnswer", "LogText", "DryRunAnswer"),
    *("SweepSubmission", "SweepRow", "SweepJobRow", "JobActionsDone"),
    *("SubscriptionRequest", "SubscriptionRow", "SubscriptionMade"),
    *("PoolRow", "PoolWhole", "QueueRow", "QuotaUseRow", "PriceRow"),
    *("QuotaAskRequest", "QuotaChangeRow"),
)
# Requests, whose fields may all be left out here; the portal names the missing ones.
REQUESTS = frozenset({"JobSubmission", "SweepSubmission", "SubscriptionRequest", "QuotaAskRequest"})
_HEAD = '''"""REST answers and requests as types, written by `make fields`.

Their fields are described in the portal's /api/v1/docs. Money is text with six decimals; times are
RFC 3339.
"""

# ruff: noqa: E501, UP013 - one line for each field; class syntax would evaluate types in Python 3.9

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import Any, Literal

'''
_NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

Schema = Mapping[str, Any]


def client_answers(components: Mapping[str, Schema]) -> str:
    """Return the module's text for components of an OpenAPI document."""
    needed: dict[str, None] = {}
    for name in ROOTS:
        _collect(name, components, needed)
    return _HEAD + "".join(_typed_dict(name, components) for name in sorted(needed))


def _collect(name: str, components: Mapping[str, Schema], needed: dict[str, None]) -> None:
    """Add an object's component, and the components of its fields."""
    if name in needed or "properties" not in components[name]:
        return
    needed[name] = None
    for inner in _references(components[name]):
        _collect(inner, components, needed)


def _references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        own = [_name(schema)] if "$ref" in schema else []
        return own + [name for value in schema.values() for name in _references(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in _references(value)]
    return []


def _typed_dict(name: str, components: Mapping[str, Schema]) -> str:
    schema = components[name]
    rows = [
        f'        "{field}": "{_type(value, components)}",\n'
        for field, value in schema["properties"].items()
    ]
    missing = set(schema["properties"]) - set(schema.get("required", ()))
    if missing and name not in REQUESTS:
        raise ValueError(f"{name} leaves out {sorted(missing)}")
    ending = "    total=False,\n" if name in REQUESTS else ""
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{"".join(rows)}    }},\n{ending})\n'


def _type(schema: Schema, components: Mapping[str, Schema]) -> str:
    if "$ref" in schema:
        name = _name(schema)
        return name if "properties" in components[name] else _type(components[name], components)
    for key in ("allOf", "oneOf", "anyOf"):
        if key in schema:
            return _union(_type(part, components) for part in schema[key])
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    return _union(_plain(kind, schema, components) for kind in kinds) if kinds else "Any"


def _plain(kind: str, schema: Schema, components: Mapping[str, Schema]) -> str:
    if kind == "array":
        return f"list[{_type(schema.get('items', {}), components)}]"
    if kind == "object":
        values = schema.get("additionalProperties", {})
        return f"dict[str, {_type(values if isinstance(values, Mapping) else {}, components)}]"
    return _NAMES[kind]


def _union(types: Any) -> str:
    return " | ".join(dict.fromkeys(types))


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    import django  # noqa: PLC0415 - the settings come first

    django.setup()
    from portal.site.api import document  # noqa: PLC0415 - as above

    sys.stdout.write(client_answers(document()["components"]["schemas"]))


if __name__ == "__main__":
    _main()
