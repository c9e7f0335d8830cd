"""Job types of tenants over REST: speeds on the GPU types of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import SchedulingView, spec_of
from scheduling.models import Job, MeasurementNote, Profile
from scheduling.requests.profiles import ProfileRequest, read_profile_request
from scheduling.selectors.jobs.phases import PHASES
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.speeds.measurements import (
    SPEED,
    MeasuredTime,
    SpeedCompared,
    compared_speeds,
    milli_text,
    read_measurements,
)
from scheduling.selectors.speeds.profiles import list_profiles
from scheduling.services.profiles import InUseError, drop_profile, put_profile
from tenants.answers import answer_of, plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import Who, actor_of
from tenants.api.problems import Problem, not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import Listed, Page
from tenants.api.times import time_text
from tenants.audit import Actor
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tenants.selectors.quotas import pools_of
from tenants.tokens import Scope


class ProfileJson(s.Serializer[object]):
    """One job type. `speeds`: times its speed on its slowest GPU type, as policies use them;
    `declared`: as its tenant said. `measured` is empty while there is no measured ratio."""

    tenant = s.CharField()
    pool = s.CharField()
    name = s.CharField()
    speeds = s.DictField(child=s.RegexField(SPEED))
    declared = s.DictField(child=s.RegexField(SPEED))
    measured = answer_serializer(SpeedCompared)(many=True)
    priority = s.IntegerField()
    origin = s.ChoiceField(list(Profile.Source.values))
    measured_at = s.DateTimeField(allow_null=True)


class AverageRow(s.Serializer[object]):
    """A recent average. `spread`: of the mean."""

    spread = s.RegexField(SPEED)
    reports = s.IntegerField(help_text="Since the average started.")
    changes = s.IntegerField(help_text="How often it started anew.")
    last_seen = s.DateTimeField()


class CostRow(AverageRow):
    """A time in microseconds of pool time."""

    time_us = s.IntegerField()


class IterationTimeRow(AverageRow):
    """Time per iteration on so many GPUs of a type, in nanoseconds of pool time.

    `counts`: it has the reports and the spread that speeds are made of.
    """

    time_ns = s.IntegerField()
    gpu_type = s.CharField()
    gpus = s.IntegerField()
    several_nodes = s.BooleanField()
    counts = s.BooleanField()
    iterations = s.IntegerField()
    memory_bytes = s.IntegerField(help_text="The most on one GPU; 0: it was not said.")


class NoteRow(s.Serializer[object]):
    """What happened to its measurements: an average started anew, a report could not be used, or
    policies use other speeds."""

    at = s.DateTimeField()
    kind = s.ChoiceField(list(MeasurementNote.Kind.values))
    job = s.UUIDField(allow_null=True)
    figures = s.DictField(child=s.JSONField())


class ProfilingRunRow(s.Serializer[object]):
    """A profiling run of a job type."""

    job = s.UUIDField()
    gpus = s.IntegerField()
    state = s.ChoiceField(list(Job.State.values))
    phase = s.ChoiceField(list(PHASES))
    ended_at = s.DateTimeField(allow_null=True)


class ProfileShown(ProfileJson):
    """A job type with all that was measured of it."""

    times = IterationTimeRow(many=True)
    resume = CostRow(allow_null=True)
    suspend = CostRow(allow_null=True)
    notes = NoteRow(many=True)
    profiling_runs = ProfilingRunRow(many=True, help_text="The newest first, two at most.")


class ProfileList(Listed, SchedulingView):
    """List your tenants' job types in a pool, with their speeds on its GPU types."""

    address = "pools/<slug:name>/profiles"
    operation = "profile_list"
    row = ProfileJson
    about = "Job types, by tenant and name."
    who = Who.POOL
    parameters = (schemas.TENANT,)
    shows = ("Profile.name",)

    def page(self, name: str) -> Page:
        facts, tenants = self.pool(name), self.asked_tenants()
        with tenants_scope(tenants):
            rows = list_profiles(facts.id, tenants)
        return Page(_json(row.profile, facts.name) for row in rows)


class ProfileOne(SchedulingView):
    """One job type of a tenant."""

    scopes: ClassVar[dict[str, str]] = {
        "PUT": Scope.JOBS_WRITE.value,
        "DELETE": Scope.JOBS_WRITE.value,
    }
    http_method_names = ["get", "head", "put", "delete"]

    @extend_schema(operation_id="profile_show", responses={200: ProfileShown})
    def get(self, request: Request, name: str, slug: str, profile: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show a job type: its speeds, declared against measured, and what they are made of."""
        facts, tenant = self._there(name, slug, Action.SEE_TENANT)
        with tenant_scope(tenant.pk):
            seen = read_measurements(facts.id, tenant.pk, profile)
        if seen is None:
            raise not_there()
        costs = {"resume": seen.resume, "suspend": seen.suspend}
        return Response(
            {
                **_json(seen.profile, facts.name),
                "times": [_time_json(one) for one in seen.times],
                **{key: None if one is None else _cost_json(one) for key, one in costs.items()},
                "notes": [_note_json(one) for one in seen.notes],
                "profiling_runs": [_run_json(one, seen.run_phases) for one in seen.runs],
            }
        )

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
            raise Problem("in_use", f"{error}: cancel them, or wait.") from error
        if not is_dropped:
            raise not_there()
        return Response(status=204)

    def _there(
        self, name: str, slug: str, action: Action = Action.SUBMIT
    ) -> tuple[PoolFacts, Tenant]:
        """The pool and the tenant; a pool in which the tenant has no quota is not there for it."""
        tenant = self.tenant(slug, action)
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
        "speeds": _texts(row.speedups),
        "declared": _texts(row.as_declared),
        "measured": [plain(answer_of(SpeedCompared, one)) for one in compared_speeds(row)],
        "priority": row.priority,
        "origin": row.source,
        "measured_at": time_text(row.measured_at),
    }


def _texts(speeds: Mapping[str, int]) -> dict[str, str]:
    return {kind: milli_text(milli) for kind, milli in sorted(speeds.items())}


def _cost_json(one: MeasuredTime) -> dict[str, Any]:
    return {"time_us": one.row.mean, **_average_json(one)}


def _time_json(one: MeasuredTime) -> dict[str, Any]:
    row = one.row
    return {
        "gpu_type": row.gpu_type,
        "gpus": row.gpus,
        "several_nodes": row.several_nodes,
        "time_ns": row.mean,
        "counts": one.counts,
        "iterations": row.iterations,
        "memory_bytes": row.memory_bytes,
        **_average_json(one),
    }


def _average_json(one: MeasuredTime) -> dict[str, Any]:
    return {
        "spread": milli_text(one.spread_milli),
        "reports": one.row.reports,
        "changes": one.row.restarts,
        "last_seen": time_text(one.row.seen_at),
    }


def _note_json(note: MeasurementNote) -> dict[str, Any]:
    return {
        "at": time_text(note.at),
        "kind": note.kind,
        "job": None if note.job is None else str(note.job.uid),
        "figures": note.data,
    }


def _run_json(run: Job, phases: Mapping[int, str]) -> dict[str, Any]:
    return {
        "job": str(run.uid),
        "gpus": run.gpus,
        "state": run.state,
        "phase": phases[run.pk],
        "ended_at": time_text(run.ended_at),
    }
