"""Notes that pages of a pool are viewed, so that an unwatched demo can pause."""

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

# A process notes views at most this often: the pause comes after an hour, not after seconds.
EVERY_S = 30.0


class Looks:
    """Notes that a pool is watched: at once if it is paused, else once per `EVERY_S`."""

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
            # The page is complete; the next one notes the view.
            log.warning("pool.view_not_noted", pool=pool_id, exc_info=True)


class WatchedPools:
    """Notes that a pool is watched, after its page was rendered.

    So the page that resumes a paused pool still shows that it was paused.
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
