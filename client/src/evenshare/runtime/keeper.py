"""Keeps the newest snapshot of a job in memory and writes it to disk when its lease ends.

The following division of work avoids deadlocks and torn snapshots:

- The signal handler notes the time and writes one byte into a pipe. It takes no lock and
  touches no file, so it may interrupt anything, `store` and itself included.
- The interpreter's wake-up descriptor is the same pipe. So the byte arrives even while the
  main thread is inside a long call of native code, where Python handlers have to wait.
- A single thread reads the pipe and writes the newest snapshot at once. If the iteration in
  progress has not ended shortly before the end of the grace, it ends the process.
- `store` replaces the snapshot by a finished one in a single assignment. Once the lease
  is ending, it also writes the snapshot and ends the process. Until the grace is over, a
  program ends only there, between two steps.
- Writers take one lock; a snapshot that is on the disk already is not written twice.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import select
import signal
import sys
import threading
import time
from typing import NoReturn

from .checkpoints import Checkpoint, Fence, Folder, StaleLeaseError
from .contract import CHECKPOINTED, FENCED, NOT_WRITTEN, Contract, margin_seconds
from .evaluations import EvaluationLog
from .iterations import IterationLog
from .metrics import MetricLog
from .progress import Progress

UNWRITTEN = "the checkpoint could not be written, trying again"
TICK_S = 1.0  # progress, iterations and evaluations are written at most this often
STDIO_PATIENCE_S = 0.3


class Keeper:
    """Keeps the newest snapshot of this process; at most one keeper exists."""

    def __init__(self, contract: Contract, *, every_s: float) -> None:
        assert contract.folder is not None
        self.contract = contract
        self._every_s = every_s
        self._fence = Fence(contract.folder, contract.lease)
        self._folder = Folder(contract.folder / "checkpoints", contract.lease, self._fence)
        self.progress = (
            Progress(contract.progress, contract.lease) if contract.progress is not None else None
        )
        self.iterations = (
            IterationLog(contract.iterations, contract.lease)
            if contract.iterations is not None
            else None
        )
        self.evaluations = (
            EvaluationLog(contract.evaluations, contract.lease, contract.criterion)
            if contract.evaluations is not None and contract.criterion is not None
            else None
        )
        self.metrics = MetricLog(contract.metrics) if contract.metrics is not None else None
        self._numbers = itertools.count(1)
        self._newest: tuple[int, bytes] | None = None
        self._written = 0
        self._written_at = time.monotonic()
        self._failure: OSError | None = None
        self._writing = threading.Lock()
        self._asked_at: float | None = None
        self._started = self._forked = False
        self._pipe = (-1, -1)

    @property
    def asked(self) -> bool:
        """Return whether the checkpoint signal has arrived."""
        return self._asked_at is not None

    def start(self) -> None:
        """Handle the signal from now on. The first call must be in the main thread."""
        if self._started:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("call lease.resume() in the main thread before other threads store")
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(self.contract.signal, self._on_signal)
        others = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if others != -1:
            # An event loop has its own descriptor; only the handler then wakes the thread.
            signal.set_wakeup_fd(others)
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._at_exit)
        threading.Thread(target=self._watch, name="evenshare-last-store", daemon=True).start()
        self._started = True

    def resume(self) -> Checkpoint | None:
        """Return the newest complete checkpoint; end the process if its lease is over."""
        try:
            return self._folder.newest()
        except StaleLeaseError as stale:
            end_fenced(stale)

    def resume_all(self) -> list[Checkpoint]:
        """Return all ranks' newest complete checkpoints; end the process if its lease is over."""
        try:
            return self._folder.newest_of_all()
        except StaleLeaseError as stale:
            end_fenced(stale)

    def store(self, body: bytes) -> None:
        """Make this the newest snapshot, and end the process if the lease is ending."""
        if self._forked:
            return
        self._newest = (next(self._numbers), body)
        if self.asked:
            self.leave()

    def flush(self) -> None:
        """Write the newest snapshot now.

        End the process if a newer lease runs the job. Raises OSError.
        """
        if self._forked:
            return
        try:
            with self._writing:
                self._write()
        except StaleLeaseError as stale:
            end_fenced(stale)

    def leave(self) -> NoReturn:
        """Write the newest snapshot, and exit with a code that shows whether that succeeded."""
        try:
            self.flush()
            code = CHECKPOINTED
            say(f"lease {self.contract.lease} ends: {self._position()}")
        except OSError as problem:
            code = NOT_WRITTEN
            say(f"the checkpoint could not be written: {problem}")
        self._note_suspended()
        self._report(is_last=True)
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(code)
        # In any other thread, SystemExit would end only the thread.
        flush_stdio()
        os._exit(code)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], bytes([number]))

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._pipe[0], select.POLLIN)
        while True:
            poll.poll(max(1, int(self._pause_s() * 1000)))
            with contextlib.suppress(BlockingIOError):
                if self.contract.signal in os.read(self._pipe[0], 4096) and not self.asked:
                    self._asked_at = time.monotonic()
            try:
                self._tend()
            except StaleLeaseError as stale:
                end_fenced(stale)

    def _pause_s(self) -> float:
        left = self._deadline() - time.monotonic() if self.asked else TICK_S
        return min(TICK_S, max(0.0, left))

    def _deadline(self) -> float:
        """Return when the process ends itself, shortly before the executor kills it."""
        grace_s = self.contract.grace_s
        assert self._asked_at is not None
        return self._asked_at + grace_s - margin_seconds(grace_s)

    def _tend(self) -> None:
        now = time.monotonic()
        self._report()
        if self.asked:
            self._write_patiently(max(0.0, self._deadline() - now))
            if time.monotonic() >= self._deadline():
                self._cut()
        elif now - self._written_at >= self._every_s:
            self._write_patiently(0.0)

    def _write_patiently(self, patience_s: float) -> None:
        """Write the snapshot, unless the program's thread holds the lock beyond `patience_s`."""
        if not self._writing.acquire(timeout=patience_s):
            return
        try:
            self._write()
        except OSError as problem:
            # The last complete file stays, and the next store or tick tries again.
            if self._failure is None:
                say(f"{UNWRITTEN}: {problem}")
            self._failure = problem
        finally:
            self._writing.release()

    def _write(self) -> None:
        newest = self._newest
        if newest is not None and newest[0] != self._written:
            self._folder.write(newest[1])
            self._written = newest[0]
            self._failure = None
        self._written_at = time.monotonic()

    def _cut(self) -> NoReturn:
        """Exit at the end of the grace, inside an iteration; only earlier stores are kept."""
        code = CHECKPOINTED if self._failure is None else NOT_WRITTEN
        say(f"lease {self.contract.lease} ends inside an iteration: {self._position()}")
        self._note_suspended()
        self._report(is_last=True)
        flush_stdio()
        os._exit(code)

    def _position(self) -> str:
        if self._newest is None:
            return "nothing was stored"
        return f"checkpoint {self._folder.last_name} is written"

    def _note_suspended(self) -> None:
        """Record the time since the signal, if a signal made the program leave."""
        if self.iterations is not None and self._asked_at is not None:
            self.iterations.suspended(time.monotonic() - self._asked_at)

    def _report(self, *, is_last: bool = False) -> None:
        if self.contract.rank != 0:
            return  # rank 0 reports for the whole job
        kept = (self.progress, self.iterations, self.evaluations, self.metrics)
        files = [one for one in kept if one is not None and (is_last or one.waits)]
        if not files:
            return
        try:
            self._fence.check()
        except StaleLeaseError as stale:
            end_fenced(stale)
        for file in files:
            file.write()

    def _at_exit(self) -> None:
        if self._forked:
            return
        self._report(is_last=True)
        if not self.contract.inside:
            # On a user's own machine no portal sends signals; the next run continues from here.
            with contextlib.suppress(OSError):
                self.flush()

    def _forget(self) -> None:
        """Disable the keeper in a fork, such as a data loader, which must not write or yield."""
        self._forked = True
        # Another thread may have held its lock.
        self.metrics = None
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            signal.signal(self.contract.signal, signal.SIG_IGN)


def say(text: str) -> None:
    """Write a line to the job's log, without Python's buffers and their locks."""
    with contextlib.suppress(OSError):
        os.write(2, f"evenshare: {text}\n".encode(errors="backslashreplace"))


def end_fenced(stale: StaleLeaseError) -> NoReturn:
    """Exit at once: `finally` blocks of the program might overwrite another lease's files."""
    say(f"{stale}; ending without writing")
    os._exit(FENCED)


def flush_stdio() -> None:
    """Flush the program's output into its log, unless that would block."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    helper = threading.Thread(target=flush, daemon=True)
    helper.start()
    helper.join(STDIO_PATIENCE_S)
