"""Job types of tenants over REST: speeds on the GPU types of a pool."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar
from uuid import UUID

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.domain.measured_speeds import is_settled
from scheduling.api import schemas
from scheduling.api.base import SchedulingView, SharedPoolView, spec_of
from scheduling.models import Job, Measurement, MeasurementNote, Profile
from scheduling.requests.profiles import ProfileRequest, read_profile_request
from scheduling.selectors.jobs.phases import PHASES
from scheduling.selectors.speeds.measurements import (
    SPEED,
    Speed,
    SpeedCompared,
    compared_speeds,
    milli_text,
    read_measurements,
)
from scheduling.selectors.speeds.profiles import list_profiles
from scheduling.services.profiles import InUseError, drop_profile, put_profile
from tenants.answers import Answer, about, answer_of, one_of, plain
from tenants.api.base import Who, actor_of
from tenants.api.problems import Problem, not_there
from tenants.api.resources import Listed, Page, Shown, described
from tenants.permissions import Action
from tenants.scopes import tenant_scope, tenants_scope
from tenants.tokens import Scope

SpeedText = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": SPEED})]


class ProfileJson(Answer, frozen=True):
    """A job type. `speeds`: used by policies, in multiples of its speed on its slowest GPU type.

    `declared`: the tenant's values. `measured` is empty until a ratio of speeds is measured.
    """

    tenant: str
    pool: str
    name: str
    speeds: dict[str, SpeedText]
    declared: dict[str, SpeedText]
    measured: tuple[SpeedCompared, ...]
    priority: int
    origin: Annotated[str, one_of(*Profile.Source.values)]
    measured_at: datetime | None


class CostRow(Answer, frozen=True):
    """An average time in microseconds of pool time."""

    time_us: int
    spread: Speed
    reports: Annotated[int, about("Reports since the average started.")]
    changes: Annotated[int, about("Number of resets of the average.")]
    last_seen: datetime


class IterationTimeRow(Answer, frozen=True):
    """The time per iteration on `gpus` GPUs of a type, in nanoseconds of pool time.

    `counts`: speeds are derived from it, as it has enough reports and a small enough spread.
    """

    gpu_type: str
    gpus: int
    several_nodes: bool
    time_ns: int
    counts: bool
    iterations: int
    memory_bytes: Annotated[int, about("Peak on one GPU; 0: unknown.")]
    spread: Speed
    reports: Annotated[int, about("Reports since the average started.")]
    changes: Annotated[int, about("Number of resets of the average.")]
    last_seen: datetime


class NoteRow(Answer, frozen=True):
    """An event in the measurements of a job type.

    An average restarted, a report could not be used, or the speeds that policies use changed.
    """

    at: datetime
    kind: Annotated[str, one_of(*MeasurementNote.Kind.values)]
    job: UUID | None
    figures: dict[str, Any]


class ProfilingRunRow(Answer, frozen=True):
    """A profiling run of a job type."""

    job: UUID
    gpus: int
    state: Annotated[str, one_of(*Job.State.values)]
    phase: Annotated[str, one_of(*PHASES)]
    ended_at: datetime | None


class ProfileShown(ProfileJson, frozen=True):
    """A job type with all its measurements."""

    times: tuple[IterationTimeRow, ...]
    resume: CostRow | None
    suspend: CostRow | None
    notes: tuple[NoteRow, ...]
    profiling_runs: Annotated[tuple[ProfilingRunRow, ...], about("Newest first, at most two.")]


Kind = TypeVar("Kind", bound=ProfileJson)
Timed = TypeVar("Timed", CostRow, IterationTimeRow)


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
        return Page(_shown(ProfileJson, row, facts.name) for row in rows)


class ProfileOne(Shown, SharedPoolView):
    """Show a job type: its declared and measured speeds, and the measurements."""

    address = "pools/<slug:name>/profiles/<slug:slug>/<slug:profile>"
    operation = "profile_show"
    answer = ProfileShown
    shows = ("Profile.name",)
    scopes: ClassVar[dict[str, str]] = {
        "PUT": Scope.JOBS_WRITE.value,
        "DELETE": Scope.JOBS_WRITE.value,
    }
    http_method_names = ["get", "head", "put", "delete"]

    def show(self, name: str, slug: str, profile: str) -> ProfileShown:
        facts, tenant = self.there(name, slug)
        with tenant_scope(tenant.pk):
            seen = read_measurements(facts.id, tenant.pk, profile)
        if seen is None:
            raise not_there()
        return _shown(
            ProfileShown,
            seen.profile,
            facts.name,
            times=tuple(_iteration(one) for one in seen.times),
            resume=seen.resume and _average(CostRow, seen.resume, time_us=seen.resume.mean),
            suspend=seen.suspend and _average(CostRow, seen.suspend, time_us=seen.suspend.mean),
            notes=tuple(
                NoteRow(one.at, one.kind, one.job.uid if one.job else None, one.data)
                for one in seen.notes
            ),
            profiling_runs=tuple(
                answer_of(ProfilingRunRow, run, job=run.uid, phase=seen.run_phases[run.pk])
                for run in seen.runs
            ),
        )

    @described("profile_put", ProfileRequest, ProfileJson)
    def put(self, request: Request, name: str, slug: str, profile: str) -> Response:
        """Declare a job type, or replace its speeds; the slowest one becomes 1."""
        facts, tenant = self.there(name, slug, Action.SUBMIT)
        wanted = read_profile_request(profile, spec_of(request))
        row = put_profile(
            tenant=tenant,
            actor=actor_of(self.person),
            pool_id=facts.id,
            name=profile,
            request=wanted,
        )
        return Response(plain(_shown(ProfileJson, row, facts.name)))

    @described("profile_drop", None, None, 204)
    def delete(self, request: Request, name: str, slug: str, profile: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Delete a job type; refused while jobs of this type wait or run."""
        facts, tenant = self.there(name, slug, Action.SUBMIT)
        try:
            is_dropped = drop_profile(
                tenant=tenant, actor=actor_of(self.person), pool_id=facts.id, name=profile
            )
        except InUseError as error:
            raise Problem("in_use", f"{error}: cancel them, or wait.") from error
        if not is_dropped:
            raise not_there()
        return Response(status=204)


def _shown(kind: type[Kind], row: Profile, pool: str, **more: object) -> Kind:
    return answer_of(
        kind,
        row,
        tenant=row.tenant.slug,
        pool=pool,
        speeds=_texts(row.speedups),
        declared=_texts(row.as_declared),
        measured=tuple(answer_of(SpeedCompared, one) for one in compared_speeds(row)),
        origin=row.source,
        **more,
    )


def _texts(speeds: Mapping[str, int]) -> dict[str, str]:
    return {kind: milli_text(milli) for kind, milli in sorted(speeds.items())}


def _iteration(one: Measurement) -> IterationTimeRow:
    return _average(IterationTimeRow, one, time_ns=one.mean, counts=is_settled(one.average))


def _average(kind: type[Timed], one: Measurement, **more: object) -> Timed:
    spread = one.average.spread_milli
    times = {"spread": spread, "changes": one.restarts, "last_seen": one.seen_at}
    return answer_of(kind, one, **times, **more)
