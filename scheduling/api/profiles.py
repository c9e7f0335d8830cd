"""Job types of tenants over REST: speeds on the GPU types of a pool."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.units import ONE_MILLI
from scheduling.api import schemas
from scheduling.api.base import SchedulingView, spec_of
from scheduling.models import Profile
from scheduling.requests.profiles import ProfileRequest, read_profile_request
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.profiles import list_profiles
from scheduling.services.profiles import InUseError, drop_profile, put_profile
from tenants.api.base import actor_of
from tenants.api.problems import Problem, not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.times import time_text
from tenants.audit import Actor
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenants_scope
from tenants.selectors.quotas import pools_of
from tenants.tokens import Scope

SPEED = r"^[0-9]+\.[0-9]{3}$"


class ProfileJson(s.Serializer[object]):
    """One job type. `speeds`: times its speed on its slowest GPU type."""

    tenant = s.CharField()
    pool = s.CharField()
    name = s.CharField()
    speeds = s.DictField(child=s.RegexField(SPEED))
    priority = s.IntegerField()
    origin = s.ChoiceField(list(Profile.Source.values))
    measured_at = s.DateTimeField(allow_null=True)


class ProfilePage(s.Serializer[object]):
    """Job types, by tenant and name."""

    results = ProfileJson(many=True)
    next = s.CharField(allow_null=True)


class ProfileList(SchedulingView):
    """Job types in one pool."""

    query: ClassVar[tuple[str, ...]] = ("tenant",)

    @extend_schema(
        operation_id="profile_list",
        responses={200: ProfilePage},
        parameters=[schemas.TENANT],
    )
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """List your tenants' job types in a pool, with their speeds on its GPU types."""
        facts, tenant = self.pool(name), self.filtered_tenant()
        tenants = self.tenants() if tenant is None else [tenant.pk]
        with tenants_scope(tenants):
            rows = list_profiles(facts.id, tenants)
        shown = [_json(row.profile, facts.name) for row in rows]
        return Response({"results": shown, "next": None})


class ProfileOne(SchedulingView):
    """One job type of a tenant."""

    scopes: ClassVar[dict[str, str]] = {
        "PUT": Scope.JOBS_WRITE.value,
        "DELETE": Scope.JOBS_WRITE.value,
    }
    http_method_names = ["put", "delete"]

    @extend_schema(
        operation_id="profile_put",
        request=request_serializer(ProfileRequest),
        responses={200: ProfileJson},
    )
    def put(self, request: Request, name: str, slug: str, profile: str) -> Response:
        """Declare a job type, or say its speeds anew; the slowest one becomes 1."""
        facts, tenant = self._there(name, slug)
        wanted = read_profile_request(profile, spec_of(request))
        row = put_profile(
            tenant=tenant, actor=self._actor(), pool_id=facts.id, name=profile, request=wanted
        )
        return Response(_json(row, facts.name))

    @extend_schema(operation_id="profile_drop", request=None, responses={204: None})
    def delete(self, request: Request, name: str, slug: str, profile: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Drop a job type of which no job waits or runs."""
        facts, tenant = self._there(name, slug)
        try:
            is_dropped = drop_profile(
                tenant=tenant, actor=self._actor(), pool_id=facts.id, name=profile
            )
        except InUseError as error:
            raise Problem(409, "in_use", f"{error}: cancel them, or wait.") from error
        if not is_dropped:
            raise not_there()
        return Response(status=204)

    def _there(self, name: str, slug: str) -> tuple[PoolFacts, Tenant]:
        """The pool and the tenant; a pool in which the tenant has no quota is not there for it."""
        tenant = self.tenant(slug, Action.SUBMIT)
        facts = self.pool(name)
        with site_scope():
            if facts.id not in pools_of(tenant.pk):
                raise not_there()
        return facts, tenant

    def _actor(self) -> Actor:
        return actor_of(self.person)


def _json(row: Profile, pool: str) -> dict[str, Any]:
    return {
        "tenant": row.tenant.slug,
        "pool": pool,
        "name": row.name,
        "speeds": {
            kind: f"{milli // ONE_MILLI}.{milli % ONE_MILLI:03d}"
            for kind, milli in sorted(row.speedups.items())
        },
        "priority": row.priority,
        "origin": row.source,
        "measured_at": time_text(row.measured_at),
    }
