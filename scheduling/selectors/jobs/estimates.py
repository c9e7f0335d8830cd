"""Estimates of how long jobs take, read for many jobs at once, for rounds and pages."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from evenshare_core.domain.averages import Average
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.domain.measured_speeds import IterationTime
from evenshare_core.domain.profiles import Profile as ProfileValue
from evenshare_core.estimation.jobs import (
    NOTHING,
    JobClaims,
    PastRun,
    SizeRecord,
    TypeRecord,
    WorkEstimate,
    estimate_work,
    size_record,
)
from evenshare_core.estimation.values import Estimate
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling.models import Job, Measurement, Profile, RunRecord, StopForecast
from tenants.answers import Answer, Hidden, about, formatted_as

Kind = Measurement.Kind


class TypeRecords:
    """The records of some job types, cached by type, number of GPUs and accepted GPU types."""

    def __init__(self, records: Mapping[int, TypeRecord]) -> None:
        self._records = records
        self._sizes: dict[tuple[int, int, tuple[str, ...]], SizeRecord | None] = {}

    def size(self, profile: int, gpus: int, gpu_types: tuple[str, ...]) -> SizeRecord | None:
        """Return the measured record of jobs of this type and size, or None without one."""
        key = (profile, gpus, gpu_types)
        if key not in self._sizes:
            record = self._records.get(profile)
            is_known = record is not None and not record.is_empty
            self._sizes[key] = size_record(record, gpus, gpu_types) if record and is_known else None
        return self._sizes[key]

    def measured_gpus(self, profile: int) -> set[int]:
        """Return the gang sizes (in GPUs) for which iterations of a job type were measured."""
        record = self._records.get(profile)
        return {row.gpus for row in record.times} if record else set()


def read_stops(jobs: Collection[int]) -> dict[int, Estimate]:
    """Return the expected iterations until jobs stop by their metrics, by job id."""
    if not jobs:
        return {}
    rows = StopForecast.objects.filter(job__in=jobs)
    return {
        job: Estimate(iterations, error_milli, EstimateSource(source))
        for job, iterations, error_milli, source in rows.values_list(
            "job_id", "iterations", "error_milli", "source"
        )
    }


def read_job_types(
    profiles: Collection[ProfileValue], since: datetime | None = None
) -> TypeRecords:
    """Return the measurements of job types, and the lengths of their newest runs. Two queries.

    Averages whose last report is before `since` are left out.
    """
    wanted = [row.id for row in profiles]
    if not wanted:
        return TypeRecords({})
    times: dict[int, list[IterationTime]] = {}
    costs: dict[tuple[int, str], Average] = {}
    fields = ("profile_id", "kind", "gpu_type", "gpus", "several_nodes")
    used = ("used_reports", "used_mean", "used_deviation")
    measured = Measurement.objects.filter(profile__in=wanted, used_reports__gt=0)
    if since is not None:
        measured = measured.filter(seen_at__gte=since)
    for profile, kind, gpu_type, gpus, several, *average in measured.order_by("id").values_list(
        *fields, *used
    ):
        if kind == Kind.ITERATION.value:
            one = IterationTime(gpu_type, gpus, several, Average(*average))
            times.setdefault(profile, []).append(one)
        else:
            costs[profile, kind] = Average(*average)
    speeds = {row.id: dict(row.speedups) for row in profiles}
    runs: dict[int, dict[int, tuple[PastRun, ...]]] = {}
    records = RunRecord.objects.filter(profile__in=wanted).order_by("id")
    for profile, gpus, kept in records.values_list("profile_id", "gpus", "runs"):
        of_size = tuple(_past_run(run, speeds[profile]) for run in kept)
        if of_size:
            runs.setdefault(profile, {})[gpus] = of_size
    return TypeRecords(
        {
            row.id: TypeRecord(
                row.speedups,
                tuple(times.get(row.id, ())),
                costs.get((row.id, Kind.RESUME.value), NOTHING),
                costs.get((row.id, Kind.SUSPEND.value), NOTHING),
                runs.get(row.id, {}),
            )
            for row in profiles
        }
    )


def _past_run(run: Mapping[str, Any], speeds: Mapping[str, int]) -> PastRun:
    """Convert a run to work on the slowest type, by the speeds in use at present."""
    work_us = sum(us * speeds.get(kind, ONE_MILLI) // ONE_MILLI for kind, us in run["held"].items())
    said = run["declared_s"]
    return PastRun(work_us, None if said is None else said * SECOND_US)


Percent = Annotated[int, formatted_as(lambda milli: milli / 10, type="number")]
_Rounded = Annotated[float, formatted_as(lambda seconds: round(seconds, 3))]
_NAMES = {"work_s": "seconds", "error_milli": "error_percent", "overhead_s": "overhead_seconds"}


class EstimateView(Answer, frozen=True, rename=_NAMES):
    """A job's expected total run time, on the slowest GPU type that it accepts."""

    COMPONENT = "JobEstimateRow"

    work_s: _Rounded
    error_milli: Annotated[
        Percent,
        about("Relative standard error; 100 if unknown."),
    ]
    source: EstimateSource
    basis: Annotated[int, about("Number of reports of measured iterations, or of earlier runs.")]
    overhead_s: Annotated[_Rounded, about("Time lost per suspend and resume.")]
    metric: Hidden[str] = ""  # the metric from whose curve the iterations were estimated


# For a job that stops by a metric, these sources are more reliable than the maximum of iterations,
# past runs or a declaration.
_BY_CURVE = (EstimateSource.MEASURED, EstimateSource.FITTED)


def read_estimate(job: Job) -> EstimateView | None:
    """Return the job's estimate, as in `read_estimates`, or None if there is none."""
    return read_estimates([job]).get(job.pk)


def read_estimates(jobs: Sequence[Job]) -> dict[int, EstimateView]:
    """Return the expected total run times of jobs that have an estimate, by job id.

    Values are those that rounds use, on the slowest GPU type that a job accepts. Profiling runs
    have no estimate: they end after a fixed time. At most three queries, if job types are loaded.
    """
    views = {}
    for job, profile, size, known in _known([job for job in jobs if not job.profiling_s]):
        work_us = known.work.amount * ONE_MILLI // _slowest_milli(job, profile)
        views[job.pk] = EstimateView(
            work_us / SECOND_US,
            known.work.error_milli,
            known.work.source,
            known.basis,
            0 if size is None else size.overhead_us / SECOND_US,
            job.stop_metric if known.work.source in _BY_CURVE else "",
        )
    return views


def read_works_us(jobs: Sequence[Job]) -> dict[int, int]:
    """Return the `Job.estimate_us` that rounds use, for jobs that have an estimate, by id."""
    return {job.pk: known.work.amount for job, _, _, known in _known(jobs)}


def _known(
    jobs: Sequence[Job],
) -> Iterator[tuple[Job, ProfileValue | None, SizeRecord | None, WorkEstimate]]:
    profiles = {job.profile.pk: profile_value(job.profile) for job in jobs if job.profile}
    types = read_job_types(list(profiles.values()))
    stops = read_stops([job.pk for job in jobs if job.stop_metric and job.profile])
    for job in jobs:
        profile = profiles.get(job.profile_id or 0)
        size = types.size(profile.id, job.gpus, tuple(job.gpu_types)) if profile else None
        said = claims_of(job.iterations, job.stop_metric, job.estimate_s)
        known = estimate_work(said._replace(stop=stops.get(job.pk)), size)
        if known is not None:
            yield job, profile, size, known


def profile_value(row: Profile) -> ProfileValue:
    """Convert a job type to the value that policies read."""
    return ProfileValue(row.pk, row.tenant_id, tuple(sorted(row.speedups.items())), row.priority)


def _slowest_milli(job: Job, profile: ProfileValue | None) -> int:
    speeds = () if profile is None else profile.speedups
    accepted = [milli for kind, milli in speeds if not job.gpu_types or kind in job.gpu_types]
    return min((milli for milli in accepted if milli > 0), default=ONE_MILLI)


def claims_of(iterations: int | None, stop_metric: str, estimate_s: int | None) -> JobClaims:
    """Return the owner's declarations about a job, from its columns."""
    declared_us = None if estimate_s is None else estimate_s * SECOND_US
    return JobClaims(iterations, bool(stop_metric), declared_us)
