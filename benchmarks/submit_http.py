"""Benchmark of submissions over HTTP on loopback, to the server of `make run`."""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

os.environ["SUBMISSIONS_PER_S"] = os.environ["PENDING_JOBS_MAX"] = "1000000"

from benchmarks.temporary_database import temporary_database, token_of

SINGLES, CLIENTS, BULKS, BULK, ALONE = 2000, 8, 10, 1000, 300
START_S = 30.0


@dataclass
class PortalProcess:
    """A running portal: its port and process, and the token and pool for requests."""

    port: int
    secret: str
    pool: str
    pid: int = 0
    command: tuple[str, ...] = ("python", "train.py", "--epochs", "10")

    def cpu_s(self) -> float:
        """Return the CPU time of the web process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def spec(self, name: str) -> dict[str, Any]:
        return {
            "pool": self.pool,
            "gpus": 1,
            "name": name,
            "command": list(self.command),
            "environment": {"SEED": "1"},
        }

    def post(self, client: HTTPConnection, path: str, body: Any, key: str) -> float:
        """Send a POST request and read the answer; return the seconds."""
        began = time.perf_counter()
        headers = {
            "Authorization": f"Bearer {self.secret}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        client.request("POST", f"/api/v1/{path}", json.dumps(body), headers)
        response = client.getresponse()
        text = response.read()
        if response.status != 201:
            raise SystemExit(f"{response.status}: {text[:300]!r}")
        return time.perf_counter() - began


def main() -> None:
    with temporary_database(durable=True):
        secret, pool = _stage()
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            web = start_web(listener)
            try:
                server = PortalProcess(listener.getsockname()[1], secret, pool, web.pid)
                wait_for(server)
                run(server)
            finally:
                web.terminate()
                web.wait(20)


def run(server: PortalProcess) -> None:
    submit_all(server, 200, "warm")
    before_s = server.cpu_s()
    took, spans = submit_all(server, SINGLES, "one")
    each_ms = (server.cpu_s() - before_s) / SINGLES * 1000
    spans.sort()
    p50, p99 = statistics.median(spans) * 1000, spans[int(len(spans) * 0.99)] * 1000
    print(f"{SINGLES:,} jobs one by one, {CLIENTS} clients, a key each")
    print(
        f"  {SINGLES / took:,.0f} submissions/s (goal 200), p50 {p50:.1f} ms,"
        f" p99 {p99:.1f} ms (goal 250)"
    )
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"  {each_ms:.1f} ms of the web process each; {load}")
    client = HTTPConnection("127.0.0.1", server.port)
    alone = sum(
        server.post(client, "jobs", server.spec(f"a{n}"), f"alone-{n}") for n in range(ALONE)
    )
    bulk_spans = [
        server.post(
            client,
            "jobs/bulk",
            {"jobs": [server.spec(f"b{bulk}-{n}") for n in range(BULK)]},
            f"bulk-{bulk}",
        )
        for bulk in range(BULKS)
    ]
    rate, plain = BULKS * BULK / sum(bulk_spans), ALONE / alone
    print(f"{BULKS * BULK:,} jobs in bulks of {BULK:,}, one client")
    print(f"  {rate:,.0f} jobs/s (goal 2,000), slowest bulk {max(bulk_spans) * 1000:,.0f} ms")
    print(
        f"  the same client one by one (plain): {plain:,.0f} jobs/s; bulk is"
        f" {rate / plain:.1f} x as fast"
    )


def submit_all(server: PortalProcess, count: int, key: str) -> tuple[float, list[float]]:
    """Submit from all clients at once; return the total seconds and the seconds per submission."""

    def client(number: int) -> list[float]:
        connection = HTTPConnection("127.0.0.1", server.port)
        return [
            server.post(connection, "jobs", server.spec(f"j{n}"), f"{key}-{n}")
            for n in range(number, count, CLIENTS)
        ]

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        spans = [span for part in pool.map(client, range(CLIENTS)) for span in part]
    return time.perf_counter() - began, spans


def _stage() -> tuple[str, str]:
    """Create a pool, a tenant, and a person with a token."""
    from tests.factories import cluster

    lab = cluster({"aa": 4, "bb": 4})
    return token_of(lab.tenants["aa"]), lab.pool.name


def start_web(listener: socket.socket) -> subprocess.Popen[bytes]:
    """Start the web server as the supervisor does."""
    from portal.embedded.web_size import CONNECTIONS

    return subprocess.Popen(
        [sys.executable, "-m", "portal.site.web", str(listener.fileno())],
        pass_fds=[listener.fileno()],
        env={**os.environ, "DATABASE_POOL_SIZE": str(CONNECTIONS)},
    )


def wait_for(server: PortalProcess) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        client = HTTPConnection("127.0.0.1", server.port, timeout=START_S)
        client.request("GET", "/api/v1/schema")
        if client.getresponse().status == 200:
            return
        time.sleep(0.1)
    raise SystemExit("the web server does not answer")


if __name__ == "__main__":
    main()
