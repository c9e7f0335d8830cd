"""Tells pools that somebody looks at them, so that an unwatched demo can pause."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog
from django.db import Error
from django.http import HttpRequest, HttpResponseBase

from portal.common.access import about
from scheduling.engine.clock import note_viewer
from scheduling.selectors.pools.lines import PoolFacts
from tenants.scopes import engine_scope

log = structlog.get_logger(__name__)

# A process notes a look at most so often: the pause comes after an hour, not after seconds.
EVERY_S = 30.0


class Looks:
    """Notes that a pool is watched: at once where it sleeps, else once in `EVERY_S`."""

    def __init__(self) -> None:
        self._noted: dict[int, float] = {}
        self._lock = Lock()

    def note(self, pool: PoolFacts) -> None:
        if _sleeps(pool) or self._is_due(pool.id):
            self._note(pool.id)

    def _is_due(self, pool_id: int) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._noted.get(pool_id, -EVERY_S) < EVERY_S:
                return False
            self._noted[pool_id] = now
        return True

    @staticmethod
    def _note(pool_id: int) -> None:
        try:
            with engine_scope(pool_id):
                note_viewer(pool_id)
        except Error:
            # The page is made already; the next one notes it.
            log.warning("pool.view_not_noted", pool=pool_id, exc_info=True)


class WatchedPools:
    """After a page about a pool was shown, note that the pool is watched.

    After, not before: the page that wakes a paused pool still says that it was paused.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._looks = Looks()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        pool = about(request).pool
        if pool is not None:
            self._looks.note(pool)
        return response


def _sleeps(pool: PoolFacts) -> bool:
    return pool.clock.paused and pool.clock.pause_reason == "unwatched"
