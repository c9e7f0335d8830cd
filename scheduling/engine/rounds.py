"""A round of a pool, in numbered steps."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog
from django.conf import settings

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.units import MICROSECOND_NS, MILLISECOND_NS
from scheduling.engine.apply import apply_round
from scheduling.engine.breaker import GuardedExecutor
from scheduling.engine.clock import PoolNow, grid_instant
from scheduling.engine.dispatch import dispatch
from scheduling.engine.executors.base import Executor, Extension, executor_for, lease_token
from scheduling.engine.feeder import feed
from scheduling.engine.fence import (
    HOLD_S,
    FencedError,
    lock_fence,
    release_fence,
    take_fence,
)
from scheduling.engine.idle_gpus import follow_idle
from scheduling.engine.node_states import follow_nodes
from scheduling.engine.profiling import make_profiling_runs
from scheduling.engine.quarantine import find_faulty_job, quarantine_job
from scheduling.engine.reconcile import reconcile
from scheduling.engine.revoke import revoke_cancelled, revoke_quarantined
from scheduling.engine.scrub import note_round
from scheduling.engine.snapshot_rows import UNREADABLE, unreadable_jobs
from scheduling.engine.snapshots import next_number, read_with_state
from scheduling.engine.write import RoundPlan
from scheduling.models import Lease, Pool, PoolFence, Round
from scheduling.selectors.rounds.states import LeftState
from tenants.faults import fault_point
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)

ON_DEMAND_GAP = timedelta(seconds=1)
# The maximum number of jobs that one round may quarantine because the policy fails with them.
MAX_FAULTY_JOBS = 8


class RoundOutcome(StrEnum):
    """The outcome of an attempt to run a round."""

    COMMITTED = "committed"
    NOT_DUE = "not_due"  # This time of the grid was checked already, or the pool is paused.
    QUIET = "quiet"  # Nothing changed, no job waits and no lease is due, so no round is stored.
    FENCED = "fenced"  # Another process holds the pool, or took it meanwhile; nothing was written.


@dataclass(frozen=True)
class RoundResult:
    """The outcome of the attempt, and the round if one was committed."""

    outcome: RoundOutcome
    round: Round | None = None


def execute_round(
    pool_id: int, *, now: PoolNow, on_demand: bool = False, hold_s: float = HOLD_S
) -> RoundResult:
    """Run the pool's round if it is due at `now`, under its fence for at most `hold_s`.

    `on_demand`: run a round between two times of the round grid, if the pool allows it.

    It is safe to call at any time, from any number of processes: at most one round is committed per
    time of the grid.

    Raises:
        InvariantViolation: the policy broke an invariant; nothing was applied.
    """
    pool = Pool.objects.get(pk=pool_id)
    at = grid_instant(now, pool.round_s)
    if on_demand and pool.on_demand and not _is_due(pool_id, at):
        at = _instant_on_demand(pool_id, now)
    if now.paused or not _is_due(pool_id, at):
        return RoundResult(RoundOutcome.NOT_DUE)
    fault_point("round.before_fence")
    token = take_fence(pool_id, holder=_holder(), hold_s=hold_s)
    if token is None:
        log.info("round.fenced", pool=pool.name, why="another process holds the pool")
        return RoundResult(RoundOutcome.FENCED)
    try:
        if not _is_due(pool_id, at):
            return RoundResult(RoundOutcome.NOT_DUE)
        # All log lines of this round, also those of an executor, contain its number.
        with structlog.contextvars.bound_contextvars(pool=pool.name, round=next_number(pool_id)):
            return _run(pool, token, at, wall_at=now.wall, scale=now.scale)
    except FencedError as error:
        log.warning("round.fenced", pool=pool.name, why=str(error))
        return RoundResult(RoundOutcome.FENCED)
    finally:
        release_fence(pool_id, token)


def _instant_on_demand(pool_id: int, now: PoolNow) -> datetime:
    """Return now, or the last round's time if that is less than a second of wall time ago.

    A check that stored no round does not delay a requested round.
    """
    last = PoolFence.objects.values_list("last_at", flat=True).get(pool_id=pool_id)
    if last is not None and now.pool_at - last < ON_DEMAND_GAP * now.scale:
        return last
    return now.pool_at


def _is_due(pool_id: int, at: datetime) -> bool:
    fence = PoolFence.objects.get(pool_id=pool_id)
    return fence.last_checked_at is None or at > fence.last_checked_at


def _run(pool: Pool, token: int, at: datetime, *, wall_at: datetime, scale: int) -> RoundResult:
    executor = executor_for(pool.executor)
    fault_point("round.after_fence")
    # 1. Deliver intents that a crash left open.
    _dispatch(pool, executor, token, at)
    # 2. Record arrivals and ends until now.
    feed(pool.pk, until=at)
    reconcile(pool, executor, token, installation=settings.INSTALLATION, at=at)
    follow_nodes(pool, executor, token)
    _profile(pool, token, at)
    revoke_cancelled(pool.pk, token, at=at)
    follow_idle(pool, token, at=at, scale=scale)
    fault_point("cancel.after_mark")
    # Ended profiling runs and cancelled jobs free GPUs for which leases may wait.
    _dispatch(pool, executor, token, at)
    # 3. Read one consistent view.
    began = time.perf_counter_ns()
    snapshot, left = _read(pool, executor, token, at)
    read = time.perf_counter_ns()
    fault_point("round.after_snapshot")
    if _quiet(snapshot):
        _note_checked(pool.pk, token, at)
        return RoundResult(RoundOutcome.QUIET)
    # 4. Decide and check: the same call as in a simulation or a replay.
    snapshot, decision = _decide(pool, snapshot, token, at)
    fault_point("round.after_decide")
    decided = time.perf_counter_ns()
    # The certificate measures fairness. If the measurement fails, the certificate states this and
    # the round goes on.
    certificate = certify_round(snapshot, decision)
    if certificate.failure:
        log.warning("round.uncertified", pool=pool.name, why=certificate.failure)
    certified = time.perf_counter_ns()
    # 5. Apply in one transaction that checks our token.
    plan = RoundPlan(
        snapshot=snapshot, left=left, decision=decision, certificate=certificate, token=token,
        wall_at=wall_at, book=pool.book, scale=scale, grace_s=pool.grace_s,
        snapshot_us=(read - began) // MICROSECOND_NS,
        decide_us=(decided - read) // MICROSECOND_NS,
    )  # fmt: skip # rows of what belongs together
    round_ = apply_round(plan)
    fault_point("round.after_commit")
    applied = time.perf_counter_ns()
    if round_.state_note:
        note_round(round_)
    # 6. Deliver the new intents.
    _dispatch(pool, executor, token, at)
    GuardedExecutor(pool, executor, settings.INSTALLATION).extend(_extensions(pool.pk))
    log.info(
        "round.committed",
        pool=pool.name,
        round=round_.number,
        at=at.isoformat(),
        **{key: round_.summary[key] for key in ("granted", "renewed", "ended", "waiting", "idle")},
        snapshot_ms=(read - began) // MILLISECOND_NS,
        decide_ms=(decided - read) // MILLISECOND_NS,
        certify_ms=(certified - decided) // MILLISECOND_NS,
        apply_ms=(applied - certified) // MILLISECOND_NS,
    )
    return RoundResult(RoundOutcome.COMMITTED, round_)


def _profile(pool: Pool, token: int, at: datetime) -> None:
    """Create profiling runs; skip this if rows cannot be read.

    The snapshot then quarantines the jobs whose rows cannot be read, and the next round creates the
    runs.
    """
    try:
        make_profiling_runs(pool, token, at=at)
    except UNREADABLE as error:
        log.warning("profiling.unreadable", pool=pool.name, why=f"{type(error).__name__}: {error}")


def _read(pool: Pool, executor: Executor, token: int, at: datetime) -> tuple[Snapshot, LeftState]:
    """Read the snapshot; if rows of jobs cannot be read, quarantine the jobs and read it again.

    Quarantined jobs that hold GPUs are asked to stop, because their requirements are no longer
    known.
    """
    try:
        return _snapshot(pool, at)
    except UNREADABLE:
        faulty_jobs = unreadable_jobs(pool.pk, at)
        if not faulty_jobs:
            raise
    _quarantine(pool, token, faulty_jobs)
    if revoke_quarantined(pool.pk, token, at=at):
        _dispatch(pool, executor, token, at)
    return _snapshot(pool, at)


def _quarantine(pool: Pool, token: int, faulty_jobs: Mapping[int, str]) -> None:
    with engine_scope(pool.pk):
        lock_fence(pool.pk, token)
        for job, why in sorted(faulty_jobs.items()):
            quarantine_job(job, why)


def _snapshot(pool: Pool, at: datetime) -> tuple[Snapshot, LeftState]:
    return read_with_state(pool.pk, number=next_number(pool.pk), at=at)


def _decide(pool: Pool, snapshot: Snapshot, token: int, at: datetime) -> tuple[Snapshot, Decision]:
    """Decide; if a job makes the policy fail, quarantine it and read the snapshot again."""
    # If this fails, no job is the cause.
    registry.usable_options(snapshot.policy, snapshot.options)
    for _ in range(MAX_FAULTY_JOBS):
        try:
            return snapshot, decide_round(snapshot)
        except InvariantViolation:
            raise
        except Exception as error:
            faulty_job = find_faulty_job(snapshot, decide_round)
            if faulty_job is None:
                raise
            _quarantine(pool, token, {faulty_job.id: f"{type(error).__name__}: {error}"})
            # The new snapshot contains the same state from the last round.
            snapshot, _ = _snapshot(pool, at)
    return snapshot, decide_round(snapshot)


def _extensions(pool_id: int) -> list[Extension]:
    """Return the time until which each live lease's process may run, after this round."""
    leases = Lease.objects.filter(
        pool_id=pool_id, state__in=(Lease.State.LAUNCHING, Lease.State.RUNNING)
    )
    with engine_scope(pool_id):
        rows = list(leases.values_list("job_id", "number", "expires_at", "protected_until"))
    return [
        Extension(
            lease_token(job, number, settings.INSTALLATION),
            job,
            # The process may run until the later of both times; until then, no round may take its
            # GPUs.
            to_us(max(expires_at, protected_until or expires_at)),
        )
        for job, number, expires_at, protected_until in rows
    ]


def _dispatch(pool: Pool, executor: Executor, token: int, at: datetime) -> None:
    dispatch(pool, executor, token, installation=settings.INSTALLATION, at=at)


def _quiet(snapshot: Snapshot) -> bool:
    """Return whether nothing changed, nothing waits, no lease is due and no price has a surcharge.

    The simulator skips rounds by the same rule. No other rounds may be skipped. While a job waits,
    the sort keys of the policies change with time. While no job waits, a surcharge falls round by
    round, and each price must be posted (ADR 0165).
    """
    held = {lease.job for lease in snapshot.leases}
    return (
        not snapshot.changes
        and all(job.id in held for job in snapshot.jobs)
        and not any(lease.ends_by(snapshot.at_us) for lease in snapshot.leases)
        and not any(row.surcharge_micro for row in snapshot.surcharges)
    )


def _note_checked(pool_id: int, token: int, at: datetime) -> None:
    with engine_scope(pool_id):
        fence = lock_fence(pool_id, token)
        fence.last_checked_at = at
        fence.save(update_fields=["last_checked_at"])


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
