"""Test the production setup process by process, from a copy of the image's files.

The tests cover everything except the container: the image's files and its build step, the entry
point's roles, and the health checks. They also cover compose's broker, and the shell commands of
docs/operations.md.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import yaml
from django.contrib.auth.hashers import check_password
from redis import Redis
from redis.exceptions import AuthenticationError

from deploy import healthcheck
from portal.embedded.heartbeat import Heartbeat, write_heartbeat
from portal.embedded.postgres import APP_ROLE, OWNER_ROLE, create_database
from portal.embedded.restarts import read_restarts
from portal.embedded.valkey import find_program
from tests.architecture.sources import ROOT, files, name_of
from tests.plugin import Services
from tests.ports import free_port
from tests.tools import PATIENCE_S, drop_database, eventually, require_tool

DATABASE = "evenshare_production"
HOST = "gpu.invalid"
ROLES = {
    "web": ["web"],
    "rounds": ["worker", "rounds"],
    "default": ["worker", "default"],
    "beat": ["beat"],
}


@dataclass
class Production:
    """The portal as four processes on a new database."""

    folder: Path
    port: int
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]

    def run(self, *words: str, told: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            input=told,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def well(self, role: str) -> bool:
        return self.run(sys.executable, "-m", "deploy.healthcheck", role).returncode == 0

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers={"Host": HOST, **headers})
        return connection.getresponse()


def image_holds() -> list[Path]:
    """Return the files that .dockerignore allows."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = tuple(line[1:] for line in lines if line.startswith("!"))
    return [
        path
        for path in files()
        if any(name_of(path) == one or name_of(path).startswith(f"{one}/") for one in let_in)
    ]


def build_step() -> str:
    """Return the image's command that collects the static files, for this machine's Python."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if "collectstatic" in line]
    return line.removeprefix("RUN ").replace("/opt/venv/bin/python", sys.executable)


@pytest.fixture(scope="module")
def production(
    template_database: str, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    folder = tmp_path_factory.mktemp("production")
    for path in image_holds():
        target = folder / name_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (folder / "pulses").mkdir()
    with services.postgres.connect() as superuser:
        # The database is migrated and has no rows.
        create_database(superuser, DATABASE, template=template_database)
    port = free_port()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SECRET_KEY": "b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4dGi6o-KXy",
        "ALLOWED_HOSTS": HOST,
        "BEHIND_TLS_PROXY": "1",
        "DATABASE_URL": services.postgres.url(APP_ROLE, DATABASE),
        "OWNER_DATABASE_URL": services.postgres.url(OWNER_ROLE, DATABASE),
        "REDIS_URL": services.valkey.url.replace("db=0", "db=3"),
        "EVENSHARE_RUN_DIR": str(folder / "pulses"),
        "PORT": str(port),
        "WEB_PROCESSES": "2",
    }
    found = Production(folder, port, environment, {})
    # The Dockerfile's own command, run by a shell.
    built = found.run("/bin/sh", "-c", build_step())
    assert built.returncode == 0, built.stdout + built.stderr
    prepared = found.run("deploy/entrypoint.sh", "prepare")
    assert prepared.returncode == 0, prepared.stderr
    # Web and workers do not get the password of the owner role.
    del environment["OWNER_DATABASE_URL"]
    try:
        for name, words in ROLES.items():
            with (folder / f"{name}.log").open("wb") as log:
                found.processes[name] = subprocess.Popen(
                    ["deploy/entrypoint.sh", *words],
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        yield found
    finally:
        for process in found.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with services.postgres.connect() as superuser:
            drop_database(superuser, DATABASE)


class TestProduction:
    """The tests run one after another on one portal."""

    @pytest.mark.parametrize("role", [*ROLES, "ready"])
    def test_passes_its_own_health_checks(self, production: Production, role: str) -> None:
        eventually(lambda: production.well(role), every_s=0.5)

    def test_serves_pages_and_static_files_over_tls_only(self, production: Production) -> None:
        plain = production.get("/")
        assert (plain.status, plain.headers["Location"]) == (301, f"https://{HOST}/")
        page = production.get("/login/", **{"X-Forwarded-Proto": "https"})
        body = page.read().decode()
        assert page.status == 200
        assert page.headers["Strict-Transport-Security"].startswith("max-age=31536000")
        assert "__Host-csrf" in page.headers["Set-Cookie"]
        assert "Server" not in page.headers
        (style, *_) = re.findall(r'href="(/static/[^"]+\.[0-9a-f]{12}\.css)"', body)
        assert production.get(style, **{"X-Forwarded-Proto": "https"}).status == 200

    def test_hides_metrics_and_rejects_unknown_host(self, production: Production) -> None:
        assert production.get("/metrics").status == 404
        assert production.get("/healthz", Host="evil.invalid").status == 400

    def test_has_no_demo(self, production: Production, services: Services) -> None:
        with services.postgres.connect(DATABASE) as superuser:
            row = superuser.execute(
                "SELECT (SELECT count(*) FROM tenants_user), (SELECT count(*) FROM scheduling_pool)"
            ).fetchone()
        assert row == (0, 0)

    def test_documented_commands_create_operator_and_pool(
        self, production: Production, services: Services
    ) -> None:
        operator, pool = documented("first operator"), documented("first pool")
        weak = production.run("/bin/bash", "-c", operator, told="password\npassword\n")
        assert weak.returncode != 0
        made = production.run("/bin/bash", "-c", operator, told="a long word 47\n" * 2)
        assert made.returncode == 0, made.stderr
        made = production.run("/bin/bash", "-c", pool)
        assert made.returncode == 0, made.stderr
        with services.postgres.connect(DATABASE) as superuser:
            row = user_of(superuser)
            assert row[1:] == ("operator", True)
            assert check_password("a long word 47", str(row[0]))

    def test_runs_rounds_of_new_pool(self, production: Production, services: Services) -> None:
        def looked() -> bool:
            with services.postgres.connect(DATABASE) as superuser:
                query = "SELECT count(*) FROM scheduling_poolfence WHERE last_checked_at > now()"
                row = superuser.execute(f"{query} - interval '30 s'").fetchone()
            return row == (1,)

        eventually(looked, every_s=0.5)
        eventually(lambda: production.well("ready"), every_s=0.5)

    def test_is_reached_through_proxy(self, production: Production, tmp_path: Path) -> None:
        program = require_tool("caddy")
        http_port, https_port, probe_port = free_port(), free_port(), free_port()
        text = (ROOT / "deploy" / "Caddyfile").read_text().replace(":8090", f":{probe_port}")
        ports = f"{{\n\thttp_port {http_port}\n\thttps_port {https_port}\n"
        (tmp_path / "Caddyfile").write_text(text.replace("{\n", ports, 1))
        environment = {
            "SITE": HOST,
            "TLS": "internal",
            "UPSTREAM": f"127.0.0.1:{production.port}",
            "XDG_DATA_HOME": str(tmp_path),
            "HOME": str(tmp_path),
        }
        log = (tmp_path / "log").open("wb")
        with (
            log,
            subprocess.Popen(
                [program, "run", "--config", str(tmp_path / "Caddyfile")],
                env=environment,
                stderr=log,
            ) as proxy,
        ):
            try:
                root = tmp_path / "caddy/pki/authorities/local/root.crt"
                eventually(lambda: listens(https_port) and root.exists())
                eventually(lambda: over_tls(https_port, root, "/login/")[0] == 200)
                assert over_tls(https_port, root, "/metrics")[0] == 404
                # The portal ignores a client's forwarding headers; otherwise it would answer with a
                # redirect.
                lie = {"X-Forwarded-Proto": "http"}
                assert over_tls(https_port, root, "/login/", **lie)[0] == 200
                probe = http.client.HTTPConnection("127.0.0.1", probe_port, timeout=PATIENCE_S)
                probe.request("GET", "/readyz")
                assert probe.getresponse().status == 200
                plain = http.client.HTTPConnection("127.0.0.1", http_port, timeout=PATIENCE_S)
                plain.request("GET", "/", headers={"Host": HOST})
                assert plain.getresponse().status == 308
            finally:
                proxy.terminate()

    def test_shuts_down_cleanly(self, production: Production) -> None:
        for process in production.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in production.processes.items():
            log = (production.folder / f"{name}.log").read_text
            assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM), log()
            assert [line for line in log().splitlines() if "Traceback" in line] == []


def over_tls(port: int, root: Path, path: str, **headers: str) -> tuple[int, str]:
    """Return an answer's status and body over checked TLS, or status 0 without an answer."""
    context = ssl.create_default_context(cafile=str(root))
    with (
        contextlib.suppress(ssl.SSLError),
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secure,
    ):
        told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        secure.sendall(f"GET {path} HTTP/1.0\r\nHost: {HOST}\r\n{told}\r\n".encode())
        reply = http.client.HTTPResponse(secure)
        reply.begin()
        return reply.status, reply.read().decode()
    return 0, ""


def documented(title: str) -> str:
    """Return a shell block of docs/operations.md by title, with this checkout's entry point."""
    text = (ROOT / "docs" / "operations.md").read_text()
    block = re.search(rf"(?i){title}.*?```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].replace("docker compose run --rm -it prepare", "deploy/entrypoint.sh")


def user_of(connection: psycopg.Connection) -> tuple[object, ...]:
    row = connection.execute("SELECT password, site_role, is_active FROM tenants_user").fetchone()
    assert row is not None
    return row


class TestUnsafeProcess:
    @pytest.mark.parametrize("words", ROLES.values(), ids=ROLES)
    def test_refuses_to_start(self, words: list[str]) -> None:
        done = subprocess.run(
            [str(ROOT / "deploy" / "entrypoint.sh"), *words],
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "SECRET_KEY": "short",
                "ALLOWED_HOSTS": "*",
                "DATABASE_URL": "postgres://app@/none?host=/nowhere",
                "REDIS_URL": "unix:///nowhere",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 1
        told = [line.split()[1] for line in done.stderr.splitlines()]
        assert told == ["SECRET_KEY", "ALLOWED_HOSTS", "BEHIND_TLS_PROXY"]


class TestHealthCheck:
    @pytest.mark.parametrize(
        ("role", "ages", "well"),
        [
            ("rounds", {"rounds": 100}, True),
            ("rounds", {"rounds": 130, "default": 1}, False),
            ("rounds", {}, False),
            ("default", {"default": 50}, True),
            ("default", {"default": 70}, False),
            ("beat", {"rounds": 130, "default": 130, "beat": 1}, True),
            ("beat", {"rounds": 1, "default": 1, "beat": 70}, False),
        ],
    )
    def test_queue_fails_if_heartbeat_is_too_old(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        role: str,
        ages: dict[str, int],
        *,
        well: bool,
    ) -> None:
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        now = 100_000.0
        for queue, age_s in ages.items():
            file = tmp_path / (f"pulse-{queue}" if queue == "beat" else f"heartbeat-{queue}")
            file.touch()
            os.utime(file, (now - age_s, now - age_s))
        assert (not healthcheck.problem(role, now)) is well

    def test_queue_fails_if_worker_receives_no_messages(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        now = time.monotonic()
        write_heartbeat(tmp_path, "rounds", Heartbeat(now, waits_since=now - 100))
        assert not healthcheck.problem("rounds", time.monotonic())
        write_heartbeat(tmp_path, "rounds", Heartbeat(now, waits_since=now - 130))
        assert "has received no message" in healthcheck.problem("rounds", time.monotonic())

    def test_ends_first_process_only_with_option(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        ended: list[tuple[int, int]] = []
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
        monkeypatch.setattr(healthcheck, "STARTING_S", -1e9)
        assert healthcheck.main("rounds") == 1
        assert ended == []
        assert healthcheck.main("rounds", "--or-end") == 1
        assert ended == [(1, signal.SIGTERM)]
        (noted,) = read_restarts(tmp_path)
        assert (noted.name, noted.why) == ("worker-rounds", "it sent no heartbeat")


class TestBroker:
    def test_requires_password_and_evicts_nothing(self, tmp_path: Path) -> None:
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        shell, flag, script = compose["services"]["valkey"]["command"]
        port = free_port()
        script = script.replace("$$", "$").replace("/tmp/valkey.conf", f"{tmp_path}/valkey.conf")  # noqa: S108 - compose's
        script = script.replace("valkey-server", f"{find_program()}") + f" --port {port}"
        with subprocess.Popen(
            [shell, flag, script], env={"VALKEY_PASSWORD": "word4711", "PATH": os.environ["PATH"]}
        ) as server:
            try:
                eventually(lambda: listens(port))
                with pytest.raises(AuthenticationError):
                    Redis(port=port).ping()
                with Redis(port=port, password="word4711", decode_responses=True) as client:
                    assert client.config_get("maxmemory*") == {
                        "maxmemory": str(256 * 2**20),
                        "maxmemory-policy": "noeviction",
                        "maxmemory-samples": "5",
                        "maxmemory-clients": "0",
                        "maxmemory-eviction-tenacity": "10",
                    }
                    assert client.config_get("save") == {"save": ""}
                assert "word4711" not in Path(f"/proc/{server.pid}/cmdline").read_text()
            finally:
                server.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
