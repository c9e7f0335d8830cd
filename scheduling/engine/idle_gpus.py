"""Reads how much GPU-time leases hold idle; warns of leases whose GPUs all idle, or ends them.

Samples are read outside of rounds, at most every `EVERY_S` for a lease. They are in files that the
job may change, so they are information, never a charge. Rounds read only the stored readings.
"""

import time
from collections.abc import Mapping
from datetime import date, datetime, timedelta

import structlog
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest

from evenshare_core.domain.instants import from_us, to_us
from scheduling.engine.clock import PoolNow, read_clock, wall_now
from scheduling.engine.events import EventLog
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import read_usage
from scheduling.engine.executors.local_spec import CPU
from scheduling.engine.executors.local_usage import (
    MOST_ROWS,
    GpuState,
    NodeUsage,
    most_rows,
    parse_usage,
)
from scheduling.engine.fence import lock_fence
from scheduling.engine.idle_samples import (
    GpuTime,
    HeldSamples,
    count_days,
    idle_span,
    sampled_until,
)
from scheduling.engine.idle_sessions import follow_sessions
from scheduling.engine.revoke import revoke_idle
from scheduling.models import IdleDay, IdleReading, Lease, LeaseEvent, Pool
from tenants.scopes import engine_scope

EVERY_S = 20
# Leases that ended longer ago (wall time) and were never read count as not sampled.
ENDED_S = 3600
# A sample is at most this old (wall time) while its lease counts as idle. In long leases, samples
# are up to 6 minutes apart.
FRESH_S = 600
_READ = {Lease.State.RUNNING, Lease.State.STOPPING}
NO_SAMPLES = NodeUsage(0, 0, 1, 0, GpuState.NONE, None, ())

log = structlog.get_logger(__name__)


def read_idle(pool: Pool, *, seconds: float) -> int:
    """Count the new samples of a pool's leases, for a limited time; return how many were read.

    Ended leases are first, then those that were not read for the longest time.
    """
    if not executor_traits(pool.executor).reports_usage:
        return 0
    until = time.monotonic() + seconds
    now = read_clock(pool.pk)
    with engine_scope(pool.pk):
        leases = _leases_to_read(pool.pk, now)
    for done, lease in enumerate(leases):
        if time.monotonic() > until:
            return done
        _read_lease(lease, now)
    return len(leases)


def _leases_to_read(pool_id: int, now: PoolNow) -> list[Lease]:
    """Return running leases that were not read lately, and those that ended and are not over."""
    rows = Lease.objects.filter(
        Q(idle_reading__isnull=True) | Q(idle_reading__is_over=False),
        pool_id=pool_id,
        started_at__isnull=False,
    ).exclude(gpu_type__name=CPU)
    rows = rows.order_by(F("idle_reading__read_at").asc(nulls_first=True))
    recent = now.pool_at - timedelta(seconds=ENDED_S) * now.scale
    old = now.wall - timedelta(seconds=EVERY_S)
    held = rows.exclude(state=Lease.State.ENDED).filter(state__in=_READ)
    due = held.filter(Q(idle_reading__isnull=True) | Q(idle_reading__read_at__lte=old))
    return [*rows.filter(state=Lease.State.ENDED, ended_at__gt=recent), *due]


def _read_lease(lease: Lease, now: PoolNow) -> None:
    samples = _samples(lease, now)
    is_over = lease.ended_at is not None
    until_ms = samples.until_ms if is_over else sampled_until(samples)
    span = None if is_over else idle_span(samples)
    with engine_scope(lease.pool_id):
        IdleReading.objects.bulk_create(
            [IdleReading(lease=lease, read_at=now.wall)], ignore_conflicts=True
        )
        # Two readers count one after the other, each from where the other one stopped.
        reading = IdleReading.objects.select_for_update().get(pk=lease.pk)
        if reading.is_over:
            return
        days = count_days(samples, reading.counted_ms, until_ms)
        reading.counted_ms = max(reading.counted_ms, until_ms)
        reading.known_us += sum(one.known_us for one in days.values())
        reading.idle_us += sum(one.idle_us for one in days.values())
        before, reading.idle_since, reading.idle_until = reading.idle_until, None, None
        if span is not None:
            reading.idle_since, reading.idle_until = from_us(span.since_us), from_us(span.until_us)
        since = reading.idle_since
        if since is None or (before is not None and since > before):
            reading.warned_at = None  # a GPU was used: the next span is a new one
        reading.read_at, reading.is_over = now.wall, is_over
        reading.save()
        _add_days(lease, days)


def _samples(lease: Lease, now: PoolNow) -> HeldSamples:
    assert lease.started_at is not None  # noqa: S101 - `_leases_to_read` has looked
    held = [gpus for _, gpus in lease.placement] or [lease.gpus]
    nodes = [_node(lease, rank, held) for rank in range(len(held))]
    if nodes and nodes[0].rows and not any(node.rows for node in nodes[1:]):
        # A single shim runs for all nodes.
        nodes, held = nodes[:1], [lease.gpus]
    end = max(lease.started_at, min(lease.ended_at or now.pool_at, now.pool_at))
    times = to_us(lease.started_at), to_us(end)
    return HeldSamples(lease.number, *times, now.scale, tuple(nodes), tuple(held))


def _node(lease: Lease, rank: int, held: list[int]) -> NodeUsage:
    rows, gpus = (most_rows(len(held)), held[rank]) if rank else (MOST_ROWS, lease.gpus)
    text = read_usage(lease.job_id, lease.number, rank)
    said = parse_usage(text, rank=rank, rows=rows, gpus=gpus).usage
    return said or NO_SAMPLES


def _add_days(lease: Lease, days: Mapping[date, GpuTime]) -> None:
    for day, counted in days.items():
        row, _ = IdleDay.objects.get_or_create(
            tenant_id=lease.tenant_id, pool_id=lease.pool_id, day=day
        )
        IdleDay.objects.filter(pk=row.pk).update(
            known_us=F("known_us") + counted.known_us, idle_us=F("idle_us") + counted.idle_us
        )


def follow_idle(pool: Pool, token: int, *, at: datetime, scale: int) -> None:
    """Warn of leases whose GPUs or sessions idle, and end the expired ones, as settings say."""
    warn_idle(pool, token, at=at, scale=scale)
    return_idle(pool, token, at=at, scale=scale)
    follow_sessions(pool, token, at=at, scale=scale)


def idle_for(pool_id: int, seconds: int, *, at: datetime, scale: int) -> QuerySet[IdleReading]:
    """Return the running leases whose GPUs have all idled for this time (pool time), by lease.

    Leases whose last sample is old are left out: what they do now is unknown.
    """
    rows = IdleReading.objects.filter(
        lease__pool_id=pool_id,
        lease__state=Lease.State.RUNNING,
        idle_since__isnull=False,
        idle_until__gte=Greatest(
            F("idle_since") + timedelta(seconds=seconds), at - timedelta(seconds=FRESH_S) * scale
        ),
    )
    return rows.order_by("lease_id")


def warn_idle(pool: Pool, token: int, *, at: datetime, scale: int) -> int:
    """Record an event for each lease whose GPUs have idled for `idle_warn_s`; return how many.

    A lease is warned once for each time in which its GPUs idle.
    """
    if not pool.idle_warn_s:
        return 0
    with engine_scope(pool.pk):
        idling = idle_for(pool.pk, pool.idle_warn_s, at=at, scale=scale)
        idling = idling.filter(warned_at__isnull=True)
        if not idling.exists():
            return 0
        fence = lock_fence(pool.pk, token)
        rows = list(idling.select_for_update(of=("self",)).select_related("lease"))
        events = EventLog(pool.pk, fence.next_round - 1, wall_now())
        for row in rows:
            assert row.idle_since is not None  # noqa: S101 - `idle_for` has looked
            lease = row.lease
            events.add(
                LeaseEvent.Kind.IDLE, at, {"since_us": to_us(row.idle_since), "gpus": lease.gpus},
                lease=lease.pk, job=lease.job_id, tenant=lease.tenant_id, term=lease.term,
            )  # fmt: skip # rows of what belongs together
            row.warned_at = at
        IdleReading.objects.bulk_update(rows, ["warned_at"])
        events.write(fence)
        fence.save(update_fields=["next_event"])
    log.info("idle.warned", leases=[row.pk for row in rows])
    return len(rows)


def return_idle(pool: Pool, token: int, *, at: datetime, scale: int) -> int:
    """End the expired leases whose GPUs have idled for `idle_return_s`; return how many."""
    if not pool.idle_return_s:
        return 0
    with engine_scope(pool.pk):
        idling = idle_for(pool.pk, pool.idle_return_s, at=at, scale=scale)
        leases = list(idling.values_list("pk", flat=True))
    return revoke_idle(pool.pk, token, leases, at=at) if leases else 0
