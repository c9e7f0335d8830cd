"""A shell on a pseudo-terminal, for several viewers at once, over WebSockets.

Binary messages are the terminal's bytes. Text messages are JSON: `{"size": [columns, rows]}` from a
viewer, `{"notice": text}` and `{"exit": code}` to it. The shell goes on without viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenshare.runtime.contract import CHECKPOINTED, margin_seconds

from .contract import NOTICE_S, TICK_S, SessionContract, SessionFile, is_secret, listener
from .wire import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, WireError, accept_key, encode

HEAD_BYTES, HEAD_S = 16 * 1024, 10.0
HISTORY_BYTES = 64 * 1024
VIEWERS_MAX = 8
# A viewer that is this far behind is disconnected; it may attach again.
BEHIND_BYTES = 2**20
# A connection ends after this time, so that the portal checks again who may attach.
ATTACHED_S = 600.0
# A command uses the session if it uses this share of a core, on average over a tick.
BUSY_CORES = 0.05
HELP = "This is a terminal. Attach to it by: evenshare shell --attach {job}\n"


class ShellServer:
    """The shell of a lease and its viewers."""

    def __init__(self, contract: SessionContract) -> None:
        self._contract = contract
        self._file = SessionFile(contract)
        self._viewers: set[asyncio.StreamWriter] = set()
        self._history = bytearray()
        self._pid, self._terminal = 0, -1
        self._code = 0
        self._cpu_s = 0.0
        self._warned: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Serve until the shell ends, the time is over, or the lease ends; return the exit code.

        It is 0 if a person leaves the shell, whatever its last command was.
        """
        bound = listener(self._contract)
        self._start_shell()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_signal_handler(self._contract.signal, self._end_lease, over)
        loop.add_reader(self._terminal, self._read_terminal, over)
        server = await asyncio.start_server(self._serve, sock=bound)
        port = int(bound.getsockname()[1])
        while not over.is_set():
            self._tick(port, over)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(over.wait(), TICK_S)
        await self._finish()
        server.close()
        self._file.write(0)
        return self._code

    def _start_shell(self) -> None:
        shell = os.environ.get("SHELL") or "/bin/bash"
        shell = shell if Path(shell).exists() else "/bin/sh"
        # The secret is for the portal, not for programs that the shell starts.
        values = {k: v for k, v in os.environ.items() if not k.startswith("EVENSHARE_SESSION")}
        values.setdefault("TERM", "xterm-256color")
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGPIPE, self._contract.signal):
                signal.signal(number, signal.SIG_DFL)
            os.execve(shell, [shell], values)  # noqa: S606 - it is one
        os.set_blocking(self._terminal, False)

    def _read_terminal(self, over: asyncio.Event) -> None:
        data = b""
        with contextlib.suppress(BlockingIOError):
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the shell has ended
                asyncio.get_running_loop().remove_reader(self._terminal)
                over.set()
                return
        self._history += data
        del self._history[:-HISTORY_BYTES]
        self._send_all(encode(BINARY, data))

    def _send_all(self, data: bytes) -> None:
        for viewer in list(self._viewers):
            if viewer.transport.get_write_buffer_size() > BEHIND_BYTES:
                viewer.transport.abort()
            else:
                viewer.write(data)

    def _notice(self, name: str, text: str) -> None:
        """Send a notice to all viewers, once by name."""
        if name not in self._warned:
            self._warned.add(name)
            self._send_all(_json(notice=text))

    def _tick(self, port: int, over: asyncio.Event) -> None:
        cpu_s = session_cpu_s(self._pid)
        if cpu_s - self._cpu_s > BUSY_CORES * TICK_S:
            self._file.touch()
        self._cpu_s = cpu_s
        self._file.write(port)
        file, contract = self._file, self._contract
        if file.idle_s < contract.idle_s / 2:
            self._warned.discard("idle")
        elif contract.idle_s and file.idle_s > contract.idle_s - min(NOTICE_S, contract.idle_s / 2):
            minutes = round(contract.idle_s / 60)
            self._notice("idle", f"Press a key. After {minutes} min without use the session ends.")
        if file.left_s < NOTICE_S:
            self._notice("limit", f"The time limit is in {max(0, round(file.left_s))} s.")
        if file.left_s <= 0:
            over.set()

    def _end_lease(self, over: asyncio.Event) -> None:
        self._notice("lease", "The lease ends.")
        self._code = CHECKPOINTED
        over.set()

    async def _finish(self) -> None:
        """End the shell and its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGHUP)
        grace_s = self._contract.grace_s
        until = time.monotonic() + max(0.0, grace_s - margin_seconds(grace_s))
        while not self._is_reaped() and time.monotonic() < until:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
        for pid in session_pids(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._send_all(_json(exit=self._code) + encode(CLOSE, struct.pack("!H", 1000)))
        for viewer in list(self._viewers):
            viewer.close()

    def _is_reaped(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            await self._answer(head, reader, writer)
        except (
            OSError,
            WireError,
            asyncio.TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass
        finally:
            self._viewers.discard(writer)
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        line, headers = parse_head(head)
        if not is_secret(self._contract, headers.get("authorization", "")):
            writer.write(_plain("401 Unauthorized", "This port is for the portal's proxy.\n"))
        elif headers.get("upgrade", "").lower() != "websocket":
            writer.write(_plain("200 OK", HELP.format(job=self._contract.job)))
        elif line.split()[:2] != ["GET", "/terminal"] or len(self._viewers) >= VIEWERS_MAX:
            writer.write(_plain("404 Not Found", "No terminal is here.\n"))
        else:
            key = accept_key(headers.get("sec-websocket-key", ""))
            writer.write(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Accept: {key}\r\n\r\n".encode()
            )
            writer.write(encode(BINARY, bytes(self._history)))
            self._viewers.add(writer)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._attached(reader, writer), ATTACHED_S)
            writer.write(encode(CLOSE, struct.pack("!H", 1012)))
        await writer.drain()

    async def _attached(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(takes_masked=True)
        while data := await reader.read(65536):
            for kind, body in frames.feed(data):
                if kind == CLOSE:
                    return
                if kind == PING:
                    writer.write(encode(PONG, body))
                elif kind == TEXT:
                    self._resize(body)
                elif kind == BINARY:
                    self._file.touch()
                    await self._type(body)

    async def _type(self, data: bytes) -> None:
        """Write to the terminal; wait while the program reads nothing."""
        while data:
            try:
                data = data[os.write(self._terminal, data) :]
            except BlockingIOError:  # noqa: PERF203 - the loop is this wait
                await asyncio.sleep(0.02)

    def _resize(self, body: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, struct.error, OSError):
            columns, rows = json.loads(body)["size"]
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)


def parse_head(head: bytes) -> tuple[str, Mapping[str, str]]:
    """Return a request's first line, and its headers by lower-case name."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


def session_pids(leader: int) -> list[int]:
    """Return the processes of a terminal's session."""
    return [pid for pid, sid, _ in _processes() if sid == leader]


def session_cpu_s(leader: int) -> float:
    """Return the CPU time that the running processes of a terminal's session have used."""
    ticks = sum(used for _, sid, used in _processes() if sid == leader)
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes() -> list[tuple[int, int, int]]:
    """Return id, session and CPU ticks of each process."""
    rows = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name, in parentheses, may contain spaces.
                parts = (entry / "stat").read_text().rpartition(")")[2].split()
                rows.append((int(entry.name), int(parts[3]), int(parts[11]) + int(parts[12])))
    return rows


def _json(**said: Any) -> bytes:
    return encode(TEXT, json.dumps(said).encode())


def _plain(status: str, text: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        f"Connection: close\r\n\r\n{text}"
    ).encode()
