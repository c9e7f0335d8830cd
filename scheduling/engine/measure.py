"""Turns reported iterations of processes into measured speeds of job types.

Reports are sums since a process's start. The difference to the last reading is added to the
averages as one report. A repeated report adds nothing, and a missed one is included in the next.
Policies read the speeds only from the snapshot, which contains no rows of measurements. Source:
docs/adr/0183-virtual-truth.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from evenshare_core.domain.averages import add_report
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.measured_speeds import (
    IterationTime,
    compare,
    measured_speeds,
    used_speedups,
)
from evenshare_core.estimation.jobs import settle
from evenshare_core.units import MICROSECOND_NS, SECOND_US
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import Iterations, Report, lease_token, token_job
from scheduling.engine.fence import lock_fence
from scheduling.models import IterationReading, Lease, Measurement, MeasurementNote, Profile
from scheduling.selectors import stored_texts as texts
from tenants.faults import fault_point
from tenants.scopes import engine_scope

Kind = Measurement.Kind
# Per job type: the maximum number of averages (the most recent) and of notes (the newest).
ROWS_MAX, NOTES_MAX = 64, 50
# The tolerance between a program's clock and the executor's, in wall time.
SLACK_US = 10 * SECOND_US

log = structlog.get_logger(__name__)


class _MeasuredShape(NamedTuple):
    """The key of an average. The times to resume and to suspend are averaged per job type only."""

    profile: int
    kind: str
    gpu_type: str = ""
    gpus: int = 0
    several_nodes: bool = False


@dataclass
class _Measured:
    """Changes from the reports of one call, collected before they are written."""

    at: datetime
    profiles: dict[int, Profile]
    rows: dict[_MeasuredShape, Measurement]
    readings: dict[int, IterationReading]
    changed: dict[_MeasuredShape, Measurement] = field(default_factory=dict)
    made: dict[_MeasuredShape, Measurement] = field(default_factory=dict)
    jobs: dict[int, int] = field(default_factory=dict)
    speeds_of: dict[int, Profile] = field(default_factory=dict)
    notes: list[MeasurementNote] = field(default_factory=list)

    def note(self, kind: str, profile: Profile, job: int | None, data: dict[str, Any]) -> None:
        log.info("measure.noted", kind=kind, profile=profile.pk, job=job, **data)
        self.notes.append(
            MeasurementNote(
                tenant_id=profile.tenant_id, profile=profile, job_id=job, at=self.at, kind=kind,
                data=data,
            )
        )  # fmt: skip # rows of what belongs together


def measure(
    pool_id: int, token: int, reports: Sequence[Report], *, installation: str, at: datetime
) -> None:
    """Add the reported iterations of processes to the averages of their job types.

    Call it before the same reports are observed: only live leases are measured. Jobs without a job
    type are skipped. A job type is also skipped if another transaction changes it or creates a job
    of it; the next reports then update it.
    """
    speaking = {one.token: one for one in reports if one.iterations is not None or one.refused}
    if not speaking:
        return
    with engine_scope(pool_id):
        lock_fence(pool_id, token)
        over = IterationReading.objects.filter(lease__pool=pool_id, lease__state=Lease.State.ENDED)
        over.delete()
        leases = _leases(pool_id, speaking, installation)
        if not leases:
            return
        measured = _read(leases, at)
        limits = _TimeLimits(pool_id, at)
        for lease, report in leases:
            if lease.job.profile_id in measured.profiles:
                _take(measured, lease, report, limits)
        for profile in measured.profiles.values():
            _use(measured, profile)
        _write(measured)
        fault_point("measure.before_commit")


class _TimeLimits:
    """Upper limits of the times that a process can report: its running time plus a slack.

    The executor's start and end are limited to those of the lease, as in
    `scheduling.engine.observe`: a process may be able to forge them.
    """

    def __init__(self, pool_id: int, at: datetime) -> None:
        clock = read_clock(pool_id)
        self._now_us = max(to_us(at), to_us(clock.pool_at))
        self._slack_us = SLACK_US * clock.scale

    def refusal(self, lease: Lease, report: Report, before: IterationReading) -> str:
        """Return why a report cannot be used; empty if it can."""
        spoken = report.iterations
        if spoken is None:
            return report.refused
        until_us = self._now_us if report.ended_us is None else min(report.ended_us, self._now_us)
        since_us = max(report.started_us, to_us(lease.granted_at))
        ran_us = until_us - since_us + self._slack_us
        if spoken.count < before.iterations or spoken.time_us < before.time_us:
            return texts.FEWER_ITERATIONS
        if spoken.count - before.iterations > spoken.time_us - before.time_us:
            return texts.FAST_ITERATIONS
        if spoken.time_us + (spoken.resumed_us or 0) > ran_us:
            return texts.MORE_TIME
        if (spoken.suspended_us or 0) > ran_us:
            return texts.LONG_SUSPENSION
        return ""


def _leases(
    pool_id: int, speaking: Mapping[str, Report], installation: str
) -> list[tuple[Lease, Report]]:
    """Return the live leases of jobs with a job type, and their reports, in order of id."""
    rows = (
        Lease.objects.filter(
            pool_id=pool_id,
            job__in={token_job(token) for token in speaking},
            job__profile__isnull=False,
            state__in=(Lease.State.LAUNCHING, Lease.State.RUNNING, Lease.State.STOPPING),
        )
        .select_related("job", "gpu_type", "reading")
        .order_by("id")
    )
    named = [(row, lease_token(row.job_id, row.number, installation)) for row in rows]
    pairs = [(row, speaking[token]) for row, token in named if token in speaking]
    return [(row, report) for row, report in pairs if _is_news(row, report)]


def _is_news(lease: Lease, report: Report) -> bool:
    before, spoken = _reading(lease), report.iterations
    if spoken is None:
        return not before.is_refused
    return (
        spoken.count != before.iterations
        or (spoken.resumed_us is not None and not before.is_resumed)
        or (spoken.suspended_us is not None and not before.is_suspended)
    )


def _reading(lease: Lease) -> IterationReading:
    return lease.reading if hasattr(lease, "reading") else IterationReading(lease=lease)


def _read(leases: Sequence[tuple[Lease, Report]], at: datetime) -> _Measured:
    wanted = {lease.job.profile_id or 0 for lease, _ in leases}
    # Skip locked rows: waiting for them could be a deadlock with the transactions that hold them.
    held = Profile.objects.select_for_update(no_key=True, skip_locked=True)
    profiles = {row.pk: row for row in held.filter(pk__in=wanted).order_by("id")}
    rows = Measurement.objects.filter(profile__in=profiles).order_by("id")
    return _Measured(at, profiles, {_shape_of(row): row for row in rows}, {})


def _shape_of(row: Measurement) -> _MeasuredShape:
    return _MeasuredShape(row.profile_id, row.kind, row.gpu_type, row.gpus, row.several_nodes)


def _take(measured: _Measured, lease: Lease, report: Report, limits: _TimeLimits) -> None:
    """Add the difference to the last reading to the averages, or note once per lease why not."""
    reading = _reading(lease)
    profile = measured.profiles[lease.job.profile_id or 0]
    measured.readings[lease.pk] = reading
    refusal = limits.refusal(lease, report, reading)
    if refusal or report.iterations is None:
        if not reading.is_refused:
            measured.note("refused", profile, lease.job_id, {"lease": lease.number, "why": refusal})
        reading.is_refused = True
        return
    spoken = report.iterations
    _take_iterations(measured, lease, reading, spoken)
    if spoken.resumed_us is not None and not reading.is_resumed:
        reading.is_resumed = True
        _add(
            measured,
            _MeasuredShape(profile.pk, Kind.RESUME.value),
            max(spoken.resumed_us, 1),
            lease,
        )
    if spoken.suspended_us is not None and not reading.is_suspended:
        reading.is_suspended = True
        _add(
            measured,
            _MeasuredShape(profile.pk, Kind.SUSPEND.value),
            max(spoken.suspended_us, 1),
            lease,
        )


def _take_iterations(
    measured: _Measured, lease: Lease, reading: IterationReading, spoken: Iterations
) -> None:
    count, time_us = spoken.count - reading.iterations, spoken.time_us - reading.time_us
    if count == 0:
        return
    reading.iterations, reading.time_us = spoken.count, spoken.time_us
    shape = _MeasuredShape(
        lease.job.profile_id or 0,
        Kind.ITERATION.value,
        lease.gpu_type.name,
        lease.gpus,
        len(lease.placement) > 1,
    )
    row = _add(measured, shape, max(time_us * MICROSECOND_NS // count, 1), lease)
    row.iterations += count
    row.memory_bytes = max(row.memory_bytes, spoken.memory_bytes)
    measured.jobs[row.profile_id] = lease.job_id


def _add(measured: _Measured, shape: _MeasuredShape, value: int, lease: Lease) -> Measurement:
    """Add a report to an average; record a note if the average restarts."""
    profile = measured.profiles[shape.profile]
    row = measured.rows.get(shape)
    if row is None:
        row = Measurement(tenant_id=profile.tenant_id, **_columns(shape))
        measured.rows[shape] = measured.made[shape] = row
    elif shape not in measured.made:
        measured.changed[shape] = row
    before = row.mean
    row.average, is_changed = add_report(row.average, value)
    row.used = settle(row.used, row.average)
    row.seen_at = measured.at
    if is_changed:
        row.restarts += 1
        figures = {"of": shape.kind, "before": before, "after": row.mean}
        where = {"gpu_type": shape.gpu_type, "gpus": shape.gpus, "several": shape.several_nodes}
        measured.note("changed", profile, lease.job_id, figures | where)
    return row


def _columns(shape: _MeasuredShape) -> dict[str, Any]:
    return {
        "profile_id": shape.profile,
        "kind": shape.kind,
        "gpu_type": shape.gpu_type,
        "gpus": shape.gpus,
        "several_nodes": shape.several_nodes,
    }


def _use(measured: _Measured, profile: Profile) -> None:
    """Derive the speeds that policies use from the averages, by the core's rule."""
    times = [
        IterationTime(shape.gpu_type, shape.gpus, shape.several_nodes, row.average)
        for shape, row in measured.rows.items()
        if shape.profile == profile.pk and shape.kind == Kind.ITERATION.value
    ]
    before = profile.as_measured
    speeds = measured_speeds(times, before)
    if speeds == before:
        return
    declared, used = profile.as_declared, profile.speedups
    measured.speeds_of[profile.pk] = profile
    profile.declared = declared
    profile.measured = {kind: one._asdict() for kind, one in speeds.items()}
    if not compare(declared, speeds):
        return
    profile.speedups = used_speedups(declared, speeds)
    profile.source, profile.measured_at = Profile.Source.MEASURED, measured.at
    profile.measured_job_id = measured.jobs.get(profile.pk)
    if profile.speedups != used:
        figures = {"before": used, "after": profile.speedups}
        measured.note("used", profile, profile.measured_job_id, figures)


def _write(measured: _Measured) -> None:
    """Write the collected changes, and keep the tables within their limits."""
    Measurement.objects.bulk_update(measured.changed.values(), _AVERAGED)
    Measurement.objects.bulk_create(measured.made.values())
    IterationReading.objects.bulk_create(
        measured.readings.values(),
        update_conflicts=True,
        unique_fields=["lease"],
        update_fields=_READ,
    )
    MeasurementNote.objects.bulk_create(measured.notes)
    for profile in measured.speeds_of.values():
        profile.save(update_fields=_SPEEDS)
    for of_rows in {shape.profile for shape in measured.made}:
        rows = Measurement.objects.filter(profile=of_rows).order_by("-seen_at", "-id")
        _drop(Measurement.objects, list(rows.values_list("id", flat=True)[ROWS_MAX:]))
    for of_notes in {note.profile_id for note in measured.notes}:
        notes = MeasurementNote.objects.filter(profile=of_notes).order_by("-id")
        _drop(MeasurementNote.objects, list(notes.values_list("id", flat=True)[NOTES_MAX:]))


_READ = ["iterations", "time_us", "is_resumed", "is_suspended", "is_refused"]
_AVERAGED = [
    "reports", "iterations", "mean", "deviation", "up_milli", "down_milli", "memory_bytes",
    "restarts", "used_reports", "used_mean", "used_deviation", "seen_at",
]  # fmt: skip # a table
_SPEEDS = ["declared", "measured", "speedups", "source", "measured_at", "measured_job"]


def _drop(manager: Any, ids: Collection[int]) -> None:
    if ids:
        manager.filter(pk__in=ids).delete()
