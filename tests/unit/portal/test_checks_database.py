"""Test that production refuses a database with unsafe roles or contents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from django.contrib.auth.hashers import make_password
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from portal.site import prepare
from portal.site.checks import age_problems, can_migrate, database_problems, safe_for_production
from portal.site.health import known_migrations
from tenants.models import User
from tenants.services.tenants import DEMO_PASSWORD
from tests.factories import cluster
from tests.plugin import Services
from tests.tools import PATIENCE_S
from tests.unit.portal.test_checks import ROOT, SAFE

# Some servers import their application inside the event loop.
IN_A_LOOP = """
import asyncio
import importlib

async def serve():
    importlib.import_module("portal.site.asgi")

asyncio.run(serve())
"""
# Each row is (the superuser's statement, the statement that reverts it, the one expected line).
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
    "may create roles": (
        "ALTER ROLE evenshare_app CREATEROLE",
        "ALTER ROLE evenshare_app NOCREATEROLE",
        (
            "DATABASE_URL: the role 'evenshare_app' may make roles or databases; "
            "ALTER ROLE ... NOCREATEROLE NOCREATEDB"
        ),
    ),
    "owns a table": (
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
    "may create tables": (
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
            "DATABASE_URL: the database's time zone is Europe/Berlin, so manual reports would"
            " show wrong hours; ALTER DATABASE ... SET timezone TO 'UTC'"
        ),
    ),
}


class TestDatabase:
    @pytest.fixture
    def superuser(self, committed_db: str, services: Services) -> Iterator[psycopg.Connection]:
        with services.postgres.connect(committed_db) as connection:
            yield connection

    @pytest.mark.parametrize(("do", "undo", "line"), ROLES.values(), ids=ROLES)
    def test_with_overprivileged_app_role_is_refused(
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
    def test_with_local_executor_pool_is_refused(self) -> None:
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
    def test_with_shared_engine_requires_installation_name(self, settings: Settings) -> None:
        lab = cluster({"a": 1})
        lab.pool.executor = "elsewhere"
        lab.pool.save()
        assert list(database_problems()) == [
            (
                "EVENSHARE_INSTALLATION is the default 'es', and a pool runs on a shared engine;"
                " give this installation a unique name"
            )
        ]
        settings.INSTALLATION = "north"
        assert list(database_problems()) == []

    @pytest.mark.usefixtures("committed_db")
    def test_with_demo_password_is_refused(self) -> None:
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

    @pytest.mark.parametrize(
        "words",
        [["-c", IN_A_LOOP], ["-m", "portal.site.prepare", "--check"]],
        ids=["web", "check"],
    )
    def test_of_demo_is_refused_by_every_process(self, committed_db: str, words: list[str]) -> None:
        """Every process refuses the demo's database, even without the owner's credentials."""
        assert committed_db
        pool = cluster({"a": 1}).pool
        environment = {**os.environ, **SAFE, "DATABASE_URL": os.environ["DATABASE_URL"]}
        del environment["OWNER_DATABASE_URL"]

        def started() -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True,
                text=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            return done.returncode, done.stderr

        status, errors = started()
        assert (status, "refused" in errors) == (0, False), errors
        pool.executor = "local"
        pool.save()
        status, errors = started()
        assert status == 1
        assert f"refused: pool '{pool.name}' has the executor local" in errors

    @pytest.mark.usefixtures("committed_db")
    def test_without_owner_url_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OWNER_DATABASE_URL")
        assert list(database_problems()) == [
            "OWNER_DATABASE_URL must be set: migrations run as the role that owns the tables"
        ]

    @pytest.mark.usefixtures("committed_db")
    def test_unreachable_server_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections.close_all()
        monkeypatch.setitem(connections.settings["default"], "HOST", "/nowhere")
        (line,) = database_problems()
        assert line.startswith("DATABASE_URL cannot be used: ")

    @pytest.mark.usefixtures("committed_db")
    def test_is_checked_before_migrations_only_in_production(
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


class TestOlderDatabase:
    @pytest.mark.parametrize("app", ["tenants", "scheduling", "billing"])
    def test_is_refused_if_intermediate_migration_is_missing(
        self, committed_db: str, app: str
    ) -> None:
        """The checkout's newest migrations are not applied yet."""
        assert committed_db
        assert (list(age_problems()), can_migrate(databases=["owner"])) == ([], [])
        with connections["owner"].cursor() as cursor:
            cursor.execute(
                "DELETE FROM django_migrations WHERE app = %s AND name >= '001' RETURNING name",
                [app],
            )
            assert len(cursor.fetchall()) > 1
            cursor.execute("DELETE FROM django_migrations WHERE name LIKE '%_squashed_%'")
        with pytest.raises(SystemExit, match=f"lacks the migration {app}.001._.* commit 9bae3794"):
            prepare.refuse_unsafe_database()
        with pytest.raises(CommandError, match="commit 9bae3794"):
            call_command("migrate", database="owner", skip_checks=False)

    def test_with_all_replaced_migrations_is_migrated(self, committed_db: str) -> None:
        assert committed_db
        with connections["owner"].cursor() as cursor:
            cursor.execute("DELETE FROM django_migrations WHERE name LIKE '%_squashed_%'")
        prepare.refuse_unsafe_database()
        prepare.migrate()
        assert (
            known_migrations()
            <= MigrationRecorder(connections["owner"]).applied_migrations().keys()
        )
