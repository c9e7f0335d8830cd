"""The thread by which a worker gives its heartbeat. Without a run folder nobody asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from celery import signals
from celery.worker import state

from portal.embedded.clocks import note_clocks, read_clocks
from portal.embedded.heartbeat import HeartbeatMaker, write_heartbeat
from portal.embedded.pulse import PULSE_EVERY_S

log = structlog.get_logger(__name__)


class HeartbeatThread:
    """Looks at this worker every `PULSE_EVERY_S` and writes what it finds, by queue."""

    def __init__(self) -> None:
        self._taken = 0
        signals.task_received.connect(self._take, weak=False)
        # A message that has expired was taken as well.
        signals.task_revoked.connect(self._take, weak=False)

    def start(self, run: Path, queues: Sequence[str]) -> None:
        """Begin, once the worker is ready."""
        threading.Thread(
            target=self._say, args=(run, {queue: HeartbeatMaker() for queue in queues}), daemon=True
        ).start()

    def _take(self, **_: Any) -> None:
        self._taken += 1

    def _say(self, run: Path, workers: dict[str, HeartbeatMaker]) -> None:
        clocks = read_clocks()
        while True:
            try:
                # One worker looks for the machine.
                if "default" in workers:
                    before, clocks = clocks, read_clocks()
                    note_clocks(run, before, clocks)
                tasks = {str(request.id): str(request.name) for request in _running()}
                for queue, worker in workers.items():
                    waiting = _waiting(queue)
                    now = time.monotonic()
                    said = worker.look(now, tasks=tasks, taken=self._taken, waiting=waiting)
                    write_heartbeat(run, queue, said)
            except Exception:
                # It would be silent from here on, for a fault of its own.
                log.exception("worker.heartbeat")
            time.sleep(PULSE_EVERY_S)


def _running() -> list[Any]:
    # The worker changes the set meanwhile.
    for _ in range(5):
        try:
            return list(state.active_requests)
        except RuntimeError:
            continue
    return []


def _waiting(queue: str) -> int | None:
    """Return how many messages wait in the broker; None if it does not answer."""
    import redis  # noqa: PLC0415 - portal.site.health reads models, which are not loaded yet

    from portal.site.health import broker_client  # noqa: PLC0415 - see above

    try:
        with broker_client() as client:
            return int(client.llen(queue))
    except (redis.RedisError, OSError):
        return None
