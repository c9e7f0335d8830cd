"""Pool time, from the database's clock; it never runs backwards or jumps when its speed changes.

Only this module reads a pool's clock: rounds, services and pages receive a `PoolNow` or a time.
`wall_now` returns the database's wall time. A reader of pages may select the wall time in the same
statement as its rows, and compute the pool time by `pool_time`. Other clocks are read in three
places. `scheduling.engine.rounds` measures how long a step took. The fence and API tokens compare
their expiry with the database's clock in their own queries. A job's process has only its machine's
clock (`scheduling.engine.executors.local`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DateTimeField, Func

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import SECOND_US
from scheduling.models import Pool, PoolClock
from tenants.sql import fetch_rows

# A scaled clock that has not ticked for this long resumes where it stopped. Otherwise a demo that
# was off overnight would resume days of pool time later.
GAP = timedelta(seconds=15)


@dataclass(frozen=True)
class PoolNow:
    """A reading of a pool's clock: wall and pool time of the same moment."""

    wall: datetime
    pool_at: datetime
    scale: int
    paused: bool


# A function from a pool's id to a reading of its clock.
Clocks = Callable[[int], PoolNow]


def pool_time(clock: PoolClock, wall: datetime) -> datetime:
    if clock.paused:
        return clock.anchor_pool
    return clock.anchor_pool + (wall - clock.anchor_wall) * clock.scale


def wall_time(clock: PoolClock, pool_at: datetime) -> datetime:
    """Return the wall time at which `clock` shows or showed `pool_at`; ignore pauses."""
    return clock.anchor_wall + (pool_at - clock.anchor_pool) / clock.scale


def reading(clock: PoolClock, wall: datetime) -> PoolNow:
    return PoolNow(wall, pool_time(clock, wall), clock.scale, clock.paused)


def read_clock(pool_id: int) -> PoolNow:
    """Read the pool's clock without changing it, in one query."""
    wall = Func(function="clock_timestamp", output_field=DateTimeField())
    clock = PoolClock.objects.annotate(wall=wall).get(pool_id=pool_id)
    return reading(clock, clock.wall)


def read_clocks(pool_ids: Collection[int]) -> dict[int, PoolNow]:
    """Read the clocks of some pools, as `read_clock` does, in one query."""
    wall = Func(function="clock_timestamp", output_field=DateTimeField())
    rows = PoolClock.objects.annotate(wall=wall).filter(pool_id__in=list(pool_ids))
    return {row.pool_id: reading(row, row.wall) for row in rows}


def tick_clock(pool_id: int) -> PoolNow:
    """Record a tick of the pool's clock.

    Skip long gaps between ticks, and pause if no user views the pool.

    A scaled clock does not advance during a gap longer than `GAP`. At scale 1 it does, because real
    processes continue during the gap. If the wall clock went backwards, either clock continues from
    its last tick.
    """
    with transaction.atomic():
        clock = PoolClock.objects.select_for_update().select_related("pool").get(pool_id=pool_id)
        wall = wall_now()
        gap = wall - clock.seen_wall
        if gap < timedelta(0) or (gap > GAP and clock.scale > 1):
            _anchor(clock, clock.seen_wall, wall)
            if clock.viewed_wall < wall - gap:
                clock.viewed_wall += max(gap, timedelta(0))
        clock.seen_wall = wall
        unwatched_s = clock.pool.pause_unwatched_s
        if (
            unwatched_s is not None
            and not clock.paused
            and wall - clock.viewed_wall > timedelta(seconds=unwatched_s)
        ):
            _anchor(clock, wall, wall)
            clock.paused, clock.pause_reason = True, "unwatched"
        clock.save()
        return reading(clock, wall)


def note_viewer(pool_id: int) -> None:
    """Record that a user views the pool; resume its clock if it was paused for lack of viewers."""
    with transaction.atomic():
        clock = PoolClock.objects.select_for_update().get(pool_id=pool_id)
        wall = wall_now()
        clock.viewed_wall = wall
        if clock.paused and clock.pause_reason == "unwatched":
            clock.paused, clock.pause_reason = False, ""
            clock.anchor_wall = wall
            clock.seen_wall = wall
        clock.save()


def set_clock(
    pool_id: int, *, scale: int | None = None, paused: bool | None = None, reason: str = ""
) -> PoolNow:
    """Set the scale, or pause or resume; pool time does not jump."""
    with transaction.atomic():
        clock = PoolClock.objects.select_for_update().get(pool_id=pool_id)
        wall = wall_now()
        _anchor(clock, wall, wall)
        clock.seen_wall = wall
        if scale is not None:
            clock.scale = scale
        if paused is not None:
            clock.paused, clock.pause_reason = paused, reason if paused else ""
        clock.save()
        return reading(clock, wall)


def start_clock(pool: Pool, pool_at: datetime, *, scale: int) -> PoolClock:
    """Create a pool's clock so that it shows `pool_at` now."""
    wall = wall_now()
    return PoolClock.objects.create(
        pool=pool,
        anchor_wall=wall,
        anchor_pool=pool_at,
        scale=scale,
        seen_wall=wall,
        viewed_wall=wall,
    )


def grid_instant(now: PoolNow, round_s: int) -> datetime:
    """Return the latest time of the round grid: the whole multiples of round_s x scale."""
    step_us = round_s * now.scale * SECOND_US
    return from_us(to_us(now.pool_at) // step_us * step_us)


def silent_s(clock: PoolClock, wall: datetime, checked_at: datetime | None) -> float:
    """Return the wall seconds since the pool's last check for a round; 0 if it is paused.

    For a pool that was never checked, count from the time at which its clock was set.
    """
    if clock.paused:
        return 0.0
    if checked_at is None:
        return max(0.0, (wall - clock.anchor_wall).total_seconds())
    return (pool_time(clock, wall) - checked_at).total_seconds() / clock.scale


def round_late_s(
    clock: PoolClock, wall: datetime, checked_at: datetime | None, round_s: int
) -> float | None:
    """Return for how many wall seconds a round has been due, or None if none is due.

    It is due since the first time of the round grid after `checked_at`. A new pool is due since its
    clock was set. Counting from the latest grid time would starve a new pool, because it would
    always seem less late than pools that are always late.
    """
    now = reading(clock, wall)
    if now.paused:
        return None
    if checked_at is None:
        return silent_s(clock, wall, None)
    if grid_instant(now, round_s) <= checked_at:
        return None
    at_checked = grid_instant(replace(now, pool_at=checked_at), round_s)
    first = at_checked + timedelta(seconds=round_s * now.scale)
    return (now.pool_at - first).total_seconds() / now.scale


def wall_now() -> datetime:
    """Return the database's wall clock, not the start of the transaction."""
    instant: datetime
    ((instant,),) = fetch_rows("SELECT clock_timestamp()")
    return instant


def _anchor(clock: PoolClock, shown_at: datetime, wall: datetime) -> None:
    """Set the clock so that at `wall` it shows the pool time of `shown_at`, and runs on."""
    clock.anchor_pool = pool_time(clock, shown_at)
    clock.anchor_wall = wall
