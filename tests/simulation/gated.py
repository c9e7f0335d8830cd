"""Workers that pass from one transaction to the next only when a seeded scheduler allows it.

Each worker is a thread that blocks at every fault point outside a transaction. Exactly one runs at
a time, so a seed always gives the same history, with real code and a real Postgres.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random

from django.db import connection

from scheduling.engine.executors.base import (
    ExecutorError,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
)
from scheduling.engine.executors.virtual import VirtualExecutor
from tenants.faults import POINTS
from tests.tools import PATIENCE_S


class CrashError(Exception):
    """Raised when the scheduler makes a worker crash."""


class Worker:
    """A thread that runs `work` and stops at each point between transactions."""

    def __init__(self, work: Callable[[], str]) -> None:
        self.outcome = ""
        self.crash_next = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True)
        self._thread.start()

    def advance(self, *, crash: bool = False) -> None:
        """Run to the next point or the end; with `crash`, fail at the current point."""
        self.crash_next = crash
        self._go.release()
        assert self._stopped.acquire(timeout=PATIENCE_S), "a worker hangs inside a transaction"

    @property
    def is_over(self) -> bool:
        return bool(self.outcome)

    def pause(self) -> None:
        """Stop at a point; called in the worker's own thread."""
        self._stopped.release()
        self._go.acquire()
        if self.crash_next:
            raise CrashError

    def is_current(self) -> bool:
        """Return whether the calling thread is this worker's."""
        return threading.current_thread() is self._thread

    def _run(self, work: Callable[[], str]) -> None:
        self._go.acquire()
        try:
            self.outcome = "crashed" if self.crash_next else work()
        except CrashError:
            self.outcome = "crashed"
        except Exception as error:  # noqa: BLE001 - the scheduler judges it
            self.outcome = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
            self._stopped.release()


def gate(workers: Sequence[Worker], may_write: Callable[[], bool]) -> Callable[[str], None]:
    """Return a hook that stops a worker at points between transactions.

    Inside a transaction, the hook checks in the database whether the worker may write.
    """

    def hook(name: str) -> None:
        for worker in workers:
            if worker.is_current():
                if not POINTS[name]:
                    worker.pause()
                elif not may_write():
                    raise AssertionError(f"a superseded token writes at {name}")

    return hook


class FaultyExecutor:
    """A virtual executor that refuses, answers late, forgets or repeats answers."""

    traits = VirtualExecutor.traits

    def __init__(self, random: Random, rate: float) -> None:
        self._virtual = VirtualExecutor()
        self._random, self.rate = random, rate
        self._stopping: dict[str, Stop] = {}

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start work, or refuse it, or start it and lose the answer."""
        self._maybe_refuse()
        reports = self._virtual.launch(launches)
        self._maybe_refuse()
        return _garbled(self._random, self.rate, reports)

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Stop work at once, or after a while like a process that saves a checkpoint."""
        self._maybe_refuse()
        slow = [stop for stop in stops if self._random.random() < 2 * self.rate]
        self._stopping |= {stop.token: stop for stop in slow}
        return self._virtual.stop([stop for stop in stops if stop not in slow])

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None: ...

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report all jobs, sometimes only a part of them, sometimes twice."""
        self._maybe_refuse()
        reports = {report.token: report for report in self._virtual.list(pool_id, at_us)}
        for token, stop in list(self._stopping.items()):
            report = reports.get(token)
            if report is None or report.state is not ReportState.RUNNING:
                del self._stopping[token]  # the work ended while it was being stopped
            elif self._random.random() < 0.5 or not self.rate:
                del self._stopping[token]
                asked = Stop(token, stop.job_id, at_us, stop.grace_us)
                reports |= {done.token: done for done in self._virtual.stop([asked])}
        return _garbled(self._random, self.rate, list(reports.values()))

    def forget(self, tokens: Sequence[str]) -> None:
        self._virtual.forget(tokens)

    def _maybe_refuse(self) -> None:
        if self._random.random() < self.rate:
            raise ExecutorError("the engine does not answer")


def _garbled(random: Random, rate: float, reports: list[Report]) -> list[Report]:
    """Drop and repeat some reports, and shuffle them."""
    if random.random() < rate:
        reports = [report for report in reports if random.random() < 0.5]
    if random.random() < rate:
        reports = reports + reports
    random.shuffle(reports)
    return reports
