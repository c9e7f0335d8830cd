"""Test that a key creates one job, with concurrent requests, cut connections and other bodies."""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection, transaction

from scheduling.models import Job
from tenants import idempotency
from tenants.idempotency import KeyedRequest, begin_reply
from tests.functional.api_stage import ApiStage, api_stage
from tests.tools import PATIENCE_S, eventually


@dataclass
class Wire:
    """The API over sockets."""

    stage: ApiStage
    host: str
    port: int

    def headers(self, key: str, name: str = "ada") -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.stage.secrets[name]}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }

    def post(self, key: str, name: str = "ada", path: str = "jobs", **more: Any) -> Any:
        """Submit over a new connection; return (status, body)."""
        client = HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        body: Any = self.stage.spec(**more)
        if path == "jobs/bulk":
            body = {"jobs": [body] * 20}
        client.request("POST", f"/api/v1/{path}", json.dumps(body), self.headers(key, name))
        response = client.getresponse()
        read = json.loads(response.read())
        client.close()
        return response.status, read

    def post_and_hang_up(self, key: str) -> None:
        """Submit, wait for the job's commit, and reset the connection with the answer unread."""
        before = Job.objects.count()
        body = json.dumps(self.stage.spec()).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers(key).items())
        with socket.create_connection((self.host, self.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(
                f"POST /api/v1/jobs HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{head}"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            eventually(lambda: Job.objects.count() > before)


@pytest.fixture
def wire(site: str) -> Wire:
    parts = urlsplit(site)
    assert parts.hostname
    assert parts.port
    return Wire(api_stage(), parts.hostname, parts.port)


def together(wire: Wire, count: int, **more: Any) -> list[Any]:
    """Post concurrently from `count` threads."""
    barrier = Barrier(count)

    def one(_: int) -> Any:
        barrier.wait()
        return wire.post("k", **more)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


class TestIdempotencyKey:
    @pytest.mark.parametrize("path", ["jobs", "jobs/bulk"])
    def test_creates_one_job_for_twenty_threads(self, wire: Wire, path: str) -> None:
        answers = together(wire, 20, path=path)
        statuses = Counter(status for status, _ in answers)
        assert set(statuses) <= {201, 409}, answers
        made = {
            json.dumps(body.get("id") or [row["id"] for row in body["results"]])
            for status, body in answers
            if status == 201
        }
        assert len(made) == 1
        assert Job.objects.count() == (1 if path == "jobs" else 20)

    def test_concurrent_different_bodies_create_one_job(self, wire: Wire) -> None:
        bodies = [{"weight": 1 + n % 2} for n in range(10)]
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda more: wire.post("k", **more), bodies))
        assert {status for status, _ in answers} == {201, 422}
        assert len({body["id"] for status, body in answers if status == 201}) == 1
        assert Job.objects.count() == 1

    def test_is_separate_for_each_user(self, wire: Wire) -> None:
        wire.stage.person("cleo", "aa", "member")
        assert wire.post("k")[1]["id"] != wire.post("k", "cleo")[1]["id"]

    def test_finds_job_after_lost_reply(self, wire: Wire) -> None:
        for index in range(5):
            wire.post_and_hang_up(f"cut-{index}")
            status, body = wire.post(f"cut-{index}")
            assert status == 201
            assert Job.objects.order_by("-id")[0].uid.hex == body["id"].replace("-", "")
        assert Job.objects.count() == 5

    def test_returns_409_while_first_request_is_in_flight(
        self, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency, "WAIT", "100ms")
        ada, tenant = wire.stage.people["ada"], wire.stage.cluster.tenants["aa"]
        held = KeyedRequest.of(tenant, ada, "jobs", "slow", wire.stage.spec())
        assert held is not None
        with transaction.atomic():
            assert begin_reply(held, ["x"]) is None
            status, body = wire.post("slow")
            assert (status, body["reason_code"]) == (409, "idempotency_in_flight")
            transaction.set_rollback(True)
        assert wire.post("slow")[0] == 201


class TestPendingJobLimit:
    def test_is_exact_under_concurrent_submissions(self, wire: Wire, settings: Any) -> None:
        settings.PENDING_JOBS_MAX = 7
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda n: wire.post(f"k{n}")[0], range(20)))
        assert Counter(answers) == {201: 7, 429: 13}
        assert Job.objects.count() == 7


class TestFailedSubmission:
    def test_leaves_no_job_and_no_key(self, wire: Wire) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM tenants_idempotentreply")
            assert cursor.fetchone() == (0,)
        status, _ = wire.post("k", gpus=99)
        assert status == 400
        assert wire.post("k")[0] == 201
