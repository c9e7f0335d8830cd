"""The thread that writes a worker's heartbeat; not started without a run folder."""

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
    """Checks this worker every `PULSE_EVERY_S` and writes its state, by queue."""

    def __init__(self) -> None:
        self._taken = 0
        signals.task_received.connect(self._take, weak=False)
        # An expired message was taken from the queue as well.
        signals.task_revoked.connect(self._take, weak=False)

    def start(self, run: Path, queues: Sequence[str]) -> None:
        """Start the thread, once the worker is ready."""
        threading.Thread(
            target=self._say, args=(run, {queue: HeartbeatMaker() for queue in queues}), daemon=True
        ).start()

    def _take(self, **_: Any) -> None:
        self._taken += 1

    def _say(self, run: Path, workers: dict[str, HeartbeatMaker]) -> None:
        clocks = read_clocks()
        while True:
            try:
                # Only one worker checks the machine's clocks.
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
                # Without this, an error of the thread would silence the worker for good.
                log.exception("worker.heartbeat")
            time.sleep(PULSE_EVERY_S)


def _running() -> list[Any]:
    # Another thread may change the set at the same time.
    for _ in range(5):
        try:
            return list(state.active_requests)
        except RuntimeError:
            continue
    return []


def _waiting(queue: str) -> int | None:
    """Return how many messages wait in the broker, or None if it does not answer."""
    import redis  # noqa: PLC0415 - portal.site.health reads models, which are not loaded yet

    from portal.site.health import broker_client  # noqa: PLC0415 - see above

    try:
        with broker_client() as client:
            return int(client.llen(queue))
    except (redis.RedisError, OSError):
        return None
