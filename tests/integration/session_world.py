"""Provide interactive jobs on the `local` executor behind the portal, with a real proxy."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.test import Client
from django.utils import timezone

from scheduling.engine.clock import read_clock
from scheduling.models import Job, Lease
from scheduling.services.sessions import session_state
from tenants.models import Membership, User
from tenants.tokens import Scope, create_token
from tests.architecture.sources import ROOT
from tests.integration.local_world import LocalWorld, local_world
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually, require_tool

SERVE = (sys.executable, "-m", "evenshare.session")
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "client" / "src"), "SHELL": "/bin/sh"}
PORTAL = "portal.test"
COOKIE = "__Host-evenshare-session"


def is_ready(job: Job) -> bool:
    """Return whether the server of a session answers; it must have reported no problem."""
    state = session_state(job)
    assert state is not None
    assert not state.problem
    return state.is_ready


@dataclass
class SessionWorld:
    """Tenants a (ada and mate) and b (bob); `site`: the portal's URL."""

    local: LocalWorld
    site: str
    port: int
    people: dict[str, User]

    def job(self, name: str = "ada", kind: str = "shell", **fields: Any) -> Job:
        """Start an interactive job of a person, without waiting for its server."""
        token = self.local.run(
            *fields.pop("command", SERVE),
            session=kind,
            submitted_by=self.people[name],
            environment={**ENVIRONMENT, **fields.pop("environment", {})},
            **fields,
        )
        job = Job.objects.select_related("pool", "tenant").get(pk=self.local.job(token))
        now = read_clock(job.pool_id).pool_at
        Lease.objects.filter(job=job).update(state="running", started_at=now)
        Job.objects.filter(pk=job.pk).update(state="running")
        return job

    def ready(self, job: Job) -> Job:
        eventually(lambda: is_ready(job))
        return job

    def token(self, job: Job) -> str:
        return f"es-{job.pk}-1"

    def opens(self, job: Job, name: str = "ada") -> str:
        """Press the button of the job's page; return the address of the redirect."""
        client = Client()
        client.force_login(self.people[name])
        answer = client.post(f"/jobs/{job.uid}/session/")
        assert answer.status_code == 302
        return str(answer["Location"])

    def shell(self, job: Job, root: Path, url: str) -> subprocess.Popen[bytes]:
        """Run `evenshare shell --attach` of ada, with pipes; `url`: the portal's address."""
        user = self.people["ada"]
        secret = create_token(user=user, name="t", scopes=Scope, days=1, now=timezone.now())[1]
        return subprocess.Popen(
            [sys.executable, "-m", "evenshare", "shell", "--attach", str(job.uid)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "client" / "src"),
                "EVENSHARE_URL": url,
                "EVENSHARE_TOKEN": secret,
                "SSL_CERT_FILE": str(root),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def host(self, job: Job) -> str:
        return f"{job.uid.hex}.sessions.localhost:{self.port}"


@dataclass
class Proxy:
    """A running Caddy with the sessions' configuration."""

    port: int
    root: Path

    def connect(self, host: str) -> http.client.HTTPSConnection:
        """Connect as a browser does for a host name, whose certificate is checked."""
        context = ssl.create_default_context(cafile=str(self.root))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        plain = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        plain.connect()
        assert plain.sock is not None
        connection.sock = context.wrap_socket(plain.sock, server_hostname=host.partition(":")[0])
        return connection

    def socket(
        self, host: str, *, path: str = "/terminal", **headers: str
    ) -> http.client.HTTPResponse:
        """Return the answer to the start of a WebSocket."""
        key = base64.b64encode(b"0123456789abcdef").decode()
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key}
        return self.get(host, path, **upgrade, Sec_WebSocket_Version="13", **headers)

    def get(
        self,
        host: str,
        path: str = "/",
        *,
        asked: str = "",
        method: str = "GET",
        body: Any = None,
        **headers: str,
    ) -> http.client.HTTPResponse:
        """Send a request to `host`; `asked`: another name in the Host header."""
        connection = self.connect(host)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, headers={"Host": asked or host, **names})
        return connection.getresponse()

    def enter(self, url: str) -> str:
        """Follow a link into a session; return the cookie, or nothing if it was refused."""
        place = urlsplit(url)
        answer = self.get(place.netloc, f"{place.path}?{place.query}")
        return (answer.getheader("Set-Cookie") or "").partition(";")[0]


@contextmanager
def proxy(port: int, upstream: str, folder: Path) -> Iterator[Proxy]:
    """Run Caddy with deploy/sessions.Caddyfile until the block ends."""
    program = require_tool("caddy")
    text = (ROOT / "deploy" / "sessions.Caddyfile").read_text()
    options = "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"
    (folder / "Caddyfile").write_text(options + text)
    environment = {
        "SITE": PORTAL,
        "SESSIONS_DOMAIN": f"sessions.localhost:{port}",
        "UPSTREAM": upstream,
        "XDG_DATA_HOME": str(folder),
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
    }
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [program, "run", "--config", str(folder / "Caddyfile")], env=environment, stderr=log
        ) as running,
    ):
        try:
            made = Proxy(port, folder / "caddy/pki/authorities/local/root.crt")
            eventually(lambda: made.root.exists() and _answers(made))
            yield made
        finally:
            running.terminate()


def _answers(made: Proxy) -> bool:
    try:
        return made.get(f"probe.sessions.localhost:{made.port}").status > 0
    except (OSError, ssl.SSLError):
        return False


@contextmanager
def session_world(root: Path, site: str, settings: Any) -> Iterator[SessionWorld]:
    port = free_port()
    settings.SESSIONS_DOMAIN = f"sessions.localhost:{port}"
    settings.SITE_URL = site
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, PORTAL]
    first = free_port()
    settings.SESSION_PORTS = range(first, min(first + 200, 65536))
    with local_world(root, a=4, b=4) as local:
        people = {name: User.objects.create_user(name, password="x" * 20) for name in PEOPLE}
        for name, (tenant, role) in PEOPLE.items():
            made = local.lab.tenants[tenant]
            Membership.objects.create(user=people[name], tenant=made, role=role)
        yield SessionWorld(local, site, port, people)


PEOPLE = {"ada": ("a", "member"), "mate": ("a", "member"), "bob": ("b", "manager")}
