"""Production refuses to start on what is unsafe, a line per problem; the demo is not asked."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.contrib.auth.hashers import make_password
from django.db import connections
from pytest_django import Settings

from portal.site import prepare
from portal.site.checks import (
    database_problems,
    refuse_unsafe,
    safe_for_production,
    settings_problems,
)
from portal.site.environment import SettingError
from tenants.models import User
from tenants.services.tenants import DEMO_PASSWORD
from tests.factories import cluster
from tests.plugin import Services
from tests.tools import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
FIX_KEY = "make one with `python3 -c 'import secrets; print(secrets.token_urlsafe(48))'`"
SAFE = {
    "EVENSHARE_MODE": "production",
    "SECRET_KEY": "b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4dGi6o-KXy",
    "ALLOWED_HOSTS": "gpu.invalid",
    "BEHIND_TLS_PROXY": "1",
    "DATABASE_URL": "postgres://app:word@/evenshare?host=/run/postgresql",
    "OWNER_DATABASE_URL": "postgres://owner:word@/evenshare?host=/run/postgresql",
    "REDIS_URL": "redis://:word@valkey:6379/0",
    "EVENSHARE_INSTALLATION": "north",
    "METRICS_TOKEN": "Zk7mT0aYvC5nR2wLpH9sUe4d",
}

# What is changed in the safe environment -> the one line that refuses it.
UNSAFE: dict[str, tuple[dict[str, str], str]] = {
    "a mode that there is not": (
        {"EVENSHARE_MODE": "prod"},
        "EVENSHARE_MODE must be demo or production, not 'prod'",
    ),
    "a mode in capitals": (
        {"EVENSHARE_MODE": "Production"},
        "EVENSHARE_MODE must be demo or production, not 'Production'",
    ),
    "debug pages": ({"DEBUG": "1"}, "DEBUG is on: its pages show settings and code; unset it"),
    "no key": ({"SECRET_KEY": ""}, "SECRET_KEY must be set"),
    "a short key": (
        {"SECRET_KEY": "x7Bq"},
        f"SECRET_KEY has 4 characters, 32 are the least; {FIX_KEY}",
    ),
    "a key of one letter": (
        {"SECRET_KEY": "k" * 50},
        f"SECRET_KEY has only 1 different characters; {FIX_KEY}",
    ),
    "Django's own example of a key": (
        {"SECRET_KEY": "django-insecure-7x!m2v9q#c4b8n1z5k3j6h0g"},
        f"SECRET_KEY has 'django-insecure-' in it, as an example's would; {FIX_KEY}",
    ),
    "a key that was to be changed": (
        {"SECRET_KEY": "please-ChangeMe-before-you-use-it-1234567"},
        f"SECRET_KEY has 'change' in it, as an example's would; {FIX_KEY}",
    ),
    "no host": (
        {"ALLOWED_HOSTS": " , "},
        "ALLOWED_HOSTS is empty: nobody would be served; name the hosts, with commas between",
    ),
    "every host": (
        {"ALLOWED_HOSTS": "gpu.invalid,*"},
        "ALLOWED_HOSTS has '*': a forged Host header would pass; name the hosts",
    ),
    "no TLS in front": (
        {"BEHIND_TLS_PROXY": "0"},
        (
            "BEHIND_TLS_PROXY is off: passwords and sessions would travel in the clear; serve "
            "through a TLS proxy that sets X-Forwarded-Proto, and set it to 1"
        ),
    ),
    "forms from plain HTTP": (
        {"CSRF_TRUSTED_ORIGINS": "https://gpu.invalid,http://gpu.invalid"},
        "CSRF_TRUSTED_ORIGINS has 'http://gpu.invalid': plain HTTP; use its https:// address",
    ),
    "no database": ({"DATABASE_URL": ""}, "DATABASE_URL must be set"),
    "the superuser": (
        {"DATABASE_URL": "postgres://postgres:word@/evenshare?host=/run/postgresql"},
        (
            "DATABASE_URL names the role 'postgres': a superuser may change the books; "
            "make a role that owns nothing (deploy/roles.sql)"
        ),
    ),
    "one role for both": (
        {"OWNER_DATABASE_URL": SAFE["DATABASE_URL"]},
        (
            "OWNER_DATABASE_URL and DATABASE_URL name the same role 'app': who owns a table may "
            "drop its guards; make two roles (deploy/roles.sql)"
        ),
    ),
    "a database in the clear": (
        {"DATABASE_URL": "postgres://app:word@db.invalid/evenshare"},
        (
            "DATABASE_URL goes to db.invalid with sslmode=prefer: it may go in the clear; "
            "add ?sslmode=verify-full (or require), or use a socket"
        ),
    ),
    "an owner in the clear": (
        {"OWNER_DATABASE_URL": "postgres://owner:word@10.0.0.7/evenshare?sslmode=allow"},
        (
            "OWNER_DATABASE_URL goes to 10.0.0.7 with sslmode=allow: it may go in the clear; "
            "add ?sslmode=verify-full (or require), or use a socket"
        ),
    ),
    "a broker without a password": (
        {"REDIS_URL": "redis://valkey:6379/0"},
        (
            "REDIS_URL has no password: whoever reaches the port may stop all rounds; set "
            "`requirepass` and use redis://:password@host:port/0, or a unix socket"
        ),
    ),
    "a broker in the clear": (
        {"REDIS_URL": "redis://:word@broker.invalid/0"},
        "REDIS_URL goes to broker.invalid in the clear: its password too; use rediss://",
    ),
    "metrics behind a guessable token": (
        {"METRICS_TOKEN": "0123012301230123"},
        f"METRICS_TOKEN has only 4 different characters; {FIX_KEY}",
    ),
    "metrics behind a short token": (
        {"METRICS_TOKEN": "Zk7mT0"},
        "METRICS_TOKEN must have at least 16 characters",
    ),
    "a name that executors cannot carry": (
        {"EVENSHARE_INSTALLATION": "north; rm -rf"},
        (
            "EVENSHARE_INSTALLATION is 'north; rm -rf': executors get it as a part of "
            "names; use 1 to 20 letters and digits"
        ),
    ),
    "a number that is none": (
        {"DATABASE_POOL_SIZE": "many"},
        "DATABASE_POOL_SIZE must be a whole number, not 'many'",
    ),
}

ALSO_SAFE: dict[str, dict[str, str]] = {
    "as it is": {},
    "a process that knows no owner": {"OWNER_DATABASE_URL": ""},
    "a database by verified TLS": {
        "DATABASE_URL": "postgres://app:word@db.invalid/evenshare?sslmode=verify-full"
    },
    "a database on this machine": {"DATABASE_URL": "postgres://app:word@127.0.0.1/evenshare"},
    "a broker on a socket": {"REDIS_URL": "unix:///run/valkey.sock?db=0"},
    "a broker by TLS": {"REDIS_URL": "rediss://:word@broker.invalid/0"},
    "no metrics": {"METRICS_TOKEN": ""},
    "all hosts of a domain": {"ALLOWED_HOSTS": ".gpu.invalid"},
}


def refusals(monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]) -> list[str]:
    """The lines for an environment: its settings are really read."""
    for name in ("DEBUG", "CSRF_TRUSTED_ORIGINS", "DATABASE_POOL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (SAFE | changed).items():
        monkeypatch.setenv(name, value)
    try:
        read = runpy.run_path(str(ROOT / "portal" / "site" / "settings.py"))
    except SettingError as error:
        return [str(error)]
    return list(settings_problems(SimpleNamespace(**read)))


class TestAnEnvironment:
    @pytest.mark.parametrize(("changed", "line"), UNSAFE.values(), ids=UNSAFE)
    def test_that_is_unsafe_gets_its_line(
        self, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], line: str
    ) -> None:
        assert refusals(monkeypatch, changed) == [line]

    @pytest.mark.parametrize("changed", ALSO_SAFE.values(), ids=ALSO_SAFE)
    def test_that_is_safe_gets_none(
        self, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
    ) -> None:
        assert refusals(monkeypatch, changed) == []

    def test_with_two_problems_gets_two_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert len(refusals(monkeypatch, {"DEBUG": "1", "ALLOWED_HOSTS": "*"})) == 2

    def test_tells_no_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        changed = {name: change[name] for change, _ in UNSAFE.values() for name in change}
        changed |= {"EVENSHARE_MODE": "production", "METRICS_TOKEN": "", "SECRET_KEY": "canary-1"}
        changed |= {"DATABASE_URL": "postgres://postgres:canary-2@db/x", "DATABASE_POOL_SIZE": "1"}
        lines = refusals(monkeypatch, changed)
        assert len(lines) > 5
        assert "canary" not in "".join(lines)

    @pytest.mark.parametrize("name", ["SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE"])
    def test_whose_code_was_weakened_gets_a_line(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        assert refusals(monkeypatch, {}) == []
        read = runpy.run_path(str(ROOT / "portal" / "site" / "settings.py"))
        (line,) = settings_problems(SimpleNamespace(**read | {name: False}))
        assert line == f"{name} is off in portal/site/settings.py: plain HTTP is served; turn it on"


class TestEveryProcess:
    """Web, workers, beat and commands: each would have imported half of the portal by then."""

    @pytest.mark.parametrize(
        "words",
        [
            ["-m", "portal.site.prepare"],
            ["-c", "import portal.site.asgi"],
            ["manage.py", "migrate", "--database", "owner"],
            ["manage.py", "shell", "-c", "1"],
            ["-m", "celery", "-A", "portal.site.celery", "worker"],
            ["-m", "celery", "-A", "portal.site.celery", "beat", "--schedule", "/dev/null/none"],
        ],
        ids=["prepare", "asgi", "migrate", "shell", "worker", "beat"],
    )
    def test_ends_with_a_line_per_problem(self, words: list[str]) -> None:
        unsafe = {"DEBUG": "1", "BEHIND_TLS_PROXY": "0"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **SAFE, **unsafe},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 1
        wanted = [f"refused: {UNSAFE[key][1]}" for key in ("debug pages", "no TLS in front")]
        assert done.stderr.splitlines() == wanted

    def test_of_a_mode_that_there_is_not_ends_with_one_line(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "portal.site.prepare", "--check"],
            cwd=ROOT,
            env={**os.environ, **SAFE, "EVENSHARE_MODE": "prod"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (
            1,
            "refused: EVENSHARE_MODE must be demo or production, not 'prod'\n",
        )


# As the superuser: do, undo, and the one line between.
ROLES: dict[str, tuple[str, str, str]] = {
    "superuser": (
        "ALTER ROLE evenshare_app SUPERUSER",
        "ALTER ROLE evenshare_app NOSUPERUSER",
        (
            "DATABASE_URL: the role 'evenshare_app' is a superuser; "
            "make a role that owns nothing (deploy/roles.sql)"
        ),
    ),
    "bypass of row security": (
        "ALTER ROLE evenshare_app BYPASSRLS",
        "ALTER ROLE evenshare_app NOBYPASSRLS",
        "DATABASE_URL: the role 'evenshare_app' has BYPASSRLS; ALTER ROLE ... NOBYPASSRLS",
    ),
    "maker of roles": (
        "ALTER ROLE evenshare_app CREATEROLE",
        "ALTER ROLE evenshare_app NOCREATEROLE",
        (
            "DATABASE_URL: the role 'evenshare_app' may make roles or databases; "
            "ALTER ROLE ... NOCREATEROLE NOCREATEDB"
        ),
    ),
    "owner of a table": (
        "ALTER TABLE billing_entry OWNER TO evenshare_app",
        "ALTER TABLE billing_entry OWNER TO evenshare_owner",
        (
            "DATABASE_URL: the role 'evenshare_app' owns 'billing_entry', so it may drop its "
            "guards; make a role that owns nothing (deploy/roles.sql)"
        ),
    ),
    "member of the owner": (
        "GRANT evenshare_owner TO evenshare_app WITH INHERIT FALSE",
        "REVOKE evenshare_owner FROM evenshare_app",
        "DATABASE_URL: the role 'evenshare_app' is a member of 'evenshare_owner'; REVOKE that",
    ),
    "maker of tables": (
        "GRANT CREATE ON SCHEMA public TO evenshare_app",
        "REVOKE CREATE ON SCHEMA public FROM evenshare_app",
        (
            "DATABASE_URL: the role 'evenshare_app' may make tables; "
            "REVOKE CREATE ON SCHEMA public FROM it and from PUBLIC"
        ),
    ),
    "other time zone": (
        "ALTER ROLE evenshare_app SET timezone TO 'Europe/Berlin'",
        "ALTER ROLE evenshare_app RESET timezone",
        (
            "DATABASE_URL: the database's time zone is Europe/Berlin, so reports by hand would "
            "tell other hours; ALTER DATABASE ... SET timezone TO 'UTC'"
        ),
    ),
}


class TestADatabase:
    @pytest.fixture
    def superuser(self, committed_db: str, services: Services) -> Iterator[psycopg.Connection]:
        with services.postgres.connect(committed_db) as connection:
            yield connection

    @pytest.mark.parametrize(("do", "undo", "line"), ROLES.values(), ids=ROLES)
    def test_with_an_app_role_that_may_too_much_is_refused(
        self, superuser: psycopg.Connection, do: str, undo: str, line: str
    ) -> None:
        assert list(database_problems()) == []
        superuser.execute(do)
        try:
            connections.close_all()
            assert list(database_problems()) == [line]
        finally:
            superuser.execute(undo)

    @pytest.mark.usefixtures("committed_db")
    def test_with_a_pool_of_local_jobs_is_refused(self) -> None:
        lab = cluster({"a": 1})
        assert list(database_problems()) == []
        lab.pool.executor = "local"
        lab.pool.save()
        assert list(database_problems()) == [
            (
                f"pool '{lab.pool.name}' has the executor local: its jobs would run as the "
                "portal's own user; choose another, in a database that never held the demo"
            )
        ]

    @pytest.mark.usefixtures("committed_db")
    def test_with_engines_of_others_wants_a_name_of_its_own(self, settings: Settings) -> None:
        lab = cluster({"a": 1})
        lab.pool.executor = "elsewhere"
        lab.pool.save()
        assert list(database_problems()) == [
            (
                "EVENSHARE_INSTALLATION is the default 'es', and a pool runs on an engine that "
                "others use too; give this installation a name of its own"
            )
        ]
        settings.INSTALLATION = "north"
        assert list(database_problems()) == []

    @pytest.mark.usefixtures("committed_db")
    def test_with_the_demos_password_is_refused(self) -> None:
        otto = User.objects.create(username="otto", password=make_password(DEMO_PASSWORD))
        User.objects.create(username="rosa", password=make_password("another one"))
        assert list(database_problems()) == [
            (
                "user 'otto' of the demo still has the demo's password, which everybody knows; "
                "use a database that never held the demo"
            )
        ]
        User.objects.filter(pk=otto.pk).update(is_active=False)
        assert list(database_problems()) == []

    @pytest.mark.usefixtures("committed_db")
    def test_that_nobody_knows_the_owner_of_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OWNER_DATABASE_URL")
        assert list(database_problems()) == [
            "OWNER_DATABASE_URL must be set: migrations run as the role that owns the tables"
        ]

    @pytest.mark.usefixtures("committed_db")
    def test_that_does_not_answer_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections.close_all()
        monkeypatch.setitem(connections.settings["default"], "HOST", "/nowhere")
        (line,) = database_problems()
        assert line.startswith("DATABASE_URL cannot be used: ")

    @pytest.mark.usefixtures("committed_db")
    def test_is_asked_before_migrations_in_production_only(
        self,
        settings: Settings,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.delenv("OWNER_DATABASE_URL")
        prepare.refuse_unsafe_database()
        assert safe_for_production(databases=["owner"]) == []
        settings.PRODUCTION = True
        assert safe_for_production() == []
        assert len(safe_for_production(databases=["owner"])) == 1
        with pytest.raises(SystemExit, match="refused: OWNER_DATABASE_URL must be set"):
            prepare.refuse_unsafe_database()


def test_nothing_found_refuses_nothing() -> None:
    refuse_unsafe([])
