"""One round of one pool, in numbered steps."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import structlog
from django.conf import settings

from scheduling.domain.snapshot import Snapshot
from scheduling.engine.apply import RoundPlan, round_apply
from scheduling.engine.clock import PoolNow, grid_instant
from scheduling.engine.dispatch import dispatch
from scheduling.engine.executors import Executor, executor_for
from scheduling.engine.feeder import feed
from scheduling.engine.fence import (
    HOLD_S,
    FencedError,
    fence_lock,
    fence_release,
    fence_take,
)
from scheduling.engine.reconcile import reconcile
from scheduling.engine.snapshots import next_number, snapshot_read
from scheduling.models import Pool, PoolFence, Round
from scheduling.policies.base import decide_round
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What came of an attempt to run a round."""

    COMMITTED = "committed"
    NOT_DUE = "not_due"  # this grid instant was looked at already, or the pool is paused
    QUIET = "quiet"  # nothing changed, waits or is due: no round is stored
    FENCED = "fenced"  # another holder has the pool, or took it meanwhile; nothing written


@dataclass(frozen=True)
class RoundResult:
    """The outcome, and the round if one was committed."""

    outcome: Outcome
    round: Round | None = None


def round_run(pool_id: int, *, now: PoolNow, hold_s: float = HOLD_S) -> RoundResult:
    """Run the pool's round if one is due at `now`, under its fence for at most `hold_s`.

    Safe to call at any time, from any number of processes: at most one round is committed per
    grid instant.

    Raises:
        InvariantViolation: the policy broke an invariant; nothing was applied.
    """
    pool = Pool.objects.get(pk=pool_id)
    at = grid_instant(now, pool.round_s)
    if now.paused or not _due(pool_id, at):
        return RoundResult(Outcome.NOT_DUE)
    token = fence_take(pool_id, holder=_holder(), hold_s=hold_s)
    if token is None:
        log.info("round.fenced", pool=pool.name, why="another holder has the pool")
        return RoundResult(Outcome.FENCED)
    try:
        if not _due(pool_id, at):
            return RoundResult(Outcome.NOT_DUE)
        return _run(pool, token, at, wall_at=now.wall, scale=now.scale)
    except FencedError as error:
        log.warning("round.fenced", pool=pool.name, why=str(error))
        return RoundResult(Outcome.FENCED)
    finally:
        fence_release(pool_id, token)


def _due(pool_id: int, at: datetime) -> bool:
    fence = PoolFence.objects.get(pool_id=pool_id)
    return fence.last_checked_at is None or at > fence.last_checked_at


def _run(pool: Pool, token: int, at: datetime, *, wall_at: datetime, scale: int) -> RoundResult:
    executor = executor_for(pool.executor)
    # 1. What a crash left undone.
    _dispatch(pool, executor, token, at)
    # 2. What arrived and what ended until now.
    feed(pool.pk, until=at)
    reconcile(pool, executor, token, installation=settings.INSTALLATION, at=at)
    # A reconcile frees GPUs that leases may wait for.
    _dispatch(pool, executor, token, at)
    # 3. One consistent view.
    began = time.perf_counter_ns()
    snapshot = snapshot_read(pool.pk, number=next_number(pool.pk), at=at)
    read = time.perf_counter_ns()
    if _quiet(snapshot):
        _note_checked(pool.pk, token, at)
        return RoundResult(Outcome.QUIET)
    # 4. Decide and check: the same call as in a simulation or a replay.
    decision = decide_round(snapshot)
    decided = time.perf_counter_ns()
    # 5. Apply in one transaction, at our token.
    round_ = round_apply(
        RoundPlan(
            snapshot=snapshot,
            decision=decision,
            token=token,
            wall_at=wall_at,
            book=pool.book,
            scale=scale,
            snapshot_us=(read - began) // 1000,
            decide_us=(decided - read) // 1000,
        )
    )
    applied = time.perf_counter_ns()
    # 6. Carry it out.
    _dispatch(pool, executor, token, at)
    log.info(
        "round.committed",
        pool=pool.name,
        round=round_.number,
        at=at.isoformat(),
        **{key: round_.summary[key] for key in ("granted", "renewed", "ended", "waiting", "idle")},
        snapshot_ms=(read - began) // 1_000_000,
        decide_ms=(decided - read) // 1_000_000,
        apply_ms=(applied - decided) // 1_000_000,
    )
    return RoundResult(Outcome.COMMITTED, round_)


def _dispatch(pool: Pool, executor: Executor, token: int, at: datetime) -> None:
    dispatch(pool, executor, token, installation=settings.INSTALLATION, at=at)


def _quiet(snapshot: Snapshot) -> bool:
    """Whether nothing changed, nothing waits and no lease is due.

    The simulator skips by the same rule. More must not be skipped: while a job waits, the keys
    of the policies drift with time.
    """
    held = {lease.job for lease in snapshot.leases}
    return (
        not snapshot.changes
        and all(job.id in held for job in snapshot.jobs)
        and not any(lease.ends_by(snapshot.at_us) for lease in snapshot.leases)
    )


def _note_checked(pool_id: int, token: int, at: datetime) -> None:
    with engine_scope(pool_id):
        fence = fence_lock(pool_id, token)
        fence.last_checked_at = at
        fence.save(update_fields=["last_checked_at"])


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
