"""Turns the executor's reports into changed leases and events.

Like `apply`, it first locks the pool's fence. Reports are processed in the order of their times;
rows are then written in bulk.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.db.models import F, Q

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.reasons import EndReason
from evenshare_core.money.fixed_point import to_micro, to_text
from evenshare_core.units import SECOND_US
from scheduling.engine.backoff import after_end, losses_so_far
from scheduling.engine.bulk import insert_rows, run
from scheduling.engine.clock import read_clock, wall_now
from scheduling.engine.estimates import keep_runs
from scheduling.engine.events import EventLog
from scheduling.engine.executors.base import OVER, Report, ReportState, lease_token, token_job
from scheduling.engine.fence import lock_fence
from scheduling.engine.job_holds import add_hold
from scheduling.engine.slots import find_ready_leases
from scheduling.engine.turns import release_due
from scheduling.models import GpuType, Intent, Job, Lease, LeaseEvent, LeaseTerm
from tenants.faults import fault_point
from tenants.scopes import engine_scope

Kind = LeaseEvent.Kind
SAID_LETTERS = 200  # the maximum length of a contradiction's text in an event
# The final states of jobs whose lease was ended for this reason.
_STATE_AFTER = {
    EndReason.CANCELLED: Job.State.CANCELLED,
    EndReason.PROFILED: Job.State.SUCCEEDED,
}

log = structlog.get_logger(__name__)


class _JobState(NamedTuple):
    """A job's state after its lease: it has ended, or waits again, possibly with a back-off."""

    job: int
    state: str
    ended_at: datetime | None = None
    exit_code: int | None = None
    losses: int = 0
    backoff_until: datetime | None = None


@dataclass
class _Observed:
    """Changes from the reports of one call, collected before they are written."""

    events: EventLog
    waiting: dict[int, Lease]
    gpu_types: dict[int, str]
    losses: dict[int, int]
    of_ends: dict[str, bool]  # Data to add to the events of leases that end.
    started: list[Lease] = field(default_factory=list)
    ended: list[Lease] = field(default_factory=list)
    jobs: list[_JobState] = field(default_factory=list)


def observe(
    pool_id: int,
    token: int,
    reports: Sequence[Report],
    *,
    installation: str,
    at: datetime,
    are_written_off: bool = False,
) -> list[str]:
    """Record the executor's reports; give the released GPUs to waiting leases.

    A repeated report changes nothing, so reports may come twice and in any order. The engine's
    clock is not trusted. No lease starts before it owned its GPUs, or in the future. No lease ends
    after `at`, the time of the query. `are_written_off`: an operator, not the executor, reports the
    ends; the events state this. Returns the tokens of processes whose end is recorded: the executor
    may forget them.

    Raises:
        FencedError: another holder has taken the pool.
        ValueError: a report of an end has no time.
    """
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        leases = _concerned(pool_id, reports)
        bounds = _ReportBounds(pool_id, leases, at)
        observed = _Observed(
            EventLog(pool_id, fence.next_round - 1, wall_now()),
            {lease.job_id: lease for lease in leases if lease.state == Lease.State.WAITING},
            dict(GpuType.objects.values_list("id", "name")),
            losses_so_far(reports),
            {"written_off": True} if are_written_off else {},
        )
        by_token = {lease_token(one.job_id, one.number, installation): one for one in leases}
        over: list[str] = []
        held = [bounds.hold(report, by_token) for report in reports]
        for report in sorted(held, key=_moment):
            lease = by_token.get(report.token)
            ended = report.state in OVER
            # A waiting lease was never launched, so it cannot have run.
            if lease is not None and lease.state not in (Lease.State.ENDED, Lease.State.WAITING):
                if ended:
                    _ended(observed, lease, report)
                elif report.state is ReportState.RUNNING:
                    _started(observed, lease, report)
            if ended:
                over.append(report.token)  # its end is recorded, now or before
        _note_contradictions(observed, by_token, held, at)
        _write(observed)
        _hold_idle(observed)
        keep_runs([one.job for one in observed.jobs if one.state == Job.State.SUCCEEDED])
        _write_progress(reports)
        if any(one.ended_at for one in observed.jobs):
            release_due(pool_id, at=at)
        _activate(pool_id, at)
        if observed.events.drafts:
            observed.events.write(fence)
            fence.save(update_fields=["next_event"])
        fault_point("observe.before_commit")
    return over


def _hold_idle(observed: "_Observed") -> None:
    """Hold the jobs whose leases ended because their GPUs were idle."""
    idle = [one.job_id for one in observed.ended if one.end_reason == EndReason.IDLE]
    if idle:
        add_hold(idle, Job.Hold.IDLE)


def _concerned(pool_id: int, reports: Sequence[Report]) -> list[Lease]:
    """Return the leases that reports may change; skip processes that just continue to run."""
    ended = [token_job(r.token) for r in reports if r.state in OVER or r.contradiction]
    return list(
        Lease.objects.filter(pool_id=pool_id)
        .exclude(state=Lease.State.ENDED)
        .filter(Q(started_at__isnull=True) | Q(job_id__in=ended))
        .order_by("id")
    )


def _note_contradictions(
    observed: _Observed, leases: Mapping[str, Lease], reports: Sequence[Report], at: datetime
) -> None:
    """Record contradictions between the files of jobs and the engine, once per lease."""
    said = {
        leases[report.token].pk: report
        for report in reports
        if report.contradiction and report.token in leases
    }
    if not said:
        return
    events = LeaseEvent.objects.filter(lease__in=said, kind=Kind.CONTRADICTED)
    noted = set(events.values_list("lease_id", flat=True))
    for pk in sorted(said.keys() - noted):
        report, lease = said[pk], leases[said[pk].token]
        log.warning("executor.contradicted", token=report.token, said=report.contradiction)
        observed.events.add(
            Kind.CONTRADICTED, at, {"said": report.contradiction[:SAID_LETTERS]},
            lease=lease.pk, job=lease.job_id, tenant=lease.tenant_id, term=lease.term,
        )  # fmt: skip # rows of what belongs together


class _ReportBounds:
    """The bounds of plausible times for the leases that reports may change.

    Without them, a machine with a wrong clock could report a start before the previous lease of the
    same GPUs ended. The records would then permanently show two holders of the same GPUs.
    """

    def __init__(self, pool_id: int, leases: Sequence[Lease], at: datetime) -> None:
        self._at_us = self._now_us = to_us(at)
        # A lease owns its GPUs from the time of its launch intent.
        self._ordered: dict[int, datetime] = {}
        fresh = [lease.pk for lease in leases if lease.started_at is None]
        if fresh:
            launches = Intent.objects.filter(lease__in=fresh, kind=Intent.Kind.LAUNCH)
            self._ordered = dict(launches.values_list("lease_id", "at"))
            # A process that was launched after `at` may run already, so the bound is the present
            # time.
            self._now_us = max(self._at_us, to_us(read_clock(pool_id).pool_at))
        # The time before a renewal or a stop is already charged. If no start was known by then, it
        # will never be charged. So earlier times in late reports are moved to the renewal or stop.
        self._closed: dict[int, datetime] = {}
        renewed = [one.pk for one in leases if one.term > 1]
        if renewed:
            terms = LeaseTerm.objects.filter(lease__in=renewed, number=F("lease__term"))
            self._closed = dict(terms.values_list("lease_id", "starts_at"))
        stopping = [one.pk for one in leases if one.state == Lease.State.STOPPING]
        if stopping:
            orders = Intent.objects.filter(lease__in=stopping, kind=Intent.Kind.STOP)
            self._closed |= dict(orders.values_list("lease_id", "at"))

    def hold(self, report: Report, leases: Mapping[str, Lease]) -> Report:
        """Return the report with its times in the bounds; unchanged if it belongs to no lease."""
        lease = leases.get(report.token)
        if lease is None or (report.state in OVER and report.ended_us is None):
            return report
        if lease.started_at is None:
            ordered_us = to_us(self._ordered.get(lease.pk, lease.granted_at))
            started_us = max(min(report.started_us, self._now_us), ordered_us)
        else:
            started_us = to_us(lease.started_at)
        ended_us = report.ended_us
        if ended_us is not None:
            # The engine reports ends until `at`. A lost process ends at the time of the check.
            ended_us = max(min(ended_us, self._at_us), started_us)
        if abs(started_us - report.started_us) > SECOND_US:
            log.warning(
                "executor.clock_differs",
                token=report.token,
                started_us=report.started_us,
                taken_us=started_us,
            )
        if lease.pk in self._closed:
            closed_us = to_us(self._closed[lease.pk])
            if lease.started_at is None:
                started_us = max(started_us, closed_us)
            if ended_us is not None:
                ended_us = max(ended_us, closed_us)
        return replace(report, started_us=started_us, ended_us=ended_us)


def _moment(report: Report) -> tuple[int, str]:
    return (report.started_us if report.ended_us is None else report.ended_us, report.token)


def _started(observed: _Observed, lease: Lease, report: Report) -> None:
    """Record a running process: the lease holds its GPUs and is charged from now on."""
    if lease.started_at is not None:
        return
    lease.started_at = from_us(report.started_us)
    if lease.protected_until is not None:
        # The minimum runtime counts from the start: a lease may have waited for its GPUs.
        lease.protected_until += max(lease.started_at - lease.granted_at, timedelta(0))
    if lease.state == Lease.State.LAUNCHING:
        lease.state = Lease.State.RUNNING
    observed.started.append(lease)
    observed.events.add(
        Kind.STARTED,
        lease.started_at,
        {
            "own": lease.own,
            "borrowed": lease.borrowed,
            "price": to_text(to_micro(lease.price)),
            "gpu_type": observed.gpu_types[lease.gpu_type_id],
        },
        lease=lease.pk,
        job=lease.job_id,
        tenant=lease.tenant_id,
        term=lease.term,
    )


def _ended(observed: _Observed, lease: Lease, report: Report) -> None:
    """Record an ended process: the lease ends, its GPUs are free, its job has ended or waits."""
    if report.ended_us is None:
        raise ValueError(f"{report.token} is reported {report.state.value} without an end")
    ended_at = from_us(report.ended_us)
    successor = observed.waiting.get(lease.job_id)
    if report.state is ReportState.STOPPED:
        if report.started_us < report.ended_us:
            # The start was not reported, but the time is charged.
            _started(observed, lease, report)
        reason = EndReason(lease.end_reason or EndReason.LOST)
        _close(observed, lease, ended_at, reason, None)
        if reason in _STATE_AFTER or (reason is EndReason.IDLE and lease.job.session):
            # An idle session is over: it needs no other lease.
            state = _STATE_AFTER.get(reason, Job.State.SUCCEEDED).value
            over = _JobState(lease.job_id, state, lease.ended_at, report.exit_code)
            observed.jobs.append(over)
        elif successor is None:  # otherwise the job was moved, and its next lease is waiting
            observed.jobs.append(_without_process(observed, lease, reason))
        return
    _started(observed, lease, report)
    done = report.exit_code == 0
    reason = EndReason.FINISHED if done else EndReason.FAILED
    state = Job.State.SUCCEEDED if done else Job.State.FAILED
    _close(observed, lease, ended_at, reason, report.exit_code)
    over = _JobState(lease.job_id, state.value, lease.ended_at, report.exit_code)
    observed.jobs.append(over)
    if successor is not None:
        # The job finished while it was being moved, so its next lease has nothing to run.
        _close(observed, successor, max(ended_at, successor.granted_at), reason, None)


def _without_process(observed: _Observed, lease: Lease, reason: EndReason) -> _JobState:
    """Return the job's next state: waiting with a back-off that grows each time, or failed."""
    after = after_end(lease, reason, observed.losses.get(lease.job_id, 0))
    if after.is_given_up:
        failed = Job.State.FAILED.value
        return _JobState(lease.job_id, failed, lease.ended_at, losses=after.losses)
    pending = Job.State.PENDING.value
    return _JobState(lease.job_id, pending, losses=after.losses, backoff_until=after.until)


def _close(
    observed: _Observed, lease: Lease, at: datetime, reason: EndReason, exit_code: int | None
) -> None:
    lease.ended_at = max(at, lease.started_at or at)
    lease.state, lease.end_reason = Lease.State.ENDED, reason.value
    observed.ended.append(lease)
    observed.events.add(
        Kind.ENDED,
        lease.ended_at,
        {
            "reason": reason.value,
            "exit_code": exit_code,
            "started": lease.started_at is not None,
            "gpu_type": observed.gpu_types[lease.gpu_type_id],
            **observed.of_ends,
        },
        lease=lease.pk,
        job=lease.job_id,
        tenant=lease.tenant_id,
        term=lease.term,
    )


def _write(observed: _Observed) -> None:
    if observed.started:
        leases = [lease.pk for lease in observed.started]
        run(
            "UPDATE scheduling_lease l"
            " SET started_at = x.at, state = x.state, protected_until = x.protected"
            " FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[], %s::timestamptz[])"
            "  x(id, at, state, protected)"
            " WHERE l.id = x.id",
            [
                leases,
                [lease.started_at for lease in observed.started],
                [lease.state for lease in observed.started],
                [lease.protected_until for lease in observed.started],
            ],
        )
        run(
            "UPDATE scheduling_job j SET first_started_at = l.started_at FROM scheduling_lease l"
            " WHERE l.id = ANY(%s) AND j.id = l.job_id AND j.first_started_at IS NULL",
            [leases],
        )
    if observed.ended:
        leases = [lease.pk for lease in observed.ended]
        run(
            "UPDATE scheduling_lease l SET state = 'ended', ended_at = x.at, end_reason = x.reason"
            " FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[]) x(id, at, reason)"
            " WHERE l.id = x.id",
            [
                leases,
                [lease.ended_at for lease in observed.ended],
                [lease.end_reason for lease in observed.ended],
            ],
        )
        run(
            "UPDATE scheduling_leaseslot SET holding = false, planned = false"
            " WHERE lease_id = ANY(%s) AND (holding OR planned)",
            [leases],
        )
        run(
            "UPDATE scheduling_intent SET state = 'done' WHERE lease_id = ANY(%s)"
            " AND state = 'open'",
            [leases],
        )
    _write_jobs(observed)


def _write_jobs(observed: _Observed) -> None:
    """Compare-and-swap job states: a job that was cancelled meanwhile stays cancelled."""
    if not observed.jobs:
        return
    jobs, states, ends, codes, losses, until = zip(*observed.jobs, strict=True)
    run(
        "UPDATE scheduling_job j SET state = x.state, ended_at = x.at, exit_code = x.code,"
        # The round that ended the lease has already written why the job waits.
        " reason_code = CASE WHEN x.state = 'pending' THEN j.reason_code ELSE '' END,"
        " losses = x.losses, backoff_until = x.until, version = version + 1"
        " FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[], %s::int[], %s::int[],"
        " %s::timestamptz[]) x(id, state, at, code, losses, until)"
        " WHERE j.id = x.id AND j.state IN ('running', 'stopping')",
        [list(jobs), list(states), list(ends), list(codes), list(losses), list(until)],
    )


def _write_progress(reports: Sequence[Report]) -> None:
    changed = [(token_job(r.token), r.progress) for r in reports if r.progress is not None]
    if changed:
        run(
            "UPDATE scheduling_job j SET progress = x.progress::jsonb"
            " FROM unnest(%s::bigint[], %s::text[]) x(id, progress)"
            " WHERE j.id = x.id AND j.progress IS DISTINCT FROM x.progress::jsonb",
            [[job for job, _ in changed], [json.dumps(progress) for _, progress in changed]],
        )


def _activate(pool_id: int, at: datetime) -> None:
    """Launch waiting leases whose GPUs are all released."""
    ready = find_ready_leases(pool_id)
    if not ready:
        return
    run(
        "UPDATE scheduling_lease SET state = 'launching' WHERE id = ANY(%s)",
        [ready],
    )
    run(
        "UPDATE scheduling_leaseslot SET holding = true, planned = false WHERE lease_id = ANY(%s)",
        [ready],
    )
    insert_rows(
        "scheduling_intent",
        ("pool_id", "lease_id", "kind", "term", "at", "state", "attempts", "last_error"),
        ((pool_id, lease, Intent.Kind.LAUNCH.value, 1, at, "open", 0, "") for lease in ready),
    )
