"""A child of the supervisor: started, logged, restarted when it ends, stopped."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .log_handlers import FileHandler
from .watchdog import Watchdog

LOG_BYTES = 5 * 2**20
BACK_OFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# A child that lives this long resets its back-off.
HEALTHY_S = 30.0
# Lines that a child may print on the terminal per window (s); its log file has them all.
TERMINAL_LINES, TERMINAL_WINDOW_S = 4, 10.0

# Matches the log format of portal/site/settings.py.
ALARM = re.compile(r"\[(warning|error|critical) *\]")
# The last line of a traceback, or of PostgreSQL's log.
ERROR_LINE = re.compile(r"[\w.]+(Error|Exception|Refused)\b.*|.*\b(FATAL|PANIC):")
NEVER = re.compile(r"(?!)")

Say = Callable[[str], None]
# A function called with the name of a child that ended by itself, and the reason.
Note = Callable[[str, str], None]


@dataclass(frozen=True)
class Spec:
    """A child's command, and how to stop it.

    `stage` 0 uses the services of stage 1, so the watchdog ends it first.
    """

    name: str
    command: list[str]
    stage: int = 0
    stop: signal.Signals = signal.SIGTERM
    stop_s: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)
    # arguments for `subprocess`: `user`, `group`, `pass_fds`, `cwd`
    popen: Mapping[str, object] = field(default_factory=dict)
    # Lines that the terminal shows when it is not verbose.
    alarm: re.Pattern[str] = ALARM
    # Lines that report that the child restarted by itself.
    trouble: re.Pattern[str] = NEVER


class Child:
    """A child process in its own process group."""

    def __init__(
        self,
        spec: Spec,
        logs: Path,
        watchdog: Watchdog,
        say: Say,
        *,
        verbose: bool,
        note: Note | None = None,
    ):
        self.spec = spec
        self.lines: list[str] = []
        self.starts = 0
        self._watchdog = watchdog
        self._say = say
        self._verbose = verbose
        self._note = note or _note_nothing
        self._is_ordered = False
        self._shown_at: list[float] = []
        self._stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        # Set once the child was started and the watchdog knows it.
        self.begun = asyncio.Event()
        self._log = _rotating_log(spec.name, logs)

    @property
    def last_line(self) -> str:
        """Return the most likely reason of its end: the last error line, else the last line."""
        errors = [line for line in self.lines if ERROR_LINE.match(line)]
        return (errors or self.lines or ["nothing"])[-1].strip()[:300]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def keep(self) -> None:
        """Run it until `stop`, and restart it whenever it ends."""
        self._keeper = asyncio.create_task(self._keep_running())

    async def run_once(self) -> int:
        """Run it to its end and return the exit status."""
        process = await self._start()
        return await self._finish(process)

    async def restart(self) -> None:
        """End this instance; the keeper starts the next one."""
        self._is_ordered = self.running
        await self._end()

    async def stop(self) -> None:
        self._stopping = True
        await self._end()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        for handler in list(self._log.handlers):
            handler.close()

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            _signal(self._process.pid, number)

    def kill(self) -> None:
        if self.running:
            assert self._process is not None
            _signal_group(self._process.pid, signal.SIGKILL)

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            born = time.monotonic()
            status = await self._finish(await self._start())
            if self._stopping:
                return
            if not self._is_ordered:
                self._note(self.spec.name, f"it ended ({_describe(status)})")
            self._is_ordered = False
            failures = 0 if time.monotonic() - born > HEALTHY_S else failures
            pause_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            failures += 1
            self._say(
                f"{self.spec.name} ended ({_describe(status)}), again in {pause_s:g} s; "
                f"its last line: {self.last_line}"
            )
            await asyncio.sleep(pause_s)

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *self.spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=2**20,
            env={**os.environ, **self.spec.environment},
            **self.spec.popen,  # type: ignore[arg-type]  # a mapping of keyword arguments
        )
        self.starts += 1
        self._watchdog.watch(self._process.pid, self.spec.stage, self.spec.stop)
        self.begun.set()
        return self._process

    async def _finish(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        reader = asyncio.create_task(self._read(process.stdout))
        status = await process.wait()
        # Leftover children would hold the pipe open, and the port.
        _signal_group(process.pid, signal.SIGKILL)
        self._watchdog.forget(process.pid)
        await reader
        return status

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process.pid, self.spec.stop)
        # A stopped process would not receive its signal.
        _signal_group(process.pid, signal.SIGCONT)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), self.spec.stop_s)
            return
        self._say(f"{self.spec.name} did not stop within {self.spec.stop_s:g} s: killed")
        _signal_group(process.pid, signal.SIGKILL)
        await process.wait()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # A line longer than the limit; the rest of it follows.
                continue
            if not raw:
                return
            self._take(raw.decode(errors="replace").rstrip("\n"))

    def _take(self, line: str) -> None:
        self._log.info(line)
        if not line.strip():
            return
        self.lines = [*self.lines[-199:], line]
        if self.spec.trouble.search(line):
            self._note(self.spec.name, line.strip()[:200])
        if self._verbose or (self.spec.alarm.search(line) and self._may_show()):
            self._say(f"[{self.spec.name}] {line[:400]}")

    def _may_show(self) -> bool:
        now = time.monotonic()
        self._shown_at = [at for at in self._shown_at if now - at < TERMINAL_WINDOW_S]
        self._shown_at.append(now)
        return len(self._shown_at) <= TERMINAL_LINES


def _note_nothing(_name: str, _why: str) -> None:
    """Ignore a child's end."""


def _rotating_log(name: str, logs: Path) -> logging.Logger:
    # Not a named logger: this one is private, and is deleted with its child.
    log = logging.Logger(name)  # noqa: LOG001 - see above
    log.addHandler(FileHandler(logs / f"{name}.log", maxBytes=LOG_BYTES, backupCount=1, delay=True))
    return log


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _describe(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"
