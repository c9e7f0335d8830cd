"""The web server of `make run` with its gate and its pool, in a thread of the test.

It runs in this process, so a test can block the server instead of waiting for some time.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import connections

from portal.site.gate import App, Gate
from tests.tools import PATIENCE_S, eventually

POOL_SIZE = 7


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: str


class WebServer:
    """A running server, and raw connections to it, which may send anything or nothing."""

    def __init__(self, gate: Gate, port: int) -> None:
        self.gate = gate
        self.port = port

    def open(self, sent: bytes) -> socket.socket:
        """Connect and send a request, without waiting for the response."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.sendall(sent)
        return client

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request and read its response."""
        with self.open(request(method, path, body, **headers)) as client:
            return read_answer(client)

    def idle_connections(self) -> tuple[int, int]:
        """Return the numbers of idle and of all connections in the pool."""
        stats = connections["default"].pool.get_stats()  # type: ignore[attr-defined]  # of Postgres
        return stats["pool_available"], stats["pool_size"]


@contextmanager
def web_server(django: App | None = None) -> Iterator[WebServer]:
    """Serve the test's database with `POOL_SIZE` connections; `django` is the application."""
    default = connections.settings["default"]
    before = {"CONN_MAX_AGE": default["CONN_MAX_AGE"], "OPTIONS": default["OPTIONS"]}
    connections.close_all()
    pool = {"min_size": 1, "max_size": POOL_SIZE, "timeout": 5}
    # The dictionary is changed in place, because the wrappers of all threads share it.
    default.update(CONN_MAX_AGE=0, OPTIONS={**before["OPTIONS"], "pool": pool})
    settings.DATABASE_POOL_SIZE = POOL_SIZE
    gate = Gate(django or get_asgi_application())
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    config = uvicorn.Config(
        gate,
        lifespan="off",
        access_log=False,
        # trust the client's address that a local proxy reports, as in production
        proxy_headers=True,
        forwarded_allow_ips="127.0.0.1",
        timeout_graceful_shutdown=1,
        log_config=None,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield WebServer(gate, listener.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        thread.join(PATIENCE_S)
        connections.close_all()
        connections["default"].close_pool()  # type: ignore[attr-defined]  # of Postgres
        default.update(before)
        settings.DATABASE_POOL_SIZE = 0


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request as bytes; `_` in the names of headers becomes `-`."""
    sent = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in sent.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


def read_answer(client: socket.socket) -> Answer:
    """Read until the server closes the connection; data before a reset counts."""
    got = b""
    try:
        while part := client.recv(65536):
            got += part
    except ConnectionError:
        pass
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    headers = {name.lower(): value for name, _, value in pairs}
    return Answer(int(first.split()[1]), headers, body.decode(errors="replace"))


def answered(clients: Sequence[socket.socket]) -> list[socket.socket]:
    """Return those clients that have received a response."""
    readable: list[Any]
    readable, _, _ = select.select(list(clients), [], [], 0)
    return readable
