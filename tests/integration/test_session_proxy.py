"""Test interactive jobs with real processes, through a real Caddy, and attack them."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from scheduling.engine.executors.session_files import read_session, session_secret
from scheduling.models import Job, Lease
from scheduling.services.sessions import session_state
from tenants.models import Membership
from tests.integration.session_world import COOKIE, Proxy, SessionWorld, proxy, session_world
from tests.tools import PATIENCE_S
from tests.web_server import web_server

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc"),
]


@dataclass
class Place:
    """Two sessions of ada behind the proxy, and a cookie for the first one."""

    world: SessionWorld
    caddy: Proxy
    web: str
    job: Job
    other: Job
    cookie: str

    @property
    def host(self) -> str:
        return self.world.host(self.job)

    def status(self, path: str = "/", *, host: str = "", **headers: str) -> int:
        return self.caddy.get(host or self.host, path, **headers).status


@pytest.fixture
def place(tmp_path: Path, settings: Any) -> Iterator[Place]:
    with (
        session_world(tmp_path / "jobs", "https://portal.test", settings) as world,
        web_server() as web,
        proxy(world.port, f"127.0.0.1:{web.port}", tmp_path) as caddy,
    ):
        job, other = world.job(), world.job()
        world.ready(job)
        world.ready(other)
        cookie = caddy.enter(world.opens(job))
        yield Place(world, caddy, f"http://127.0.0.1:{web.port}", job, other, cookie)


class TestSession:
    def test_opens_only_for_its_cookie_and_its_own_pages(self, place: Place) -> None:
        assert place.cookie.startswith(f"{COOKIE}=")
        answer = place.caddy.get(place.host, Cookie=place.cookie)
        shown = answer.read()
        assert (answer.status, b"evenshare shell --attach" in shown) == (200, True)
        assert answer.getheader("Set-Cookie") is None
        own, foreign = f"https://{place.host}", f"https://{place.world.host(place.other)}"
        # Without the cookie, a person is led to the job's page, and a script is refused.
        opened = place.caddy.get(place.host, Sec_Fetch_Mode="navigate")
        page = f"https://portal.test/jobs/{place.job.uid}/"
        assert (opened.status, opened.getheader("Location")) == (302, page)
        assert place.status() == 401
        cookie = {"Cookie": place.cookie}
        for origin in ("https://evil.example", foreign, "null", own.replace("https", "http")):
            assert place.status(Origin=origin, **cookie) == 403
            assert place.caddy.socket(place.host, Origin=origin, **cookie).status == 403
        assert place.caddy.socket(place.host, Origin=own, **cookie).status == 101
        assert place.caddy.socket(place.host, Origin=own).status == 401
        for site in ("same-site", "cross-site"):
            fetched = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
            assert place.status(**fetched, **cookie) == 403
            framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
            assert place.status(Sec_Fetch_Site=site, **framed, **cookie) == 403
        # The cookie of one session, and headers that the proxy sets itself, open no other.
        host = place.world.host(place.other)
        assert place.status(host=host, **cookie) == 401
        for name, value in (
            ("X_Forwarded_Host", place.host),
            ("X_Evenshare_Upstream", "127.0.0.1:22"),
            ("Authorization", "token x"),
            ("Connection", "X-Forwarded-Host, X-Evenshare-Upstream"),
        ):
            assert place.status(host=host, **{name: value}, **cookie) == 401
            assert place.status(**{name: value}, **cookie) in (200, 401), name
        wrong = [f"{host}.evil.example", f"x.{host}", host.replace(":", "0:"), "portal.test"]
        for asked in wrong:
            got = place.caddy.get(place.host, asked=asked, **cookie)
            assert (got.status, got.read()) != (200, shown)
            assert got.status in (200, 401, 404, 421)
            assert got.getheader("X-Evenshare-Upstream") is None

    def test_code_is_good_once_and_for_one_session(self, place: Place) -> None:
        url = place.world.opens(place.job)
        wrong = url.replace(place.job.uid.hex, place.other.uid.hex)
        assert place.caddy.enter(wrong) == ""
        assert place.caddy.enter(url) == ""  # it was spent at the wrong place
        url = place.world.opens(place.job)
        assert place.caddy.enter(url) != ""
        assert place.caddy.enter(url) == ""

    def test_ends_with_membership_and_with_the_lease(self, place: Place) -> None:
        person = place.world.people["ada"]
        Membership.objects.filter(user=person).update(role="viewer")
        assert place.status(Cookie=place.cookie) == 401
        Membership.objects.filter(user=person).update(role="member")
        person.set_password("another long password")
        person.save()
        assert place.status(Cookie=place.cookie) == 401
        cookie = place.caddy.enter(place.world.opens(place.job))
        assert place.status(Cookie=cookie) == 200
        Lease.objects.filter(job=place.job).update(state="ended")
        assert place.status(Cookie=cookie) == 401

    def test_neighbour_on_the_node_gets_nothing(self, place: Place) -> None:
        report = read_session(place.job.pk, 1)
        assert report is not None
        for secret in ({}, {"Authorization": "token x"}, {"Authorization": "token "}):
            direct = http.client.HTTPConnection("127.0.0.1", report.port, timeout=PATIENCE_S)
            direct.request("GET", "/", headers=secret)
            answer = direct.getresponse()
            assert (answer.status, b"attach" in answer.read()) == (401, False)

    def test_may_not_call_the_portal(self, place: Place) -> None:
        client = Client()
        client.force_login(place.world.people["ada"])
        assert client.get("/jobs/", headers={"Origin": f"https://{place.host}"}).status_code == 403
        fetched = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
        assert client.get("/", headers=fetched).status_code == 403
        assert client.get("/sessions/authorize").status_code == 404
        assert client.get("/t/a/jobs/").status_code == 200


class TestNotebook:
    @pytest.mark.skipif(
        "EVENSHARE_TEST_JUPYTER" not in os.environ,
        reason="EVENSHARE_TEST_JUPYTER names no Python with Jupyter (244 MB, so not locked)",
    )
    def test_is_jupyter_with_its_kernels(self, place: Place) -> None:
        program = (os.environ["EVENSHARE_TEST_JUPYTER"], "-m", "evenshare.session")
        job = place.world.ready(place.world.job(kind="notebook", command=program))
        host = place.world.host(job)
        cookie = {"Cookie": place.caddy.enter(place.world.opens(job))}
        assert place.caddy.get(host, "/lab", **cookie).status == 200
        own = {"Origin": f"https://{host}", "Content_Type": "application/json", **cookie}
        made = place.caddy.get(host, "/api/kernels", method="POST", body=b"{}", **own)
        kernel = json.loads(made.read())["id"]
        assert made.status == 201
        path = f"/api/kernels/{kernel}/channels"
        assert place.caddy.socket(host, path=path, **own).status == 101
        foreign = {**own, "Origin": f"https://{place.host}"}
        refused = place.caddy.get(host, "/api/kernels", method="POST", body=b"{}", **foreign)
        assert refused.status == 403
        report = read_session(job.pk, 1)
        assert report is not None
        direct = http.client.HTTPConnection("127.0.0.1", report.port, timeout=PATIENCE_S)
        direct.request("GET", "/api/kernels")
        assert direct.getresponse().status == 403
        lease = place.world.token(job)
        assert session_secret(job, 1) not in place.world.local.log(lease)
        place.world.local.stop(lease)
        assert place.world.local.ended(lease).state.value == "stopped"

    def test_without_jupyter_says_so(self, place: Place) -> None:
        job = place.world.job(kind="notebook", command=(sys.executable, *BARE))
        assert place.world.local.ended(place.world.token(job)).exit_code == 69
        state = session_state(job)
        assert state is not None
        assert "pip install jupyterlab" in state.problem


# A Python without any packages but the client.
BARE = ("-S", "-m", "evenshare.session")


class TestCommand:
    def test_attaches_and_ends_the_session(self, place: Place) -> None:
        shell = place.world.shell(place.job, place.caddy.root, place.web)
        assert shell.stdin is not None
        said, _ = shell.communicate(
            b"echo $((6 * 7))$EVENSHARE_SESSION_SECRET.\nexit 3\n", PATIENCE_S
        )
        assert b"42.\r\n" in said
        assert b"The session has ended." in said
        assert shell.returncode == 0
        report = place.world.local.ended(place.world.token(place.job))
        assert report.exit_code == 0

    def test_shell_outlives_a_detached_terminal(self, place: Place) -> None:
        first = place.world.shell(place.job, place.caddy.root, place.web)
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"mark=o; echo $mark-ne\n")
        first.stdin.flush()
        seen = b""
        while b"o-ne" not in seen:
            seen += first.stdout.read1()  # type: ignore[attr-defined]  # of a buffered pipe
        first.kill()
        first.communicate()
        second = place.world.shell(place.job, place.caddy.root, place.web)
        said, _ = second.communicate(b"echo tw$mark; exit\n", PATIENCE_S)
        assert b"o-ne" in said
        assert b"two" in said
