"""A shared reading for all open pages: the lines of pools, and their permissions.

Every open page polls its pool's line every two seconds. A reading uses one connection for all
recently polled pools and sessions; other polls do not query the database. No poll gets data that
was read more than `FRESH_S` before the poll arrived. So a changed line, or an ended session, role
or quota, takes effect at the latest after `FRESH_S`.
Source: docs/adr/0138-many-readers.md.
"""

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

# A reading serves polls that arrive up to this many seconds after its start.
FRESH_S = 1.0
# Seconds between the starts of two readings, however many new sessions poll.
GAP_S = 0.05
# A pool or session without a poll for this many seconds is no longer read.
FORGET_S = 10.0
# A poll waits at most this many seconds for a reading; then Django handles the request.
PATIENCE_S = 3.0
# Maximum number of pools and sessions of a reading; Django handles requests for others.
POOLS, SESSIONS = 200, 5000
VISITOR = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Pools and sessions at one moment; a polled pool or session that does not exist is None."""

    begun: float = float("-inf")
    done: float = float("-inf")
    pools: Mapping[str, PoolFacts | None] = field(default_factory=dict)
    tenants: Mapping[int, frozenset[int]] = field(default_factory=dict)
    people: Mapping[str, Access | None] = field(default_factory=dict)

    def knows(self, pool: str, session: str, asked: float) -> bool:
        """Return whether the reading has pool and session, and is fresh for a poll at `asked`."""
        fresh = asked - self.begun <= FRESH_S
        return fresh and pool in self.pools and session in self.people

    def facts(self, pool: str, session: str) -> PoolFacts | None:
        """Return a pool's facts if the viewer may see it; None if Django must answer."""
        facts, viewer = self.pools.get(pool), self.people.get(session)
        if facts is None or viewer is None or not may_see_pool(viewer, self.tenants[facts.id]):
            return None
        since = timedelta(seconds=max(0.0, time.monotonic() - self.done))
        return replace(facts, wall=facts.wall + since)


class PollBoard:
    """The last reading of this process. Polled from one event loop; read on a thread."""

    def __init__(self) -> None:
        self._looks = Looks()
        self._pools: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        self._watched: set[str] = set()
        self._reading = Reading()
        self._tried = float("-inf")
        self._work: asyncio.Task[bool] | None = None

    async def facts(self, pool: str, session: str) -> PoolFacts | None:
        """Return a pool for a session, at most `FRESH_S` old; None if Django must answer."""
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
        return len(self._pools), len(self._sessions)

    async def _knowing(self, pool: str, session: str) -> Reading | None:
        asked = time.monotonic()
        # The current reading may have started before this poll's pool was added: then wait again.
        for _ in range(3):
            if self._reading.knows(pool, session, asked):
                return self._reading
            if self._work is None or self._work.done():
                self._work = asyncio.ensure_future(self._read())
            if not await asyncio.shield(self._work):
                return None
        return self._reading if self._reading.knows(pool, session, asked) else None

    async def _read(self) -> bool:
        """Read all polled pools and sessions; return False if the database did not answer."""
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
        # Entries that do not exist must not fill the limits.
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
    """Read the database, note the watched pools, and close the connection."""
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
    """Note a polled key; return False if there are too many."""
    if key not in asked and len(asked) >= most:
        return False
    asked[key] = time.monotonic()
    return True
