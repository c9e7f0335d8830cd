"""What open pages ask for, read for all of them at once: the lines of pools, and who may see them.

Every open page asks for its pool's line every two seconds. A reading takes one connection, for all
pools and sessions that were asked for lately; in between nobody asks the database. No poll gets
what was read more than `FRESH_S` before it was asked: a line that changed, and a session, a role
or a quota that ended, count for polls after that at the latest.
Source: docs/adr/0138-many-readers.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog
from django.db import Error, close_old_connections

from portal.common.access import may_see_pool
from portal.site.health import be_quick
from portal.site.middleware import Looks
from scheduling.selectors.pools.lines import PoolFacts, pools_named
from tenants.scopes import site_scope
from tenants.selectors.access import Access
from tenants.selectors.quotas import tenants_of_pools
from tenants.selectors.sessions import accesses_of_sessions

log = structlog.get_logger(__name__)

# A reading serves polls that are asked so long after its begin, however long it took itself.
FRESH_S = 1.0
# Between the begins of two readings, however many new sessions ask.
GAP_S = 0.05
# Whoever did not ask for so long is not read any more.
FORGET_S = 10.0
# A poll waits so long for a reading; then the request goes the way of every other one.
PATIENCE_S = 3.0
# How many pools and sessions are read at once; what is beyond goes the way of every other request.
POOLS, SESSIONS = 200, 5000
VISITOR = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Pools and sessions of one moment; what was asked for and is not there is None."""

    begun: float = float("-inf")
    done: float = float("-inf")
    pools: Mapping[str, PoolFacts | None] = field(default_factory=dict)
    tenants: Mapping[int, frozenset[int]] = field(default_factory=dict)
    people: Mapping[str, Access | None] = field(default_factory=dict)

    def knows(self, pool: str, session: str, asked: float) -> bool:
        """Whether it was asked for both, lately enough for a poll of that moment."""
        fresh = asked - self.begun <= FRESH_S
        return fresh and pool in self.pools and session in self.people

    def facts(self, pool: str, session: str) -> PoolFacts | None:
        """Return a pool as it is now, for who may see it; None where Django shall say why not."""
        facts, viewer = self.pools.get(pool), self.people.get(session)
        if facts is None or viewer is None or not may_see_pool(viewer, self.tenants[facts.id]):
            return None
        since = timedelta(seconds=max(0.0, time.monotonic() - self.done))
        return replace(facts, wall=facts.wall + since)


class PollBoard:
    """The last reading of this process. Asked from one event loop; read on a thread."""

    def __init__(self) -> None:
        self._looks = Looks()
        self._pools: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        self._watched: set[str] = set()
        self._reading = Reading()
        self._tried = float("-inf")
        self._work: asyncio.Task[bool] | None = None

    async def facts(self, pool: str, session: str) -> PoolFacts | None:
        """Return a pool for who holds a session, as of `FRESH_S` ago or later; None: ask Django."""
        if not (_ask(self._pools, pool, POOLS) and _ask(self._sessions, session, SESSIONS)):
            return None
        try:
            async with asyncio.timeout(PATIENCE_S):
                reading = await self._knowing(pool, session)
        except TimeoutError:
            return None
        facts = None if reading is None else reading.facts(pool, session)
        if facts is not None:
            self._watched.add(pool)
        return facts

    @property
    def sizes(self) -> tuple[int, int]:
        """How many pools and sessions are read."""
        return len(self._pools), len(self._sessions)

    async def _knowing(self, pool: str, session: str) -> Reading | None:
        asked = time.monotonic()
        # The reading under way may have begun before this was asked for: then the next one knows.
        for _ in range(3):
            if self._reading.knows(pool, session, asked):
                return self._reading
            if self._work is None or self._work.done():
                self._work = asyncio.ensure_future(self._read())
            if not await asyncio.shield(self._work):
                return None
        return self._reading if self._reading.knows(pool, session, asked) else None

    async def _read(self) -> bool:
        """Read all that is asked for; False where the database did not answer."""
        await asyncio.sleep(max(0.0, self._tried + GAP_S - time.monotonic()))
        self._tried = time.monotonic()
        for asked in (self._pools, self._sessions):
            for key in [key for key, at in asked.items() if self._tried - at > FORGET_S]:
                del asked[key]
        watched, self._watched = self._watched, set()
        try:
            self._reading = await asyncio.to_thread(
                read, tuple(self._pools), tuple(self._sessions), watched, self._looks
            )
        except Error as error:
            log.warning("board.no_database", error=type(error).__name__)
            return False
        # What is not there takes nobody's place.
        for asked, entries in (
            (self._pools, self._reading.pools),
            (self._sessions, self._reading.people),
        ):
            for key in [key for key, one in entries.items() if one is None]:
                asked.pop(key, None)
        return True


def read(
    pools: Collection[str], sessions: Collection[str], watched: Collection[str], looks: Looks
) -> Reading:
    """Read the database, note which of the pools are watched, and give the connection back."""
    begun = time.monotonic()
    try:
        with site_scope():
            be_quick()
            facts = {one.name: one for one in pools_named(pools)}
            done = time.monotonic()
            tenants = tenants_of_pools([one.id for one in facts.values()])
            people = accesses_of_sessions([key for key in sessions if key != VISITOR])
        for name in facts.keys() & watched:
            looks.note(facts[name])
    finally:
        close_old_connections()
    return Reading(
        begun=begun,
        done=done,
        pools={name: facts.get(name) for name in pools},
        tenants=tenants,
        people={key: Access() if key == VISITOR else people.get(key) for key in sessions},
    )


def _ask(asked: dict[str, float], key: str, most: int) -> bool:
    """Note that something is asked for; False where too much is."""
    if key not in asked and len(asked) >= most:
        return False
    asked[key] = time.monotonic()
    return True
