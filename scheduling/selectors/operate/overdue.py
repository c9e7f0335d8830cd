"""Leases that hold GPUs although their notice is over, and processes without a lease."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from scheduling.models import ExecutorHealth, Intent, Lease, Pool
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.pools.executors import is_refusal
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.tenants.dashboard import node_names
from tenants.answers import Answer, Hidden, about

# A process may end exactly when its notice ends, and only the next round records this.
ROUNDS_LATER = 2


class StopAnswer(StrEnum):
    """The executor's last answer about a process that is to end."""

    RUNS = "runs"
    NOT_LISTED = "not_listed"
    STOP_REFUSED = "stop_refused"
    NOT_ASKED = "not_asked"
    REFUSES = "refuses"
    SILENT = "silent"


_NAMES = {"number": "lease", "overdue": "overdue_s", "is_written_off": "written_off"}


class OverdueLease(Answer, frozen=True, rename=_NAMES):
    """A lease whose stop was due at `due` (pool time); it holds its GPUs until it ends.

    `engine`: the last answer of its executor about the process; `since` (wall time) and `error` if
    they are known. `reason`: why the lease is to end. `written_off`: an operator requested its end,
    and the next round ends it.
    """

    COMPONENT = "OverdueLeaseRow"

    id: Hidden[int]
    job: Annotated[JobRef, about("null: hidden from your role.", nullable=True)]
    tenant: str
    number: int
    gpus: int
    nodes: tuple[str, ...]
    reason: str
    due: datetime
    overdue: Annotated[timedelta, about("Seconds of pool time since then.")]
    engine: StopAnswer
    since: datetime | None
    error: str
    is_written_off: bool


@dataclass(frozen=True, slots=True)
class OverduePool:
    """A pool's overdue leases: number, first due time (pool time), and number written off."""

    pool: str
    count: int
    oldest: datetime
    written_off: int


def open_stops(pool_ids: Collection[int]) -> list[Intent]:
    """Return the stop intents of leases that still hold GPUs, oldest first. At most two queries."""
    live = Lease.objects.filter(pool__in=pool_ids).exclude(state=Lease.State.ENDED)
    leases = list(live.filter(state=Lease.State.STOPPING).values_list("id", flat=True))
    if not leases:
        return []
    stops = Intent.objects.filter(lease__in=leases, kind=Intent.Kind.STOP)
    return list(stops.select_related("pool", "lease__job", "lease__tenant").order_by("at", "id"))


def stop_due(stop: Intent) -> datetime:
    """Return when a process should have ended: the end of its notice (pool time)."""
    return stop.at + timedelta(seconds=stop.pool.grace_s)


def overdue_from(stop: Intent, scale: int) -> datetime:
    """Return the instant (pool time) from which a lease counts as overdue."""
    return stop_due(stop) + timedelta(seconds=ROUNDS_LATER * stop.pool.round_s * scale)


def overdue_leases(pool: Pool, now: datetime, scale: int) -> list[OverdueLease]:
    """Return the overdue leases of a pool, longest overdue first; `now` is pool time."""
    stops = [stop for stop in open_stops([pool.pk]) if now >= overdue_from(stop, scale)]
    if not stops:
        return []
    health = ExecutorHealth.objects.filter(pool=pool).first() or ExecutorHealth(pool=pool)
    names = node_names(place[0] for stop in stops for place in stop.lease.placement)
    return [_overdue(stop, health, names, now) for stop in stops]


def overdue_pools(pools: Sequence[PoolFacts], now: Mapping[int, datetime]) -> list[OverduePool]:
    """Return the pools with overdue leases. At most three queries."""
    scales = {facts.id: facts.clock.scale for facts in pools}
    by_pool: dict[int, list[Intent]] = {}
    for stop in open_stops(list(scales)):
        if now[stop.pool_id] >= overdue_from(stop, scales[stop.pool_id]):
            by_pool.setdefault(stop.pool_id, []).append(stop)
    if not by_pool:
        return []
    rows = ExecutorHealth.objects.filter(pool__in=by_pool)
    written_off = {row.pool_id: set(row.written_off) for row in rows}
    return [
        OverduePool(
            stops[0].pool.name,
            len(stops),
            min(map(stop_due, stops)),
            sum(_is_named(stop.lease, written_off.get(pool_id, ())) for stop in stops),
        )
        for pool_id, stops in sorted(by_pool.items())
    ]


def orphan_processes() -> list[ExecutorHealth]:
    """Return executors that run processes without a lease. A single query."""
    rows = ExecutorHealth.objects.exclude(orphans={}).select_related("pool")
    return list(rows.order_by("pool_id"))


def _overdue(
    stop: Intent, health: ExecutorHealth, names: Mapping[int, str], now: datetime
) -> OverdueLease:
    lease = stop.lease
    engine, since, error = _said(stop, health)
    return OverdueLease(
        id=lease.pk,
        job=JobRef(lease.job.uid, lease.job.name),
        tenant=lease.tenant.name,
        number=lease.number,
        gpus=lease.gpus,
        nodes=tuple(sorted(names.get(place[0], "?") for place in lease.placement)),
        reason=lease.end_reason,
        due=stop_due(stop),
        overdue=now - stop_due(stop),
        engine=engine,
        since=since,
        error=error,
        is_written_off=_is_named(lease, health.written_off),
    )


def _said(stop: Intent, health: ExecutorHealth) -> tuple[StopAnswer, datetime | None, str]:
    """Return the last answer about a process, since when (wall time, if known), and the error."""
    if health.failures:
        word = StopAnswer.REFUSES if is_refusal(health.error) else StopAnswer.SILENT
        return word, health.failing_since, health.error
    token = next((one for one in health.missing if _is_of(stop.lease, one)), None)
    if token is not None:
        return StopAnswer.NOT_LISTED, datetime.fromisoformat(health.missing[token]), ""
    if stop.state == Intent.State.OPEN:
        word = StopAnswer.STOP_REFUSED if stop.last_error else StopAnswer.NOT_ASKED
        return word, None, stop.last_error
    return StopAnswer.RUNS, None, ""


def _is_named(lease: Lease, tokens: Collection[str]) -> bool:
    return any(_is_of(lease, token) for token in tokens)


def _is_of(lease: Lease, token: str) -> bool:
    """Return whether a token, `installation-job-number`, identifies a lease."""
    return token.split("-")[1:] == [str(lease.job_id), str(lease.number)]
