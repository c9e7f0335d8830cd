"""Test that history is append-only: rights on each table, and checks that find changes.

The tables are read from the database, so new tables and future partitions are included.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from io import StringIO
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction

from billing.checks import seals
from billing.metering import log_transfers
from billing.models import APPEND_ONLY as OF_BILLING
from billing.models import Book
from scheduling.engine.archive import archive_rounds
from scheduling.models import Job, JobAnswer, PseudonymKey, RoundBlob, RoundBundle, Verification
from tenants import transparency
from tenants.audit import Actor, write_audit
from tenants.models import User
from tests.integration import database_rights as rights
from tests.integration.test_backup_restore import story
from tests.integration.test_guards import running_cluster
from tests.plugin import Services
from tests.shapeless import drop_shapes

TODAY = date(2030, 1, 1)


def make_day(day: date) -> None:
    """Create the partitions that a round of that day and its sealing would create."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT evenshare_make_blob_day(%s)", [day])
        cursor.execute("SELECT evenshare_make_bundle_day(%s)", [day])


class TestApplicationRole:
    """Rights on every table and partition, including future ones."""

    def test_may_only_append_to_history_and_not_access_partitions(self, committed_db: str) -> None:
        assert committed_db
        assert rights.wrong_rights() == []
        running_cluster()
        for days in (-400, -20, 1, 400):
            make_day(TODAY + timedelta(days=days))
        archive_rounds()
        assert len(rights.partitions()) >= 8
        assert rights.wrong_rights() == []
        assert rights.unguarded_tables() == []
        assert set(OF_BILLING) == {table for table in rights.SEALED if "billing" in table}

    def test_partitions_reject_changes_by_app_and_owner(self, committed_db: str) -> None:
        assert committed_db
        running_cluster()
        make_day(TODAY)
        RoundBlob.objects.create(day=TODAY, pool_id=1, number=99, snapshot=b"1", decision=b"2")
        kept = sorted(RoundBlob.objects.values_list("day", "number", "snapshot"))
        RoundBundle.objects.create(day=TODAY, pool_id=1, number=99, sha256="", data=b"3")
        for part in (*rights.PARTITIONED, *rights.partitions()):
            for statement in ("UPDATE {} SET number = 7", "DELETE FROM {}", "TRUNCATE {}"):
                said = refused(statement.format(part), "default")
                assert "permission denied" in said, (part, statement)
                if said_to_owner := refused(statement.format(part), "owner", may_pass=True):
                    assert "append-only" in said_to_owner, (part, statement)
            if part not in rights.PARTITIONED:
                assert "permission denied" in refused(f"SELECT FROM {part}", "default")
        assert sorted(RoundBlob.objects.values_list("day", "number", "snapshot")) == kept
        assert list(RoundBundle.objects.values_list("number", "data")) == [(99, b"3")]


def refused(statement: str, using: str, *, may_pass: bool = False) -> str:
    """Return the database's error, or "" if `may_pass` is set and the statement changes no row."""
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as error:
        return str(error)
    assert may_pass, statement
    return ""


class Column(NamedTuple):
    """A column of a sealed table."""

    table: str
    name: str
    type: str


# For each type, an SQL expression whose value differs from that of the column {}.
OTHER = {
    "boolean": "NOT {}",
    "bigint": "coalesce({}, 0) + 1000003",
    "integer": "coalesce({}, 0) + 1003",
    "smallint": "coalesce({}, 0) + 3",
    "numeric(20,6)": "coalesce({}, 0) + 0.000001",
    "numeric(12,3)": "coalesce({}, 0) + 0.001",
    "numeric(6,3)": "coalesce({}, 0) + 0.001",
    "timestamp with time zone": "coalesce({}, '2030-01-01Z') + interval '1 microsecond'",
    "jsonb": "jsonb_build_object('was', {})",
    "uuid": "gen_random_uuid()",
    "date": "coalesce({}, '2030-01-01') + 1",
    "bytea": "set_byte({0}, 0, get_byte({0}, 0) # 1)",
}
TEXT = "left({0}, -1) || CASE right({0}, 1) WHEN 'x' THEN 'y' ELSE 'x' END"
# Columns without a seal, with the reason.
NOT_COVERED: dict[Column, str] = {}


class History:
    """A database with rows in every sealed table, and a session without triggers."""

    def __init__(self, database: str, services: Services) -> None:
        lab = story()
        job = Job.objects.order_by("pk")[0]
        JobAnswer.objects.create(
            job=job, tenant_id=job.tenant_id, round=1, at=lab.at, state="missed", reward_micro=0,
            gpus=0, one_node=True, leases=[], blocked=[],
        )  # fmt: skip
        PseudonymKey.objects.create(pool=lab.pool, day=TODAY, secret=bytes(32))
        user = User.objects.create(username="otto")
        Verification.objects.create(
            uid=UUID(int=1), tenant_id=job.tenant_id, pool=lab.pool, user=user, kind="rounds",
            size=1, root="0" * 64, first=1, last=1, checked=1, findings=0, client="c",
        )  # fmt: skip
        with transaction.atomic():
            write_audit(Actor(user, "r-1"), "node.drained", "node n1", reason="fan")
        log_transfers(Book.objects.get(slug=lab.pool.book))
        transparency.append(transparency.round_log("p"), [b"one", b"two"], 0)
        transparency.checkpoint_note(transparency.round_log("p"))
        self.session: psycopg.Connection[Any] = services.postgres.connect(database)
        self.session.execute("SET session_replication_role = replica")
        # The constraints are dropped, because columns are changed one by one.
        for table, constraint in (
            ("billing_postedprice", "price_surcharge_whole_or_none"),
            ("billing_usageline", "usage_borne_past_its_charge"),
            ("billing_loggedtransfer", "logged_transfer_salt_of_32_bytes"),
            ("tenants_logentry", "log_entry_hash_of_its_record"),
            ("tenants_logkey", "log_key_of_32_bytes"),
            ("scheduling_verification", "verification_of_rounds_or_a_statement"),
        ):
            self.execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
        drop_shapes(self.session)

    def columns(self) -> list[Column]:
        found = self.session.execute(
            "SELECT attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod)"
            " FROM pg_attribute WHERE attrelid = ANY(%s::regclass[]) AND attnum > 0"
            " AND NOT attisdropped ORDER BY 1, attnum",
            [list(rights.SEALED)],
        )
        return [Column(*row) for row in found.fetchall()]

    def change(self, column: Column) -> None:
        """Change one value of a row, and remember the table before the change."""
        table, other = column.table, OTHER.get(column.type, TEXT).format(column.name)
        self.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {table}")  # noqa: S608 - the same
        changed = self.execute(
            f"UPDATE {table} SET {column.name} = {other}"  # noqa: S608 - of the catalogue
            f" WHERE ctid = (SELECT max(ctid) FROM {table})"
            f" RETURNING {column.name} IS DISTINCT FROM (SELECT {column.name} FROM kept"
            f" WHERE kept.seal = {table}.seal)"
        )
        assert changed.fetchall() == [(True,)] or column.name == "seal", column

    def put_back(self, table: str) -> None:
        """Undo the last change of the table."""
        self.execute(f"DELETE FROM {table}")  # noqa: S608 - of the catalogue
        self.execute(f"INSERT INTO {table} SELECT * FROM kept")  # noqa: S608 - the same
        self.execute("DROP TABLE kept")

    def execute(self, statement: str) -> psycopg.Cursor[Any]:
        """Run SQL that was composed from names."""
        return self.session.execute(statement)


@pytest.fixture
def history(committed_db: str, services: Services) -> Iterator[History]:
    there = History(committed_db, services)
    yield there
    there.session.close()


class TestOwnerChange:
    """An owner who disables the guards leaves a row that differs from its seal."""

    def test_is_detected_in_every_column(self, history: History) -> None:
        assert check_seals() == []
        assert set(seals.SEALED) == set(rights.SEALED)
        columns = history.columns()
        assert len({column.table for column in columns}) == len(rights.SEALED)
        for column in columns:
            history.change(column)
            found = check_seals()
            history.put_back(column.table)
            if column not in NOT_COVERED:
                assert len(found) == 1, column
                assert column.table in found[0], column
        assert check_seals() == []

    def test_is_detected_in_columns_added_later(self, history: History) -> None:
        """The migration fills old rows' new column and seals them again, in one transaction."""
        for table in rights.SEALED:
            with transaction.atomic(using="owner"), connections["owner"].cursor() as cursor:
                cursor.execute(f"ALTER TABLE {table} ADD COLUMN later int")
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
                cursor.execute(f"UPDATE {table} SET later = 7")  # noqa: S608 - of a constant
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
                cursor.execute("SELECT evenshare_seal_table(%s::regclass)", [table])
            assert check_seals() == []
            history.change(Column(table, "later", "integer"))
            assert len(check_seals()) == 1
            history.put_back(table)
        assert rights.unguarded_tables() == []

    def test_makes_check_exit_with_1_and_name_row(self, history: History) -> None:
        history.session.execute("UPDATE tenants_auditrecord SET reason = 'none'")
        said = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("check_ledger", stdout=said)
        assert ended.value.code == 1
        assert "BROKEN rows_as_sealed" in said.getvalue()
        assert "tenants_auditrecord" in said.getvalue()


def check_seals() -> list[str]:
    return seals.rows_as_sealed().violations
