"""Requests wait their turn, by kind, before a thread and a connection are spent on them.

The numbers fit together: the requests that may be in service at once, of all lanes that ask the
database, are as many as the pool has connections, so none that got its turn waits for one.
Source: docs/adr/0125-turns.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import reverse

# Kept free of pages: one connection each for /readyz, /metrics and the board of open pages.
RESERVED = 3
# Without a pool (a server for tests) pages are served as with one of this size.
POOL_SIZE = 13
RETRY_AFTER_S = 5


class RequestRefusedError(Exception):
    """A request that is answered before any view sees it."""

    def __init__(self, status: int, code: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


class ClientLeftError(Exception):
    """The client has gone: nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """How many requests of a lane are served at once, and how many wait for how long.

    `each` is how many of them may come from one client. `answer_s`: after so long the lane
    answers 503 by itself, whatever its threads wait for.
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
        """How many wait for their turn."""
        return self._waiting

    async def enter(self, client: str, left: asyncio.Future[Any]) -> None:
        """Wait for a turn, which `leave` ends; give up when `left` is done.

        Raises:
            RequestRefusedError: too many wait, of this client or of all, or none came in time.
            ClientLeftError: the client did not wait.
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
        """End the turn that `enter` gave."""
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
        """Take back the wish for a turn, or the turn itself."""
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
        # Shed before all others: who guesses passwords is kept waiting, not who works.
        "logins": LaneLimits(hashes, queue=64, wait_s=20.0, each=16),
        "static": LaneLimits(4, queue=256, wait_s=30.0, each=128),
        "alive": LaneLimits(4, queue=256, wait_s=5.0, each=256),
        "ready": LaneLimits(1, queue=64, wait_s=5.0, each=64, answer_s=2.0),
        "metrics": LaneLimits(1, queue=16, wait_s=10.0, each=16, answer_s=10.0),
        # Bodies that come in pieces: counted while they are read, with no turn to wait for.
        "bodies": LaneLimits(64, queue=0, wait_s=0.0, each=16),
    }


class LaneChooser:
    """Says by method and path which lane a request takes."""

    def __init__(self) -> None:
        self._probes = {
            reverse("healthz"): "alive",
            reverse("readyz"): "ready",
            reverse("metrics"): "metrics",
        }
        # Where a password is hashed.
        self._logins = frozenset({reverse("login"), reverse("api-tokens"), reverse("account")})

    def lane(self, scope: Mapping[str, Any]) -> str:
        path = str(scope["path"])
        if scope["method"] == "POST" and path in self._logins:
            return "logins"
        if path.startswith(settings.STATIC_URL):
            return "static"
        return self._probes.get(path, "pages")
