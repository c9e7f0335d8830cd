"""Benchmark of many open pages on loopback that poll their pool's status line every two seconds.

Run `python -m benchmarks.polls_http [PAGES]`. It uses a durable Postgres, the web processes of
`make run`, and 200 pages of 200 people. Each page has a session, a kept-alive connection and the
ETag of its content. Rounds run meanwhile. The plain method sends the same polls to the normal view,
which queries the session and the pool. It uses the same URL with a query string, which
`portal.site.polls` does not treat as a poll.
"""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# The sessions are signed with this key here, and the web processes check them with it.
os.environ["SECRET_KEY"] = secrets.token_hex(32)

from benchmarks.temporary_database import temporary_database
from portal.embedded.web_size import web_size

PAGES, EVERY_S, ROUND_S = 200, 2.0, 5.0
WARM_S, SPAN_S = 4.0, 20.0
START_S = 60.0
GOAL_MS = 250
PLAIN = "?plain"


@dataclass
class PollTimes:
    """The response times of one method's polls."""

    spans: list[float] = field(default_factory=list)
    unchanged: int = 0
    errors: int = 0

    def line(self, name: str, took_s: float) -> str:
        spans = sorted(self.spans) or [0.0]
        parts = [spans[min(len(spans) - 1, int(len(spans) * q))] * 1000 for q in (0.5, 0.95, 0.99)]
        return (
            f"  {name:<18}{len(self.spans) / took_s:7.1f} polls/s"
            f"  p50 {parts[0]:7.1f}  p95 {parts[1]:7.1f}  p99 {parts[2]:7.1f} ms"
            f"  {self.unchanged} unchanged, {self.errors} errors"
        )

    @property
    def p95_ms(self) -> float:
        return sorted(self.spans)[int(len(self.spans) * 0.95)] * 1000


class OpenPage:
    """A page in a browser: it polls, waits for the answer, and polls again after two seconds."""

    def __init__(self, port: int, path: str, session: str) -> None:
        self._port, self._path, self._session = port, path, session
        self._etag = ""

    async def stay(self, begin: float, from_: float, until: float, figures: PollTimes) -> None:
        """Poll until `until`; polls before `from_` only warm up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        due = begin
        while (now := time.perf_counter()) < until:
            if now < due:
                await asyncio.sleep(due - now)
            began = time.perf_counter()
            try:
                status = await asyncio.wait_for(self._poll(reader, writer), 30)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                status = 0
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            if began >= from_:
                figures.spans.append(time.perf_counter() - began)
                figures.unchanged += status == 304
                figures.errors += status not in (200, 304)
            due = max(due + EVERY_S, time.perf_counter())
        writer.close()

    async def _poll(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        asked = [
            f"GET {self._path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Cookie: evenshare_session={self._session}",
            "HX-Request: true",
            "Accept-Encoding: gzip",
        ]
        asked += [f"If-None-Match: {self._etag}"] if self._etag else []
        writer.write("\r\n".join([*asked, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = (line.lower().partition(":") for line in head.split("\r\n")[1:])
        headers = {name: value.strip() for name, _, value in lines}
        # the server refused the poll, because one IP address sent too many requests
        if headers.get("transfer-encoding") == "chunked":
            await reader.readuntil(b"0\r\n\r\n")
        else:
            await reader.readexactly(int(headers.get("content-length", "0")))
        status = int(head.split()[1])
        if status == 200:
            self._etag = headers["etag"].replace("w/", "W/")
        return status


def main() -> None:
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    with (
        temporary_database(durable=True),
        socket.create_server(("127.0.0.1", 0), backlog=1024) as listener,
        _web(listener) as web,
    ):
        port = listener.getsockname()[1]
        pool, sessions = _stage(pages)
        line = f"/pools/{pool.pool.name}/line/"
        print(f"{pages} open pages, one poll in {EVERY_S:.0f} s each, {web} web processes")
        fast = asyncio.run(_run(port, line, sessions, pool))
        print(fast.line("board", SPAN_S))
        plain = asyncio.run(_run(port, line + PLAIN, sessions, pool))
        print(plain.line("plain, the view", SPAN_S))
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"  p95 {plain.p95_ms / fast.p95_ms:.1f} x shorter; goal {GOAL_MS} ms; {load}")


async def _run(port: int, path: str, sessions: list[str], pool: object) -> PollTimes:
    """Open the pages one after another within two seconds; they poll until the end."""
    figures, begin = PollTimes(), time.perf_counter()
    from_, until = begin + WARM_S, begin + WARM_S + SPAN_S
    pages = [
        OpenPage(port, path, session).stay(
            begin + EVERY_S * i / len(sessions), from_, until, figures
        )
        for i, session in enumerate(sessions)
    ]
    rounds = asyncio.ensure_future(_rounds(pool))
    await asyncio.gather(*pages)
    rounds.cancel()
    return figures


async def _rounds(pool: object) -> None:
    """Run rounds, so that the polled lines change."""
    while True:
        await asyncio.sleep(ROUND_S)
        await asyncio.to_thread(pool.round, after_s=10)  # type: ignore[attr-defined]  # a Cluster


def _stage(pages: int) -> tuple[object, list[str]]:
    """Create a pool, a tenant, and a person with a session for each page."""
    from django.conf import settings
    from django.test import Client

    from scheduling.models import PoolClock
    from tenants.models import Membership, User
    from tests.factories import cluster

    lab = cluster({"aa": 4, "bb": 4})
    PoolClock.objects.update(paused=True, pause_reason="benchmark")
    sessions = []
    for number in range(pages):
        user = User.objects.create(username=f"p{number}")
        Membership.objects.create(user=user, tenant=lab.tenants["aa"], role="member")
        client = Client()
        client.force_login(user)
        sessions.append(client.cookies[settings.SESSION_COOKIE_NAME].value)
    return lab, sessions


@contextmanager
def _web(listener: socket.socket) -> Iterator[int]:
    """Start the web processes as the supervisor does."""
    count, connections = web_size(os.environ)
    command = [sys.executable, "-m", "portal.site.web", str(listener.fileno())]
    environment = {**os.environ, "DATABASE_POOL_SIZE": str(connections)}
    processes = [
        subprocess.Popen(command, pass_fds=[listener.fileno()], env=environment)
        for _ in range(count)
    ]
    try:
        _wait(listener.getsockname()[1])
        yield count
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


def _wait(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), START_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        if not connection.recv(16).startswith(b"HTTP/"):
            raise SystemExit("the web server does not answer")


if __name__ == "__main__":
    main()
