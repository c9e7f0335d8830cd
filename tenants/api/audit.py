"""The audit log, for those who run the site."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.operate import OperateView
from tenants.api.times import time_text
from tenants.audit import AuditFilter, audit_page
from tenants.models import AuditRecord
from tenants.scopes import site_scope


class AuditRow(s.Serializer[object]):
    """Who changed what, when (wall time), and what differs."""

    id = s.IntegerField()
    at = s.DateTimeField()
    actor = s.CharField()
    action = s.CharField()
    subject = s.CharField()
    before = s.DictField(child=s.JSONField())
    after = s.DictField(child=s.JSONField())
    reason = s.CharField(allow_blank=True)
    request_id = s.CharField(allow_blank=True)


class AuditPage(s.Serializer[object]):
    """A page of the audit log."""

    results = AuditRow(many=True)
    next = s.CharField(allow_null=True)


def _parameter(name: str, about: str, kind: OpenApiTypes = OpenApiTypes.STR) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=about)


AUDIT_QUERY = [
    _parameter("action", "How the action begins, such as quota. or node.drained."),
    _parameter("subject", "A part of what was changed, such as pool philly."),
    _parameter("actor", "The login name of who changed it."),
    _parameter("cursor", "The `next` of the page before."),
    _parameter("limit", "Rows of a page, 1 to 200.", OpenApiTypes.INT),
]


class AuditList(OperateView):
    """The audit log, which only grows."""

    query: ClassVar[tuple[str, ...]] = ("action", "subject", "actor", "cursor", "limit")

    @extend_schema(operation_id="operate_audit", responses={200: AuditPage}, parameters=AUDIT_QUERY)
    def get(self, request: Request) -> Response:
        """List what was changed by those who run the site, newest first."""
        limit, key = read_limit(request), read_cursor(request, "audit")
        asked = {name: request.query_params.get(name, "") for name in self.query[:3]}
        with site_scope():
            rows, more = audit_page(
                AuditFilter(**asked), before_id=key[0] if key else None, limit=limit
            )
        following = make_cursor("audit", more) if more is not None else None
        return Response({"results": [_record(row) for row in rows], "next": following})


def _record(row: AuditRecord) -> dict[str, Any]:
    return {
        "id": row.pk,
        "at": time_text(row.at),
        "actor": row.actor.get_username(),
        "action": row.action,
        "subject": row.subject,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "request_id": row.request_id,
    }
