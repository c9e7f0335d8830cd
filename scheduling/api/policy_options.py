"""OpenAPI schemas of policies' options: one per policy, built from its fields."""

from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction
from rest_framework import serializers as s

from evenshare_core.policies.policy import Policy
from evenshare_core.policies.registry import POLICIES


class PolicyOptions(s.DictField):
    """Options by name; which options exist depends on the policy."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=s.JSONField(), **options)


class PolicyOptionsSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # untyped base
    """Schema of the options: one variant for each policy that is installed."""

    target_class = PolicyOptions

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Any:  # noqa: ARG002 - its signature
        return {"anyOf": [_schema(policy) for _, policy in sorted(POLICIES.items())]}


def _schema(policy: Policy) -> dict[str, Any]:
    whole = msgspec.json.schema(policy.options_type)
    fields = whole["$defs"][policy.options_type.__name__]["properties"]
    return {
        "title": policy.name,
        "description": policy.promise,
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
    }
