"""The serializers of tokens and problems, for the schema. Views write plain dictionaries."""

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from tenants.services.tokens import NAME_MAX
from tenants.tokens import DAYS_MAX, Scope


class FieldProblem(serializers.Serializer[object]):
    """The error of one field."""

    field = serializers.CharField(allow_blank=True)
    reason = serializers.CharField()
    hint = serializers.CharField(allow_blank=True)
    line = serializers.IntegerField(required=False, help_text="From 1; only of a field in YAML.")


# RFC 9457 problem details; `reason_code` is for programs. Not a class, because a serializer's
# `errors` has another meaning.
ProblemBody = inline_serializer(
    "Problem",
    fields={
        "type": serializers.CharField(),
        "title": serializers.CharField(),
        "status": serializers.IntegerField(),
        "detail": serializers.CharField(allow_blank=True),
        "reason_code": serializers.CharField(),
        "errors": FieldProblem(many=True),
        "request_id": serializers.CharField(),
    },
)


class TokenAsk(serializers.Serializer[object]):
    """A request for a token."""

    username = serializers.CharField(max_length=1024)
    password = serializers.CharField(max_length=1024)
    name = serializers.CharField(required=False, max_length=NAME_MAX)
    scopes = serializers.ListField(
        child=serializers.ChoiceField([scope.value for scope in Scope]), required=False
    )
    days = serializers.IntegerField(required=False, min_value=1, max_value=DAYS_MAX)
