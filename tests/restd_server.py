"""A small real HTTP server in place of slurmrestd, whose responses a test sets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A function that gets a connection whose request has been read. It may write, wait or close the
# connection.
Behaviour = Callable[[socket.socket], None]


@dataclass
class FakeRestd:
    """A running server; `requests` has the heads and bodies of the received requests, as text."""

    url: str
    behaviour: Behaviour
    requests: list[str] = field(default_factory=list)


def token_for(user: str, lifetime_s: float = 3600.0, **more: Any) -> str:
    """Return a token like that of `scontrol token`; its signature is not checked."""
    claims = {"exp": int(time.time() + lifetime_s), "iat": 1, "sun": user, **more}
    parts = (json.dumps({"alg": "HS256"}), json.dumps(claims), "signed")
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def answer(
    body: str | bytes, status: str = "200 OK", *headers: str, length: int | None = None
) -> Behaviour:
    """Return a text response; `length` is its Content-Length."""
    data = body.encode() if isinstance(body, str) else body
    size = len(data) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""])

    def behave(connection: socket.socket) -> None:
        connection.sendall(head.encode() + data)

    return behave


def says(value: Any, status: str = "200 OK") -> Behaviour:
    """Return a JSON response."""
    return answer(json.dumps(value), status)


def raw(data: bytes) -> Behaviour:
    """Send raw bytes without added HTTP headers."""
    return lambda connection: connection.sendall(data)


def drips(head: bytes, piece: bytes = b"x") -> Behaviour:
    """Send the head of a response, and then small pieces for as long as the client reads."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(0.02)

    return behave


def is_silent(connection: socket.socket) -> None:
    """Send nothing until the client closes the connection."""
    connection.recv(1)


@contextmanager
def fake_restd(behaviour: Behaviour, path: Path | None = None) -> Iterator[FakeRestd]:
    """Serve on loopback, or on a Unix socket at `path`."""
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as listener:
        listener.bind(str(path) if path else ("127.0.0.1", 0))
        listener.listen(16)
        url = f"unix:{path}" if path else f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = FakeRestd(url, behaviour)
        thread = threading.Thread(target=_serve, args=(listener, server), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, server: FakeRestd) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            server.requests.append(_request(connection))
            server.behaviour(connection)


def _request(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65536)):
            return data.decode()
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    wanted = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(wanted[0].partition(b":")[2]) if wanted else 0
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return (head + b"\r\n\r\n" + body).decode()
