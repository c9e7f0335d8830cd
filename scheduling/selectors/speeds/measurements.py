"""The measured speeds and costs of a job type, compared with the declared ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from evenshare_core.domain.measured_speeds import Comparison, compare
from evenshare_core.units import ONE_MILLI
from scheduling.models import Job, Measurement, MeasurementNote, Profile
from scheduling.selectors.jobs.phases import phases
from scheduling.selectors.speeds.profiling import read_profiling_runs
from tenants.answers import Answer, formatted_as

NOTES = 20


def milli_text(milli: int) -> str:
    """Format thousandths with three decimals."""
    return f"{'-' if milli < 0 else ''}{abs(milli) // ONE_MILLI}.{abs(milli) % ONE_MILLI:03d}"


SPEED = r"^[0-9]+\.[0-9]{3}$"
Speed = Annotated[int, formatted_as(milli_text, pattern=SPEED)]
_Excess = Annotated[int, formatted_as(milli_text, pattern=r"^-?[0-9]+\.[0-9]{3}$")]
_NAMES = {f"{one}_milli": one for one in ("declared", "measured", "excess", "tolerance")}


class SpeedCompared(Answer, frozen=True, rename=_NAMES | {"is_overclaim": "overclaim"}):
    """The declared and the measured speed on one GPU type, times a common factor.

    `excess`: the fraction by which the declared speed exceeds the measured one. `tolerance`: the
    excess that the spreads of the reports can explain. A larger excess is an `overclaim`.
    """

    gpu_type: str
    declared_milli: Speed
    measured_milli: Speed
    excess_milli: _Excess
    tolerance_milli: Speed
    is_overclaim: bool


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements of a job type; `resume` and `suspend` are None before the first report.

    `runs`: its newest profiling runs, newest first; `run_phases`: the phase of each run, by job id.
    """

    profile: Profile
    speeds: tuple[Comparison, ...]
    times: tuple[Measurement, ...]
    resume: Measurement | None
    suspend: Measurement | None
    notes: tuple[MeasurementNote, ...]
    runs: tuple[Job, ...] = ()
    run_phases: Mapping[int, str] = field(default_factory=dict)

    @property
    def overclaims(self) -> tuple[Comparison, ...]:
        """The GPU types for which the declared speed is an overclaim."""
        return tuple(one for one in self.speeds if one.is_overclaim)


def compared_speeds(profile: Profile) -> tuple[Comparison, ...]:
    """Return declared and measured speeds by GPU type; empty before any ratio is measured."""
    return compare(profile.as_declared, profile.as_measured)


def overclaims_of(profile: Profile | None) -> tuple[Comparison, ...]:
    """Return the GPU types for which a job type's declared speed is an overclaim."""
    speeds = () if profile is None else compared_speeds(profile)
    return tuple(one for one in speeds if one.is_overclaim)


def read_measurements(pool_id: int, tenant_id: int, name: str) -> Measurements | None:
    """Return the measurements of a tenant's job type; None if the pool has no such type."""
    rows = Profile.objects.filter(pool_id=pool_id, tenant_id=tenant_id, name=name)
    profile = rows.select_related("tenant").first()
    if profile is None:
        return None
    order = ("kind", "gpu_type", "gpus", "several_nodes")
    averages = list(Measurement.objects.filter(profile=profile).order_by(*order))
    times = [one for one in averages if one.kind == Measurement.Kind.ITERATION]
    costs = {one.kind: one for one in averages if one.kind != Measurement.Kind.ITERATION}
    notes = MeasurementNote.objects.filter(profile=profile).select_related("job").order_by("-id")
    runs = read_profiling_runs(profile)
    return Measurements(
        profile,
        compared_speeds(profile),
        tuple(times),
        costs.get(Measurement.Kind.RESUME),
        costs.get(Measurement.Kind.SUSPEND),
        tuple(notes[:NOTES]),
        runs,
        phases(runs),
    )
