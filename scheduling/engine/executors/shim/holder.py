"""The life of one lease's process: claimed once, started, watched, ended, and recorded."""

import contextlib
import math
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

from .files import (
    SPEC_BYTES,
    claim,
    fence,
    file_mask,
    is_held,
    number,
    read_json,
    read_text,
    remove,
    write_json,
)
from .gang import BROKEN
from .log import OUT_OF_TIME, READ_BYTES, Log
from .processes import end_descendants, start_of_process
from .program import adopt_orphans, start_program
from .usage import Usage
from .wake import wake_on_signals

TICK_S = 0.5
LIFELINE_EVERY_S = 1.0
# The maximum number of pieces that a pipe can contain after its writers have ended.
LEFT_IN_PIPE = 64
# Exit statuses after SIGTERM: of the program itself, or of a shell whose child got the signal.
TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)
SAME_SIGNAL_S = 0.5


def hold(folder: Path) -> None:
    """Run the program of the folder's `spec.json`, unless it was started before."""
    os.umask(file_mask(folder))
    spec = read_json(folder / "spec.json", at_most=SPEC_BYTES)
    if spec is None:
        return
    shim = Shim(folder, spec)
    record = claim(folder)
    if record is not None:
        shim.run(record)


class Limit:
    """The dead man's limit, on a clock that does not jump and pauses while the machine sleeps.

    It is given as wall time, but the remaining time is computed once, when it is read. Otherwise a
    wall clock that jumps ahead, or a laptop that slept, would end a job whose lease is renewed.
    """

    def __init__(self) -> None:
        self._given_s = self._at_s = math.inf

    def is_past(self, given_s: float, *, wall_s: float, steady_s: float) -> bool:
        """Return whether the limit has passed; `steady_s` is the steady time at `wall_s`."""
        if given_s != self._given_s:
            self._given_s, self._at_s = given_s, steady_s + (given_s - wall_s)
        return steady_s > self._at_s


class Shim:
    """The life of one claimed lease, from the start of its program to the record of its exit."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._began_in = folder.lstat()
        self._spec = spec
        handled = (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)
        self._wake = wake_on_signals(handled, self._on_signal)
        self._log = Log(folder, int(spec["log_bytes"]))
        self._shutdown = self._at_once = False
        self._child = 0
        self._status: int | None = None
        self._output = -1
        self._asked = ""
        self._killed = False
        self._kill_at = 0.0
        self._look_at = self._lifeline_at = 0.0
        self._limit = Limit()
        self._usage: Usage | None = None
        self._record: dict[str, Any] = {}

    def run(self, record: dict[str, Any]) -> None:
        """Start the program, wait for its end, and kill every process that it leaves behind."""
        if "gang" not in self._spec:  # in a gang, each node's task samples the usage there
            self._usage = Usage(self._folder, self._spec)
        adopt_orphans()
        started_us = _wall_us()
        if not fence(self._folder.parents[1], int(self._folder.name)):
            self._end({"started_us": started_us, "never": True})
            return
        self._keep({**record, "started_us": started_us})
        self._record = record
        refusal = self._start()
        if refusal is None:
            child = {"child": self._child, "child_start": start_of_process(self._child)}
            write_json(self._folder / "shim.json", {**record, **child, "started_us": started_us})
            _answer_starter()
            self._attend()
            self._recognise_the_engine()
        gone = end_descendants(self._on_reaped)
        self._drain()
        if self._usage is not None and refusal is None:
            self._usage.finish()
        code, killer = refusal, None
        if refusal is None and self._status is not None:
            code = os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else None
            killer = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else None
        self._end(
            {
                "started_us": started_us,
                "code": code,
                "signal": killer,
                "asked": self._asked,
                "killed": self._killed,
                "left_running": not gone,
                # If a gang has lost ranks, the end of its program does not end the job.
                "lost": "gang" in self._spec and (self._folder / BROKEN).exists(),
            }
        )

    def _end(self, facts: dict[str, Any]) -> None:
        facts = {**facts, "ended_us": max(_wall_us(), facts["started_us"])}
        self._keep({**self._record, **facts})
        path = self._folder / "exit.json"
        with contextlib.suppress(OSError):
            remove(path, only_folders=True)
        write_json(path, facts, durably=True)
        _answer_starter()

    def _keep(self, facts: dict[str, Any]) -> None:
        """Record the start, and later the end, where the job cannot change them."""
        span = self._spec.get("span")
        if isinstance(span, str):
            with contextlib.suppress(OSError):
                remove(Path(span), only_folders=True)
                write_json(Path(span), facts, durably="ended_us" in facts)

    def _start(self) -> int | None:
        """Start the program; return an exit code if it cannot be started."""
        program = start_program(self._spec)
        self._child, self._output = program.pid, program.output
        if program.problem:
            self._log.note(program.problem)
        return program.refusal

    def _attend(self) -> None:
        """Forward output and check for reasons to stop, until the program has ended."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while True:
            ready = dict(poll.poll(self._patience_s() * 1000))
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._look_at = 0.0
            if self._output in ready and not self._pump():
                poll.unregister(self._output)
            self._reap()
            if self._status is not None:
                return
            self._consider()
            if self._usage is not None:
                self._usage.tick()

    def _recognise_the_engine(self) -> None:
        """Detect whether the engine ends the whole job: it signals the program and this process.

        In this case the program did not end by itself, even if our own signal arrives a moment
        later.
        """
        status = self._status
        if self._asked or status is None or os.waitstatus_to_exitcode(status) not in TERMINATED:
            return
        deadline = time.monotonic() + SAME_SIGNAL_S
        while not self._shutdown and (left_s := deadline - time.monotonic()) > 0:
            if select.select([self._wake], [], [], left_s)[0]:
                os.read(self._wake, 4096)
        if self._shutdown:
            self._asked = "the engine"

    def _patience_s(self) -> float:
        if not self._asked:
            return TICK_S
        return min(TICK_S, max(0.0, self._kill_at - time.monotonic()) + 0.001)

    def _pump(self) -> bool:
        """Move one piece of output; return False at its end."""
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return True
        self._log.write(data)
        return bool(data)

    def _drain(self) -> None:
        """Read the rest of the pipe: at most a pipe's size, since its writers are gone."""
        limit = LEFT_IN_PIPE
        while self._output >= 0 and limit:
            limit -= 1
            try:
                data = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self._log.write(data)

    def _reap(self) -> None:
        """Reap the program, and its orphans that we adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._on_reaped(pid, status)

    def _on_reaped(self, pid: int, status: int) -> None:
        if pid == self._child:
            self._status = status

    def _consider(self) -> None:
        """Ask the program to stop if a reason exists; kill it after its grace."""
        if self._at_once and not self._killed:
            self._asked = self._asked or "shutdown"
            self._kill_at = 0.0
        now = time.monotonic()
        if not self._asked:
            # Reasons are in files, so do not check them with every piece of output.
            if now >= self._look_at:
                self._look_at = now + TICK_S
                with contextlib.suppress(OSError):  # unreadable now: check again later
                    reason, grace_s = self._reason_to_stop()
                    if reason:
                        self._ask(reason, grace_s)
        elif not self._killed and now >= self._kill_at:
            self._killed = True
            self._log.note(OUT_OF_TIME)
            end_descendants(self._on_reaped)

    def _ask(self, reason: str, grace_s: float) -> None:
        self._asked = reason
        self._kill_at = time.monotonic() + grace_s
        name = self._spec["signal"]
        self._log.note(f"asked to stop ({reason}): {name}, then {grace_s:g} s to checkpoint")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.Signals[name])
            # A suspended process would not handle its signal.
            os.killpg(self._child, signal.SIGCONT)

    def _reason_to_stop(self) -> tuple[str, float]:
        grace_s = float(self._spec["grace_s"])
        asked = read_json(self._folder / "stop")
        if asked is not None:
            return "lease taken back", number(asked.get("grace_s"), grace_s)
        if self._shutdown:
            return "shutdown", grace_s
        if self._overdue():
            return "lease not renewed", grace_s
        if not self._lifeline_held():
            return "portal gone", grace_s
        return "", 0.0

    def _overdue(self) -> bool:
        try:
            limit = float(read_text(self._folder / "until"))
        except ValueError:
            if not self._is_its_folder():
                return True
            limit = number(self._spec.get("until"), math.inf)
        return self._limit.is_past(limit, wall_s=time.time(), steady_s=time.monotonic())

    def _is_its_folder(self) -> bool:
        """Return whether the folder is still the original one; if not, the lease was given up."""
        try:
            return os.path.samestat(self._folder.lstat(), self._began_in)
        except FileNotFoundError:
            return False

    def _lifeline_held(self) -> bool:
        lifeline = self._spec["lifeline"]
        now = time.monotonic()
        if not lifeline or now < self._lifeline_at:
            return True
        self._lifeline_at = now + LIFELINE_EVERY_S
        return is_held(Path(lifeline))

    def _on_signal(self, got: int, _frame: Any) -> None:
        if got == signal.SIGTERM:
            self._shutdown = True
        elif got == signal.SIGQUIT:
            self._at_once = True


def _wall_us() -> int:
    return time.time_ns() // 1000


def _answer_starter() -> None:
    """Close our standard output; the starter waits until it is closed."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
