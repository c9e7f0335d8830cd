"""A person's terminal, attached to a shell in a lease over a WebSocket."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import ssl
import sys
import termios
import tty
from collections.abc import Iterator
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, urlsplit

from evenshare.errors import UnreachableError
from evenshare.session.wire import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameReader,
    WireError,
    accept_key,
    encode,
)

from .terminal import inert

DETACH = b"\x1d"  # Ctrl-]
HEAD_BYTES, TIMEOUT_S = 64 * 1024, 30.0


class Ending(Enum):
    """Why an attached terminal returned."""

    EXITED = "exited"
    DETACHED = "detached"
    CLOSED = "closed"  # by the server or the network; it may be attached again


def attach(url: str) -> Ending:
    """Enter a session by its link, and connect this terminal until either side ends it.

    Raises UnreachableError.
    """
    place = urlsplit(url)
    try:
        with _open(place, _enter(place)) as connection:
            return _Link(connection).run()
    except (OSError, http.client.HTTPException, WireError) as problem:
        raise UnreachableError(f"{place.hostname} cannot be attached: {problem}") from None


def _enter(place: SplitResult) -> str:
    """Exchange the link's code for the session's cookie."""
    with contextlib.closing(_connected(place)) as plain:
        request = f"GET {place.path}?{place.query} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        plain.sendall(f"{request}Connection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(plain)
        answer.begin()
        cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
    if not cookie:
        raise UnreachableError(f"{place.hostname} refused the link (status {answer.status})")
    return cookie


def _open(place: SplitResult, cookie: str) -> socket.socket:
    """Return a connection on which WebSocket frames follow."""
    connection = _connected(place)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET /terminal HTTP/1.1\r\nHost: {place.netloc}\r\nOrigin: https://{place.netloc}\r\n"
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nCookie: {cookie}\r\n\r\n".encode()
    )
    head = b""
    # Byte by byte: what follows the head are frames.
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_BYTES:
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    lines = head.decode("latin-1").split("\r\n")
    accepted = f"sec-websocket-accept: {accept_key(key)}".lower()
    if " 101 " not in f"{lines[0]} " or accepted not in [line.lower() for line in lines]:
        connection.close()
        raise UnreachableError(f"{place.hostname} has no terminal: {inert(lines[0])}")
    return connection


def _connected(place: SplitResult) -> ssl.SSLSocket:
    host, port = place.hostname or "", place.port or 443
    # These names are this machine's, whatever a name server says (RFC 6761).
    address = "127.0.0.1" if host.endswith(".localhost") else host
    plain = socket.create_connection((address, port), timeout=TIMEOUT_S)
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


class _Link:
    """The loop between a terminal and a connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._frames = FrameReader(takes_masked=False)
        self._has_input = True
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)

    def run(self) -> Ending:
        with _raw_terminal(), self._resizing():
            self._send_size()
            while True:
                ready = self._wait()
                if self._pipe[0] in ready:
                    os.read(self._pipe[0], 64)
                    self._send_size()
                if self._connection in ready:
                    ending = self._receive()
                    if ending is not None:
                        return ending
                if sys.stdin.fileno() in ready and self._type() is not None:
                    return Ending.DETACHED

    def _wait(self) -> list[Any]:
        if self._connection.pending():
            return [self._connection]
        watched: list[Any] = [self._connection, self._pipe[0]]
        return select.select(watched + [sys.stdin.fileno()] * self._has_input, [], [])[0]

    def _receive(self) -> Ending | None:
        data = self._connection.recv(65536)
        if not data:
            return Ending.CLOSED
        for kind, body in self._frames.feed(data):
            if kind == BINARY:
                _print(body)
            elif kind == PING:
                self._send(PONG, body)
            elif kind == CLOSE:
                return Ending.CLOSED
            elif kind == TEXT and self._heed(body):
                return Ending.EXITED
        return None

    def _heed(self, body: bytes) -> bool:
        """Show a notice; return whether the session has ended."""
        said: Any = None
        with contextlib.suppress(ValueError):
            said = json.loads(body)
        if not isinstance(said, dict):
            return False
        if "notice" in said:
            _print(f"\r\n[evenshare] {inert(said['notice'])}\a\r\n".encode())
        return "exit" in said

    def _type(self) -> Ending | None:
        data = os.read(sys.stdin.fileno(), 65536)
        self._has_input = bool(data)
        before, detach, _ = data.partition(DETACH)
        if before:
            self._send(BINARY, before)
        if not detach or not sys.stdin.isatty():
            return None
        self._send(CLOSE, b"\x03\xe8")
        return Ending.DETACHED

    def _send_size(self) -> None:
        size = shutil.get_terminal_size()
        self._send(TEXT, json.dumps({"size": [size.columns, size.lines]}).encode())

    def _send(self, kind: int, body: bytes) -> None:
        self._connection.sendall(encode(kind, body, is_masked=True))

    @contextlib.contextmanager
    def _resizing(self) -> Iterator[None]:
        def note(*_: object) -> None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], b"r")

        before = signal.signal(signal.SIGWINCH, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)
            for end in self._pipe:
                os.close(end)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass on all keys, such as Ctrl-C, if the input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _print(data: bytes) -> None:
    # The bytes of the person's own session: a terminal must get them unchanged.
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
