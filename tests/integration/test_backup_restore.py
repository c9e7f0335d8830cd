"""Test the restore drill: dump a live portal, restore it into an empty server, check it, continue.

The scripts of docs/operations.md run unchanged, in production mode.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections, transaction
from pytest_django import DjangoDbBlocker

from billing.checks import run_checks
from billing.ledger import post_allowance
from billing.metering import meter_pool, settle_pool
from billing.models import Book, Transfer
from deploy import migrations
from deploy.address import exports
from portal.embedded import folders
from portal.embedded.postgres import (
    APP_ROLE,
    OWNER_ROLE,
    Postgres,
    create_database,
)
from portal.embedded.valkey import Valkey
from portal.embedded.watchdog import Watchdog
from portal.site.environment import SettingError
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Job
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tests.factories import Cluster, cluster
from tests.integration import database_rights as rights
from tests.plugin import Services
from tests.tools import drop_database, eventually

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "evenshare_drill"
KEY = "b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4dGi6o-KXy"
PASSWORDS = {"owner": "owner-pass-4711", "app": "app-pass-0815"}


@dataclass
class Drill:
    """A portal between two rounds, and its backup."""

    lab: Cluster
    folder: Path
    backup: Path
    said: str
    rows: dict[str, int]
    numbered: dict[UUID, int]


def addresses(postgres: Postgres, database: str = DATABASE) -> dict[str, str]:
    """Return the scripts' variables; these servers do not check passwords."""
    found = {}
    for name, role, who in (
        ("DATABASE_URL", APP_ROLE, "app"),
        ("OWNER_DATABASE_URL", OWNER_ROLE, "owner"),
    ):
        url = postgres.url(role, database)
        found[name] = url.replace(f"{role}@", f"{role}:{PASSWORDS[who]}@")
    return found


def run(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts in production mode."""
    return subprocess.run(
        [str(ROOT / "deploy" / script), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={
            **os.environ,
            "EVENSHARE_MODE": "production",
            "SECRET_KEY": KEY,
            "ALLOWED_HOSTS": "portal.invalid",
            "BEHIND_TLS_PROXY": "1",
            "LOG_LEVEL": "WARNING",
            **environment,
        },
    )


@contextmanager
def pointed_to(blocker: DjangoDbBlocker, host: Path, database: str) -> Iterator[None]:
    """Point Django's connections of this process to a database."""
    before = {alias: dict(connections.settings[alias]) for alias in connections.settings}
    with blocker.unblock():
        connections.close_all()
        for alias in before:
            connections.settings[alias] |= {"HOST": str(host), "NAME": database}
        try:
            yield
        finally:
            connections.close_all()
            for alias, kept in before.items():
                connections.settings[alias].update(kept)


def socket_of(postgres: Postgres) -> Path:
    return Path(exports_of(postgres)["PGHOST"])


def exports_of(postgres: Postgres) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", postgres.url(APP_ROLE))
        return exports("DATABASE_URL")


def rows() -> dict[str, int]:
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        tables = [name for (name,) in cursor.fetchall()]
        counts = {}
        for table in tables:
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - of the catalogue
            counts[table] = int(cursor.fetchone()[0])
    return counts


def story() -> Cluster:
    """Play two settled hours, in which one of two tenants borrows; some leases still run."""
    lab = cluster({"a": 6, "b": 2}, nodes=2, gpus=4)
    for hours in range(4):
        lab.submit("b", 4, 4000, after_s=hours * 1200)
        lab.submit("a", 1, 3000, after_s=hours * 1800)
    lab.rounds(26, every_s=300)
    lab.submit("a", 8, 5000)
    meter(lab)
    return lab


def numbered_transfers(lab: Cluster) -> dict[UUID, int]:
    """Return the transfers whose transaction numbers an empty server has not yet reached."""
    numbers = {}
    for day in range(5):
        burn_transactions(5000)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id()::text::bigint")
            (number,) = cursor.fetchone()
            posted = post_allowance(
                book=Book.objects.get(slug=lab.pool.book),
                tenant_id=lab.tenants["a"].pk,
                amount_micro=1_000_000,
                effective_at=lab.at,
                name=f"day {day}",
            )
        numbers[posted.pk] = number
    return numbers


def burn_transactions(count: int = 0, *, before: int = 0) -> None:
    """Use `count` transaction numbers, or all numbers below `before`."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            DO $$
            DECLARE used bigint := 0;
            BEGIN
                LOOP
                    EXIT WHEN pg_current_xact_id()::text::bigint + 1 >= {int(before)}
                          AND used >= {int(count)};
                    used := used + 1;
                    COMMIT;
                END LOOP;
            END
            $$
            """
        )


def meter(lab: Cluster) -> None:
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)


def violations() -> list[str]:
    return [violation for result in run_checks() for violation in result.violations]


@pytest.fixture(scope="module")
def drill(
    template_database: str,
    services: Services,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Drill]:
    folder = tmp_path_factory.mktemp("backups")
    with services.postgres.connect() as superuser:
        create_database(superuser, DATABASE, template=template_database)
    with pointed_to(django_db_blocker, socket_of(services.postgres), DATABASE):
        lab = story()
        assert violations() == []
        assert Transfer.objects.exists()
        numbered = numbered_transfers(lab)
        counted = rows()
    done = run("backup.sh", str(folder), **addresses(services.postgres))
    assert done.returncode == 0, done.stderr
    (backup,) = folder.iterdir()
    yield Drill(lab, folder, backup, done.stdout, counted, numbered)
    with services.postgres.connect() as superuser:
        drop_database(superuser, DATABASE)


@pytest.fixture(scope="module")
def empty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Yield a second PostgreSQL that has neither our roles nor our database."""
    folder = tmp_path_factory.mktemp("second")
    (folder / "run").mkdir(mode=0o700)
    place = folders.Folders(folder, folder / "run")
    second = Services(folder, Postgres(place, durable=False), Valkey(place), Watchdog())
    second.postgres.prepare()
    second._launch(
        "postgres",
        second.postgres.command,
        signal.SIGQUIT,
        **second.postgres.identity.popen,
    )
    eventually(second.postgres.ready)
    yield second.postgres
    second.stop()


class TestBackup:
    def test_contains_dump_manifest_and_checksums(self, drill: Drill) -> None:
        assert {path.name for path in drill.backup.iterdir()} == {
            "database.dump",
            "manifest.json",
            "SHA256SUMS",
        }
        manifest = json.loads((drill.backup / "manifest.json").read_text())
        assert manifest["rows"] == drill.rows
        assert manifest["version"]
        assert "scheduling.0001_initial" in manifest["migrations"]

    def test_is_readable_by_owner_only(self, drill: Drill) -> None:
        for path in (drill.backup, *drill.backup.iterdir()):
            assert path.stat().st_mode & 0o077 == 0

    def test_failed_backup_leaves_no_files(self, services: Services, tmp_path: Path) -> None:
        gone = addresses(services.postgres, "no_such_database")
        done = run("backup.sh", str(tmp_path), **gone)
        assert done.returncode != 0
        assert "no_such_database" in done.stderr
        assert list(tmp_path.iterdir()) == []

    def test_deletes_oldest_backups_only(
        self, drill: Drill, services: Services, tmp_path: Path
    ) -> None:
        for name in ("evenshare-20200101T000000Z", "evenshare-20210101T000000Z", "notes"):
            (tmp_path / name).mkdir()
        done = run("backup.sh", str(tmp_path), BACKUP_KEEP="2", **addresses(services.postgres))
        assert done.returncode == 0, done.stderr
        left = sorted(path.name for path in tmp_path.iterdir())
        assert (left[0], left[2], len(left)) == ("evenshare-20210101T000000Z", "notes", 3)


class TestRestoreDrill:
    """The tests run one after another on one restored server."""

    def test_restores_into_empty_server_and_verifies(
        self, drill: Drill, empty_server: Postgres
    ) -> None:
        done = restore(drill.backup, empty_server, REPLAY="all")
        assert done.returncode == 0, done.stdout + done.stderr
        count = drill.rows["scheduling_round"]
        for told in (
            "every table has the rows that the manifest says",
            "migrations are applied",
            "the books add up",
            f"{count} of {count} rounds gave the same bytes",
            "(virtual): ",
            "done in",
        ):
            assert told in done.stdout
        assert "BROKEN" not in done.stdout

    def test_creates_roles_with_passwords(self, empty_server: Postgres) -> None:
        with empty_server.connect() as superuser:
            stored: dict[str, bool] = dict(
                superuser.execute(
                    "SELECT rolname, rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid"
                    " WHERE rolname LIKE 'evenshare%' AND NOT rolsuper AND NOT rolbypassrls"
                ).fetchall()
            )
        assert stored == {OWNER_ROLE: True, APP_ROLE: True}

    def test_new_jobs_skip_ids_known_to_engines(
        self, drill: Drill, empty_server: Postgres, django_db_blocker: DjangoDbBlocker
    ) -> None:
        with pointed_to(django_db_blocker, socket_of(empty_server), DATABASE):
            last = Job.objects.latest("id").pk
            with transaction.atomic():
                assert drill.lab.submit("a", 1, 10).pk > last + 1_000_000
                transaction.set_rollback(True)

    def test_refuses_entries_for_old_transfer_after_xid_reuse(
        self, drill: Drill, empty_server: Postgres, django_db_blocker: DjangoDbBlocker
    ) -> None:
        """A new server counts transaction numbers from the start."""
        met = []
        with pointed_to(django_db_blocker, socket_of(empty_server), DATABASE):
            before = rows()
            for transfer, number in drill.numbered.items():
                burn_transactions(before=number)
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute("SELECT pg_current_xact_id()::text::bigint")
                    met += [number] if cursor.fetchone() == (number,) else []
                    with pytest.raises(DatabaseError, match="transaction that created"):
                        cursor.execute(
                            "INSERT INTO billing_entry (transfer_id, account_id, amount)"
                            " SELECT transfer_id, account_id, amount FROM billing_entry"
                            " WHERE transfer_id = %s",
                            [transfer],
                        )
                    transaction.set_rollback(True)
            assert rows() == before
        assert met, "no number came a second time: burn more before the backup"

    def test_keeps_rights_of_all_roles(
        self, drill: Drill, empty_server: Postgres, django_db_blocker: DjangoDbBlocker
    ) -> None:
        with pointed_to(django_db_blocker, socket_of(empty_server), DATABASE):
            assert rights.wrong_rights() == []
            assert rights.unguarded_tables() == []

    def test_rounds_and_billing_continue_after_restore(
        self, drill: Drill, empty_server: Postgres, django_db_blocker: DjangoDbBlocker
    ) -> None:
        with pointed_to(django_db_blocker, socket_of(empty_server), DATABASE):
            before = rows()
            assert before == drill.rows
            stored = find_rounds(drill.lab.pool.name, [], every=True)
            assert [one.number for one in stored if not replay_stored_round(one).same] == []
            outcomes = [drill.lab.round(after_s=300).outcome for _ in range(13)]
            meter(drill.lab)
            after = rows()
            assert set(outcomes) == {RoundOutcome.COMMITTED}
            assert violations() == []
            assert after["billing_transfer"] > before["billing_transfer"]
            assert rights.wrong_rights() == []

    def test_refuses_to_overwrite_restored_database(
        self, drill: Drill, empty_server: Postgres
    ) -> None:
        done = restore(drill.backup, empty_server)
        assert done.returncode == 1
        assert re.search(rf"refused: the database {DATABASE} has \d+ tables", done.stderr)


def restore(backup: Path, server: Postgres, **environment: str) -> subprocess.CompletedProcess[str]:
    admin = server.url("postgres", "postgres")
    return run(
        "restore.sh",
        str(backup),
        ADMIN_DATABASE_URL=admin,
        **addresses(server),
        **environment,
    )


class TestRestoreRefusal:
    def test_rejects_dump_with_changed_byte(
        self, drill: Drill, empty_server: Postgres, tmp_path: Path
    ) -> None:
        broken = shutil.copytree(drill.backup, tmp_path / "broken")
        dump = bytearray((broken / "database.dump").read_bytes())
        dump[len(dump) // 2] ^= 1
        (broken / "database.dump").write_bytes(dump)
        done = restore(broken, empty_server)
        assert done.returncode == 1
        assert "is not what was backed up" in done.stderr

    def test_rejects_backup_of_newer_code(
        self, drill: Drill, empty_server: Postgres, tmp_path: Path
    ) -> None:
        newer = shutil.copytree(drill.backup, tmp_path / "newer")
        manifest = json.loads((newer / "manifest.json").read_text())
        manifest["migrations"].append("billing.9999_from_the_future")
        (newer / "manifest.json").write_text(json.dumps(manifest))
        sums = subprocess.run(
            ["sha256sum", "database.dump", "manifest.json"],
            cwd=newer,
            check=True,
            capture_output=True,
        )
        (newer / "SHA256SUMS").write_bytes(sums.stdout)
        assert migrations.unknown(newer / "manifest.json") == ["billing.9999_from_the_future"]
        done = restore(newer, empty_server)
        assert done.returncode == 1
        assert "this code is older than the backup" in done.stderr

    def test_rejects_non_numeric_replay_count(self, drill: Drill, empty_server: Postgres) -> None:
        done = restore(drill.backup, empty_server, REPLAY="some")
        assert "REPLAY must be a number" in done.stderr


class TestDatabaseAddress:
    def test_is_exported_in_environment_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(
            "OWNER_DATABASE_URL", "postgres://me:a%27b%20c@db.example:5433/p?sslmode=verify-full"
        )
        assert exports("OWNER_DATABASE_URL") == {
            "PGHOST": "db.example",
            "PGPORT": "5433",
            "PGUSER": "me",
            "PGPASSWORD": "a'b c",
            "PGSSLMODE": "verify-full",
            "PGDATABASE": "p",
        }

    def test_rejects_unsupported_option(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OWNER_DATABASE_URL", "postgres://me@db/p?target_session_attrs=any")
        with pytest.raises(SettingError, match="target_session_attrs"):
            exports("OWNER_DATABASE_URL")
