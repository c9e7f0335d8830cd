"""Lanes: requests wait by kind, before a thread and a connection are used for them.

The numbers fit together: all lanes that query the database serve at most as many requests at once
as the pool has connections. So no request in service waits for a connection. Source:
docs/adr/0125-turns.md.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse

# Connections reserved for /readyz, /metrics and the board of open pages, one each.
RESERVED = 3
# Test servers have no connection pool; their pages are limited as with a pool of this size.
POOL_SIZE = 13
RETRY_AFTER_S = 5


class RequestRefusedError(Exception):
    """A request that is refused before any view receives it."""

    def __init__(self, status: int, code: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


class ClientLeftError(Exception):
    """The client has disconnected: no response is needed."""


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """The limits of a lane: requests served at once, requests that wait, and the longest wait.

    `each`: how many of them may come from one client. `answer_s`: after this time the lane answers
    503, even if its threads still wait.
    """

    at_once: int
    queue: int
    wait_s: float
    each: int
    answer_s: float | None = None


class Lane:
    """The turns of one kind of requests, first come first served."""

    def __init__(self, limits: LaneLimits) -> None:
        self.limits = limits
        self._turns = asyncio.Semaphore(limits.at_once)
        self._clients: Counter[str] = Counter()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    async def enter(self, client: str, left: asyncio.Future[Any]) -> None:
        """Wait for a turn, which `leave` ends; give up as soon as `left` is done.

        Raises:
            RequestRefusedError: too many wait, of this client or in total, or no turn came in time.
            ClientLeftError: the client disconnected.
        """
        if self._clients[client] >= self.limits.each:
            raise RequestRefusedError(429, "busy", retry_after_s=RETRY_AFTER_S)
        if self._turns.locked() and self._waiting >= self.limits.queue:
            raise RequestRefusedError(503, "busy", retry_after_s=RETRY_AFTER_S)
        self._clients[client] += 1
        self._waiting += 1
        try:
            await self._turn(left)
        except BaseException:
            self._forget(client)
            raise
        finally:
            self._waiting -= 1

    def leave(self, client: str) -> None:
        """End a turn that `enter` began."""
        self._turns.release()
        self._forget(client)

    async def _turn(self, left: asyncio.Future[Any]) -> None:
        if not self._turns.locked():
            await self._turns.acquire()
            return
        turn = asyncio.ensure_future(self._turns.acquire())
        try:
            await asyncio.wait(
                {turn, left}, timeout=self.limits.wait_s, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            self._drop(turn)
            raise
        if turn.done() and not left.done():
            return
        self._drop(turn)
        if left.done():
            raise ClientLeftError
        raise RequestRefusedError(503, "busy", retry_after_s=RETRY_AFTER_S)

    def _drop(self, turn: asyncio.Future[Any]) -> None:
        """Cancel the wait for a turn, or release the turn."""
        if turn.done():
            self._turns.release()
        else:
            turn.cancel()

    def _forget(self, client: str) -> None:
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]


def limits_by_lane() -> dict[str, LaneLimits]:
    hashes = settings.PASSWORD_HASHES_AT_ONCE
    pages = max(1, (settings.DATABASE_POOL_SIZE or POOL_SIZE) - hashes - RESERVED)
    return {
        "pages": LaneLimits(pages, queue=256, wait_s=30.0, each=128),
        # Limited first, so that guessing passwords cannot slow down other requests.
        "logins": LaneLimits(hashes, queue=64, wait_s=20.0, each=16),
        "static": LaneLimits(4, queue=256, wait_s=30.0, each=128),
        "alive": LaneLimits(4, queue=256, wait_s=5.0, each=256),
        "ready": LaneLimits(1, queue=64, wait_s=5.0, each=64, answer_s=2.0),
        "metrics": LaneLimits(1, queue=16, wait_s=10.0, each=16, answer_s=10.0),
        # Bodies in several pieces: counted while they are read, without a turn.
        "bodies": LaneLimits(64, queue=0, wait_s=0.0, each=16),
    }


class LaneChooser:
    """Chooses a request's lane by method and path."""

    def __init__(self) -> None:
        self._probes = {
            reverse("healthz"): "alive",
            reverse("readyz"): "ready",
            reverse("metrics"): "metrics",
        }
        # Requests that hash a password.
        self._logins = frozenset(map(reverse, ("login", "api-tokens", "account", "join")))

    def lane(self, scope: Mapping[str, Any]) -> str:
        path = str(scope["path"])
        if scope["method"] == "POST" and path in self._logins:
            return "logins"
        if path.startswith(settings.STATIC_URL):
            return "static"
        return self._probes.get(path, "pages")
