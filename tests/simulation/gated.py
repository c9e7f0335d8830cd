"""Workers that move from one transaction to the next only when a seeded scheduler says so.

Each worker is a thread that blocks at every fault point outside a transaction. Exactly one runs
at a time, so a seed gives the same history every time: real code, real Postgres, no luck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random

from django.db import connection

from scheduling.engine.executors import (
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
    """The scheduler let a worker fail where it stood."""


class Worker:
    """One thread that runs `work` and stops at each point between transactions."""

    def __init__(self, work: Callable[[], str]) -> None:
        self.outcome = ""
        self.crash_next = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True)
        self._thread.start()

    def advance(self, *, crash: bool = False) -> None:
        """Let it run to its next point or its end; `crash`: let it fail where it stands."""
        self.crash_next = crash
        self._go.release()
        assert self._stopped.acquire(timeout=PATIENCE_S), "a worker hangs inside a transaction"

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return bool(self.outcome)

    def pause(self) -> None:
        """Called in the worker's own thread, at a point."""
        self._stopped.release()
        self._go.acquire()
        if self.crash_next:
            raise CrashError

    def is_current(self) -> bool:
        """Whether the calling thread is this worker's."""
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
    """A hook that stops the worker which reaches a point between transactions.

    Inside one it asks whether the worker may write at all, of the rows themselves.
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
    """The virtual executor, that refuses, answers too late, forgets or repeats itself."""

    traits = VirtualExecutor.traits

    def __init__(self, random: Random, rate: float) -> None:
        self._virtual = VirtualExecutor()
        self._random, self.rate = random, rate
        self._stopping: dict[str, Stop] = {}

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start work, or not, or start it and lose the answer."""
        self._maybe_refuse()
        reports = self._virtual.launch(launches)
        self._maybe_refuse()
        return _garbled(self._random, self.rate, reports)

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Stop work now, or promise to: its checkpoint takes a while, as with real processes."""
        self._maybe_refuse()
        slow = [stop for stop in stops if self._random.random() < 2 * self.rate]
        self._stopping |= {stop.token: stop for stop in slow}
        return self._virtual.stop([stop for stop in stops if stop not in slow])

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None: ...

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report what there is, sometimes only a part of it, sometimes twice."""
        self._maybe_refuse()
        reports = {report.token: report for report in self._virtual.list(pool_id, at_us)}
        for token, stop in list(self._stopping.items()):
            report = reports.get(token)
            if report is None or report.state is not ReportState.RUNNING:
                del self._stopping[token]  # it came to its own end while it was being stopped
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
    """Leave some out, say some twice, in any order."""
    if random.random() < rate:
        reports = [report for report in reports if random.random() < 0.5]
    if random.random() < rate:
        reports = reports + reports
    random.shuffle(reports)
    return reports
