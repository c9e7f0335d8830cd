"""Instants of pool time as pages show them: on both clocks, if the wall time is known."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from portal.charts.notes import SAME, Instant
from portal.charts.page import LATE, LIVE, PAUSED, RoundLine
from scheduling.engine.clock import PoolNow, grid_instant, pool_time, silent_s
from scheduling.selectors.pools.lines import PoolFacts

# Rounds are late if the pool was not checked for this number of round intervals.
LATE_INTERVALS = 2


@dataclass(frozen=True, slots=True)
class Clocks:
    """A pool's clock at one moment, and rounds (pool time, wall time, scale) in time order."""

    now: PoolNow
    anchors: tuple[tuple[datetime, datetime, int], ...] = ()

    def instant(self, at: datetime | None) -> Instant | None:
        """Return an instant of pool time with its past or expected wall time."""
        if at is None:
            return None
        return Instant(
            pool=at,
            now=self.now.pool_at,
            wall=self._wall(at),
            scale=self.now.scale,
            wall_now=self.now.wall,
        )

    def pool_instant(self, wall: datetime) -> Instant | None:
        """Return a past wall time as an instant; None before the first round that is known."""
        place = bisect_right(self.anchors, wall, key=lambda anchor: anchor[1]) - 1
        if place < 0:
            return None
        pool_at, since, scale = self.anchors[place]
        return self.instant(min(pool_at + (wall - since) * scale, self.now.pool_at))

    def _wall(self, at: datetime) -> datetime | None:
        if at >= self.now.pool_at:
            return self.now.wall + (at - self.now.pool_at) / self.now.scale
        place = bisect_right(self.anchors, at, key=lambda anchor: anchor[0]) - 1
        if place < 0:
            return None
        pool_at, wall, scale = self.anchors[place]
        return wall + (at - pool_at) / scale


def pool_now(facts: PoolFacts) -> PoolNow:
    """Return a pool's time, and the wall time, at the moment when `facts` were read."""
    clock = facts.clock
    at = pool_time(clock, facts.wall)
    return PoolNow(facts.wall, at, clock.scale, clock.paused)


def shows_the_wall(now: PoolNow) -> bool:
    """Return whether a pool's clock equals the wall clock; pages then show only one of them."""
    return now.scale == 1 and not now.paused and abs(now.wall - now.pool_at) < SAME


def clocks(facts: PoolFacts, rounds: Iterable[tuple[datetime, datetime, int]] = ()) -> Clocks:
    """Return a page's clocks from its pool's facts and the rounds on the page.

    The anchor of the pool's clock gives the wall time since the clock was last set.
    """
    own = facts.clock
    anchors = {*rounds, (own.anchor_pool, own.anchor_wall, own.scale)}
    if facts.at is not None and facts.wall_at is not None:
        anchors.add((facts.at, facts.wall_at, facts.clock.scale))
    return Clocks(pool_now(facts), tuple(sorted(anchors)))


def clocks_by_pool(pools: Iterable[PoolFacts]) -> dict[str, Clocks]:
    """Return the clocks of pools by name, for pages over several pools."""
    return {facts.name: clocks(facts) for facts in pools}


def round_line(facts: PoolFacts, *, url: str, round_url: str, pool_url: str) -> RoundLine:
    """Return the line under the masthead, with wall seconds (docs/look.md)."""
    now = pool_now(facts)
    step_s = facts.round_s
    silent = silent_s(facts.clock, facts.wall, facts.checked_at)
    behind = (now.pool_at - grid_instant(now, step_s)).total_seconds() / now.scale
    state = LIVE
    if now.paused:
        state = PAUSED
    elif silent > LATE_INTERVALS * step_s:
        state = LATE
    elif facts.number is None:
        state = "none"
    return RoundLine(
        pool=facts.name,
        state=state,
        number=facts.number,
        url=url,
        round_url=round_url,
        age_s=(facts.wall - facts.wall_at).total_seconds() if facts.wall_at else 0,
        next_s=step_s - behind,
        interval_s=step_s,
        at=clocks(facts).instant(facts.at),
        nodes=facts.nodes,
        gpus=facts.gpus,
        unit=facts.unit,
        policy=facts.policy,
        pool_url=pool_url,
        scale=now.scale,
        late_s=max(0, silent - step_s),
        checked="" if facts.checked_at is None else facts.checked_at.isoformat(),
    )
