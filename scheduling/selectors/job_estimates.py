"""What is known of how long jobs take: read once for many jobs, for rounds and for pages alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from evenshare_core.domain.averages import Average
from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.domain.measured_speeds import IterationTime
from evenshare_core.domain.profiles import Profile as ProfileValue
from evenshare_core.estimation.jobs import (
    NOTHING,
    JobFacts,
    PastRun,
    SizeRecord,
    TypeRecord,
    WorkEstimate,
    estimate_work,
    size_record,
)
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling.models import Job, Measurement, RunRecord

Kind = Measurement.Kind


class JobTypes:
    """What is known of some job types; each (type, GPUs, accepted types) is looked at once."""

    def __init__(self, records: Mapping[int, TypeRecord]) -> None:
        self._records = records
        self._sizes: dict[tuple[int, int, tuple[str, ...]], SizeRecord | None] = {}

    def size(self, profile: int, gpus: int, gpu_types: tuple[str, ...]) -> SizeRecord | None:
        """What is known of a job type's jobs of a size; None: nothing."""
        key = (profile, gpus, gpu_types)
        if key not in self._sizes:
            record = self._records.get(profile)
            is_known = record is not None and not record.is_empty
            self._sizes[key] = size_record(record, gpus, gpu_types) if record and is_known else None
        return self._sizes[key]


def read_job_types(profiles: Collection[ProfileValue]) -> JobTypes:
    """Return what was measured of job types, and what their newest runs took. Two queries."""
    wanted = [row.id for row in profiles]
    if not wanted:
        return JobTypes({})
    times: dict[int, list[IterationTime]] = {}
    costs: dict[tuple[int, str], Average] = {}
    fields = ("profile_id", "kind", "gpu_type", "gpus", "several_nodes")
    used = ("used_reports", "used_mean", "used_deviation")
    measured = Measurement.objects.filter(profile__in=wanted, used_reports__gt=0)
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
    return JobTypes(
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
    """A run in work on the slowest type, by the speeds that are used at present."""
    work_us = sum(us * speeds.get(kind, ONE_MILLI) // ONE_MILLI for kind, us in run["held"].items())
    said = run["declared_s"]
    return PastRun(work_us, None if said is None else said * SECOND_US)


@dataclass(frozen=True, slots=True)
class EstimateView:
    """How long a job is expected to run on the slowest type that it accepts, in seconds.

    `error_milli`: relative standard error in thousandths; `basis`: of how many reports of measured
    iterations, or of how many runs; 0: of none.
    """

    work_s: float
    error_milli: int
    source: EstimateSource
    basis: int
    overhead_s: float


def read_estimate(job: Job) -> EstimateView | None:
    """Return how long a job is expected to run in all, as rounds take it; None: nobody knows.

    Three queries at most. Work is told on the slowest GPU type that the job accepts.
    """
    profile = job.profile
    size = None
    slowest = ONE_MILLI
    if profile is not None:
        speedups = tuple(sorted(profile.speedups.items()))
        value = ProfileValue(profile.pk, profile.tenant_id, speedups, profile.priority)
        accepted = tuple(job.gpu_types)
        size = read_job_types([value]).size(profile.pk, job.gpus, accepted)
        speeds = [milli for kind, milli in speedups if not accepted or kind in accepted]
        slowest = min((milli for milli in speeds if milli > 0), default=ONE_MILLI)
    facts = facts_of(job.iterations, job.stop_metric, job.estimate_s)
    known = estimate_work(facts, size)
    return None if known is None else _view(known, size, slowest)


def facts_of(iterations: int | None, stop_metric: str, estimate_s: int | None) -> JobFacts:
    """What a job's owner says of it, of its columns."""
    declared_us = None if estimate_s is None else estimate_s * SECOND_US
    return JobFacts(iterations, bool(stop_metric), declared_us)


def _view(known: WorkEstimate, size: SizeRecord | None, slowest_milli: int) -> EstimateView:
    work = known.work
    seconds = work.amount * ONE_MILLI // slowest_milli / SECOND_US
    overhead_us = 0 if size is None else size.overhead_us
    return EstimateView(
        seconds, work.error_milli, work.source, known.basis, overhead_us / SECOND_US
    )
