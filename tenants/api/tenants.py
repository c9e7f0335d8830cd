"""An operator's tenants: all of them, and a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db import IntegrityError
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.operate import IF_MATCH, OperateView, answer, etag_of, page, request_of
from tenants.api.problems import bad_field
from tenants.api.request_schemas import request_serializer
from tenants.api.times import time_text
from tenants.models import Tenant
from tenants.requests import TenantRequest
from tenants.scopes import site_scope
from tenants.selectors.tenants import TenantSize, tenant_sizes
from tenants.services.people import open_tenant


def no_books() -> Iterable[str]:
    """Stands where nothing else is wired in."""
    return ()


class TenantRow(s.Serializer[object]):
    """A tenant with how many people it has."""

    slug = s.CharField()
    name = s.CharField()
    initials = s.CharField()
    people = s.IntegerField()
    managers = s.IntegerField()
    created_at = s.DateTimeField()


class TenantPage(s.Serializer[object]):
    """All tenants."""

    results = TenantRow(many=True)
    next = s.CharField(allow_null=True)


class TenantList(OperateView):
    """All tenants of the site. `books` are those of the pools, which live above."""

    books: Callable[[], Iterable[str]] = staticmethod(no_books)

    @extend_schema(operation_id="operate_tenant_list", responses={200: TenantPage})
    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """List the tenants by slug."""
        with site_scope():
            rows = tenant_sizes()
        return answer(page(_row(row) for row in rows), _tag(rows))

    @extend_schema(
        operation_id="operate_tenant_open",
        request=request_serializer(TenantRequest),
        responses={201: TenantRow},
        parameters=[IF_MATCH],
    )
    def post(self, request: Request) -> Response:
        """Open a tenant with an empty budget in each book; people and quota come next."""
        wanted = request_of(TenantRequest, request.data)
        try:
            with site_scope():
                # Whoever opens another one at this moment waits here, and is stale then.
                list(Tenant.objects.select_for_update(no_key=True).order_by("id"))
                self.require_match(_tag(tenant_sizes()))
                open_tenant(actor=self.actor, request=wanted, books=self.books())
                rows = tenant_sizes()
        except IntegrityError as error:  # twins on a site without any tenant to wait at
            raise bad_field("slug", "is taken") from error
        made = next(row for row in rows if row.slug == wanted.slug)
        return answer(_row(made), _tag(rows), 201)


def _tag(rows: Iterable[TenantSize]) -> str:
    return etag_of([[row.slug, row.name, row.initials] for row in rows])


def _row(row: TenantSize) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "name": row.name,
        "initials": row.initials,
        "people": row.people,
        "managers": row.managers,
        "created_at": time_text(row.created_at),
    }
