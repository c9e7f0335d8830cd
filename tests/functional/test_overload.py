"""Test floods: users at work are served, password guessing waits, long bodies are cut off."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.cookies import SimpleCookie

import pytest
from django.test import Client

from portal.site.gate import DRAIN_BYTES
from scheduling.models import PoolClock
from tenants.hashing import GATE
from tenants.models import User
from tests.functional.api_stage import ApiStage, api_stage
from tests.plugin import Services
from tests.tools import eventually
from tests.web_server import Answer, WebServer, answered, read_answer, request, web_server

MIB = 2**20


@pytest.fixture
def stage(committed_db: str) -> ApiStage:
    assert committed_db
    stage = api_stage()
    stage.person("otto", site_role="operator")
    # so that no round is late, however slow the machine is
    PoolClock.objects.update(paused=True)
    return stage


@pytest.fixture
def web(stage: ApiStage) -> Iterator[WebServer]:  # noqa: ARG001 - pytest's fixture
    with web_server() as server:
        yield server


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    """Yield a list of connections that a test leaves open, and close them."""
    opened: list[socket.socket] = []
    yield opened
    for client in opened:
        client.close()


def session_of(username: str) -> str:
    client = Client()
    client.force_login(User.objects.get(username=username))
    return f"evenshare_session={client.cookies['evenshare_session'].value}"


class LoginForm:
    """The log-in form in a browser."""

    def __init__(self, web: WebServer) -> None:
        page = web.ask("GET", "/login/")
        assert page.status == 200
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.body)
        assert token is not None
        cookie = SimpleCookie(page.headers["set-cookie"].partition(";")[0])
        self.cookie = "; ".join(f"{name}={one.value}" for name, one in cookie.items())
        self.token = token[1]

    def sent(self, address: str) -> bytes:
        """Return a request with a wrong password from an address, as the proxy forwards it."""
        body = f"csrfmiddlewaretoken={self.token}&username=ada&password=wrong".encode()
        return request(
            "POST", "/login/", body, Cookie=self.cookie, X_Forwarded_For=address,
            Content_Type="application/x-www-form-urlencoded",
        )  # fmt: skip


def works_as_ever(web: WebServer, stage: ApiStage, session: str) -> None:
    """Check that pages, the API and the probes answer for a signed-in user."""
    bearer = f"Bearer {stage.secrets['ada']}"
    assert web.ask("GET", "/t/aa/", Cookie=session).status == 200
    assert web.ask("GET", "/api/v1/jobs", Authorization=bearer).status == 200
    made = web.ask(
        "POST", "/api/v1/jobs/dry-run", b'{"pool":"%s","gpus":1}' % stage.pool.encode(),
        Authorization=bearer, Content_Type="application/json",
    )  # fmt: skip
    assert made.status in (200, 400)
    assert web.ask("GET", "/readyz").status == 200
    assert web.ask("GET", "/healthz").status == 200


class TestLoginFlood:
    def test_does_not_block_signed_in_users(
        self, web: WebServer, stage: ApiStage, clients: list[socket.socket]
    ) -> None:
        """No password is hashed while this test holds the gate, so no log-in completes."""
        session, form = session_of("ada"), LoginForm(web)
        lane = web.gate.lane("logins")
        most = lane.limits.at_once + lane.limits.queue
        with ExitStack() as shut:
            for _ in range(GATE.at_once):
                shut.enter_context(GATE.turn())
            # A client gets one share of the queue, however many IPv6 addresses it has.
            of_one = [f"2001:db8::{number:x}" for number in range(lane.limits.each + 8)]
            from_one = [web.open(form.sent(address)) for address in of_one]
            clients += from_one
            eventually(lambda: len(answered(from_one)) >= 8)
            refused = [read_answer(one).status for one in answered(from_one)]
            assert refused == [429] * 8
            # Other clients get the rest of the queue.
            from_many = [web.open(form.sent(f"192.0.2.{number}")) for number in range(most)]
            clients += from_many
            eventually(lambda: len(answered(from_many)) >= lane.limits.each)
            late = [read_answer(one) for one in answered(from_many)]
            assert Counter(one.status for one in late) == {503: lane.limits.each}
            assert {one.headers["retry-after"] for one in late} == {"5"}
            assert "Too many requests of this kind" in late[0].body
            # A request that hashes a password holds no connection, and a waiting request has none
            # yet.
            eventually(lambda: len(set(web.idle_connections())) == 1)
            works_as_ever(web, stage, session)
            # Requests whose client closed the connection are not served.
            assert lane.waiting == lane.limits.queue
            for client in clients:
                client.close()
            eventually(lambda: lane.waiting == 0)
        # The gate is open again: log-ins are answered.
        asked = b'{"username":"ada","password":"wrong"}'
        tried = web.ask("POST", "/api/v1/tokens", asked, Content_Type="application/json")
        assert tried.status == 401


class TestPages:
    def test_wait_for_a_connection_and_succeed(
        self, web: WebServer, services: Services, committed_db: str, clients: list[socket.socket]
    ) -> None:
        """Forty pages are requested at once, while a lock blocks all reads of accounts."""
        session = session_of("otto")
        lane = web.gate.lane("pages")
        with services.postgres.connect(committed_db) as superuser:
            superuser.execute("BEGIN")
            superuser.execute("LOCK TABLE billing_account IN ACCESS EXCLUSIVE MODE")
            clients += [web.open(request("GET", "/ledger/", Cookie=session)) for _ in range(40)]
            eventually(lambda: lane.waiting == 40 - lane.limits.at_once)
            # On a busy machine a single check of the database may time out.
            eventually(lambda: web.ask("GET", "/readyz").status == 200)
            assert lane.waiting == 40 - lane.limits.at_once, "nobody came through"
            superuser.execute("ROLLBACK")
        assert Counter(read_answer(one).status for one in clients) == {200: 40}


# An address of each kind. No view reads a body before it is complete.
ADDRESSES = ["/login/", "/t/aa/jobs/new/", "/api/v1/jobs", "/api/v1/tokens", "/healthz", "/nowhere",
             "/static/none.css"]  # fmt: skip


class TestRequestBody:
    PIECE = b"%x\r\n" % MIB + b"a" * MIB + b"\r\n"

    def test_endless_body_is_cut_at_every_url(self, web: WebServer) -> None:
        for path in ADDRESSES:
            head = request("POST", path, Content_Length="", Transfer_Encoding="chunked")
            with web.open(head) as client:
                sent = 0
                while not answered([client]):
                    try:
                        client.sendall(self.PIECE)
                    except ConnectionError:
                        break
                    sent += MIB
                    # The server has read at most this much; the rest is in buffers of sockets.
                    assert sent < 4 * DRAIN_BYTES, path
                is_refused_in_words(read_answer(client), path)

    def test_too_large_content_length_is_rejected_at_once(self, web: WebServer) -> None:
        for path in ADDRESSES:
            with web.open(request("POST", path, Content_Length=str(300 * MIB))) as client:
                is_refused_in_words(read_answer(client), path)

    def test_slightly_too_large_body_is_rejected_with_message(self, web: WebServer) -> None:
        for path in ADDRESSES:
            is_refused_in_words(web.ask("POST", path, b"a" * (MIB + 1)), path)

    def test_maximum_length_is_accepted(self, web: WebServer, stage: ApiStage) -> None:
        spec = b'{"pool":"' + b"x" * (MIB - 11) + b'"}'
        bearer = f"Bearer {stage.secrets['ada']}"
        refused = web.ask(
            "POST", "/api/v1/jobs", spec, Authorization=bearer, Content_Type="application/json"
        )
        assert (len(spec), refused.status) == (MIB, 400)


def is_refused_in_words(answer: Answer, path: str) -> None:
    """Check for a 413 with a text, in the format of the address."""
    assert answer.status == 413, path
    assert "at most 1,048,576 bytes are read" in answer.body
    assert answer.headers["x-request-id"]
    is_api = path.startswith("/api/")
    assert ('"reason_code": "too_large"' in answer.body) is is_api
