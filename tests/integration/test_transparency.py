"""Test logs in the database: appended once, by concurrent writers, and provable to readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from pytest_django import Settings

from evenshare_core.chain import merkle
from evenshare_core.chain.checkpoints import NoteError, verify_note
from tenants import transparency
from tenants.models import LogEntry, LogNode
from tenants.transparency import ConflictingEntryError, DamagedLogError, LogKeyError
from tenants.transparency.keys import rotate
from tests.plugin import Services

LOG = "evenshare/es/rounds/p"


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, settings: Settings) -> Path:
    """A key folder for this test."""
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    return tmp_path / "log-keys"


def records(count: int, first: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


def root_of(entries: list[bytes]) -> bytes:
    nodes: dict[merkle.Place, bytes] = {}
    leaves = [merkle.leaf_hash(entry) for entry in entries]
    nodes |= merkle.completed(0, leaves, lambda _: [])
    return merkle.root(len(entries), lambda places: [nodes[place] for place in places])


def head(log: str = LOG) -> tuple[int, bytes]:
    note = transparency.checkpoint_note(log)
    checkpoint = verify_note(note, [key.vkey for key in transparency.public_keys(log)], log)
    return checkpoint.size, checkpoint.root


@pytest.mark.django_db
class TestLog:
    def test_missing_log_has_empty_head(self) -> None:
        assert transparency.size(LOG) == 0
        assert transparency.entries(LOG, 0, 10) == []
        assert head() == (0, merkle.EMPTY_ROOT)
        assert transparency.origins() == []

    def test_root_is_independent_of_batches(self) -> None:
        for first, count in ((0, 1), (1, 6), (7, 1), (8, 29)):
            assert transparency.append(LOG, records(count, first), first) == first + count
            assert head() == (first + count, root_of(records(first + count)))
        assert [entry.record for entry in transparency.entries(LOG, 5, 3)] == records(3, 5)
        assert LogNode.objects.count() == 18 + 9 + 4 + 2 + 1

    def test_proves_each_entry_and_its_growth(self) -> None:
        transparency.append(LOG, records(21), 0)
        roots = {size: root_of(records(size)) for size in range(1, 22)}
        for size in (1, 2, 13, 21):
            for index in range(size):
                path = transparency.inclusion(LOG, index, size)
                leaf = merkle.leaf_hash(b"record %d" % index)
                merkle.verify_inclusion(leaf, index, size, path, roots[size])
            for first in range(1, size + 1):
                path = transparency.consistency(LOG, first, size)
                merkle.verify_consistency(first, size, path, roots[first], roots[size])
        refused: list[Callable[[], object]] = [
            lambda: transparency.inclusion(LOG, 21, 21),
            lambda: transparency.inclusion(LOG, 1, 22),
            lambda: transparency.consistency(LOG, 3, 22),
            lambda: transparency.consistency(LOG, 3, 2),
            lambda: transparency.consistency("other", 0, 1),
        ]
        for wrong in refused:
            with pytest.raises(ValueError, match=r"entries|leaf|begin"):
                wrong()

    def test_accepts_same_records_again_and_no_others(self) -> None:
        transparency.append(LOG, records(3), 0)
        assert transparency.append(LOG, records(3), 0) == 3
        assert transparency.append(LOG, records(4, 1), 1) == 5
        for wrong in ((records(1, 9), 2), (records(1), 6), (records(1), -1)):
            with pytest.raises(ConflictingEntryError):
                transparency.append(LOG, *wrong)
        assert head() == (5, root_of(records(5)))

    def test_is_separate_from_other_logs(self) -> None:
        transparency.append(LOG, records(3), 0)
        transparency.append("evenshare/es/ledger/main", records(2, 7), 0)
        assert head() == (3, root_of(records(3)))
        assert head("evenshare/es/ledger/main") == (2, root_of(records(2, 7)))
        assert transparency.origins() == [LOG, "evenshare/es/ledger/main"]

    def test_lock_returns_size_and_last_hash(self) -> None:
        with transparency.locked_log(LOG) as locked:
            assert (locked.size, locked.last) == (0, "")
            transparency.append(LOG, records(2), 0)
        with transparency.locked_log(LOG) as locked:
            assert (locked.size, locked.last) == (2, merkle.leaf_hash(b"record 1").hex())

    def test_append_to_large_log_needs_few_queries(
        self, django_assert_num_queries: Callable[[int], object]
    ) -> None:
        transparency.append(LOG, records(127), 0)
        with django_assert_num_queries(9):  # type: ignore[attr-defined]  # a context manager
            transparency.append(LOG, records(1, 127), 127)


class TestManyWorkers:
    def test_append_each_record_once_without_gaps(self, committed_db: str) -> None:
        assert committed_db
        failed: list[Exception] = []

        def work(name: int) -> None:
            try:
                for number in range(15):
                    with transparency.locked_log(LOG) as locked:
                        record = f"{name} {number} after {locked.last}".encode()
                        transparency.append(LOG, [record], locked.size)
            except Exception as error:  # noqa: BLE001 - shown below
                failed.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=work, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        found = transparency.entries(LOG, 0, 1000)
        assert [entry.place for entry in found] == list(range(60))
        assert head() == (60, root_of([entry.record for entry in found]))
        before = ""
        for entry in found:
            assert entry.record.decode().endswith(f" after {before}")
            before = merkle.leaf_hash(entry.record).hex()

    def test_starting_at_once_create_one_key(self, committed_db: str, keys: Path) -> None:
        assert committed_db
        gate, notes = threading.Barrier(4), []

        def work() -> None:
            gate.wait()
            notes.append(transparency.checkpoint_note(LOG))
            connection.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(notes)) == 1
        assert len(list(keys.iterdir())) == 1


class TestDatabase:
    """Statements that the database refuses to every writer, including the tables' owner."""

    @pytest.mark.parametrize("using", ["default", "owner"])
    def test_rejects_wrong_hash_and_gap(self, committed_db: str, using: str) -> None:
        assert committed_db
        transparency.append(LOG, records(3), 0)
        entry = "INSERT INTO tenants_logentry (log_id, index, record, leaf_hash) VALUES "
        node = "INSERT INTO tenants_lognode (log_id, level, index, hash) VALUES "
        for statement, said in (
            (entry + "(1, 3, 'x', sha256('x'))", "log_entry_hash_of_its_record"),
            (entry + "(1, 4, 'x', sha256('\\x0078'))", "log_entry_without_gaps"),
            (entry + "(1, 2, 'x', sha256('\\x0078'))", "log_entry_without_gaps"),
            (node + "(1, 1, 1, sha256('x'))", "log_node_of_its_children"),
            (node + "(1, 2, 0, sha256('x'))", "log_node_of_its_children"),
            (node + "(1, 63, 0, sha256('x'))", "log_node"),
        ):
            with (
                pytest.raises(IntegrityError) as caught,
                transaction.atomic(using=using),
                connections[using].cursor() as cursor,
            ):
                cursor.execute(statement)
            diagnosis = caught.value.__cause__.diag  # type: ignore[union-attr]  # psycopg's
            assert said in str(diagnosis.constraint_name), statement

    def test_rejects_changes_of_log_rows(self, committed_db: str) -> None:
        assert committed_db
        transparency.append(LOG, records(3), 0)
        transparency.checkpoint_note(LOG)
        for table in ("transparencylog", "logentry", "lognode", "logkey"):
            for statement in ("UPDATE {} SET id = id", "DELETE FROM {}", "TRUNCATE {} CASCADE"):
                for using, said in (("default", "permission denied"), ("owner", "append-only")):
                    with (
                        pytest.raises(DatabaseError, match=said),
                        transaction.atomic(using=using),
                        connections[using].cursor() as cursor,
                    ):
                        cursor.execute(statement.format(f"tenants_{table}"))

    def test_reports_removed_hashes(self, committed_db: str, services: Services) -> None:
        transparency.append(LOG, records(6), 0)
        with services.postgres.connect(committed_db) as session:
            session.execute("SET session_replication_role = replica")
            session.execute("DELETE FROM tenants_lognode WHERE level = 2")
        with pytest.raises(DamagedLogError, match="hash of 4 entries from 0 on is missing"):
            transparency.checkpoint_note(LOG)
        with pytest.raises(DamagedLogError):
            transparency.append(LOG, records(2, 6), 6)
        assert LogEntry.objects.count() == 6


@pytest.mark.django_db
class TestKeys:
    def test_are_private_files_outside_of_database(self, keys: Path) -> None:
        transparency.checkpoint_note(LOG)
        (path,) = keys.iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert keys.stat().st_mode & 0o777 == 0o700
        with connection.cursor() as cursor:
            cursor.execute("SELECT encode(public, 'hex') FROM tenants_logkey")
            assert cursor.fetchall() == [(path.stem,)]
        assert path.read_text().strip() != path.stem

    def test_former_key_also_signs_for_a_while(self, keys: Path) -> None:
        transparency.append(LOG, records(2), 0)
        transparency.checkpoint_note(LOG)
        (old,) = transparency.public_keys(LOG)
        said = StringIO()
        call_command("rotate_log_key", "--overlap-days", "7", stdout=said)
        assert "also signs for 7 days" in said.getvalue()
        before, after = transparency.public_keys(LOG)
        assert (before.vkey, before.since) == (old.vkey, old.since)
        assert before.until == after.since + timedelta(days=7)
        assert after.until is None
        note = transparency.checkpoint_note(LOG)
        for vkey in (before.vkey, after.vkey):
            assert verify_note(note, [vkey], LOG).size == 2
        assert len(list(keys.iterdir())) == 2

    def test_expired_key_signs_no_more(self) -> None:
        transparency.checkpoint_note(LOG)
        (old,) = transparency.public_keys(LOG)
        rotate(overlap=timedelta(0))
        _, new = transparency.public_keys(LOG)
        note = transparency.checkpoint_note(LOG)
        assert verify_note(note, [new.vkey], LOG).size == 0
        with pytest.raises(NoteError, match="no known key"):
            verify_note(note, [old.vkey], LOG)

    def test_missing_key_is_not_replaced_silently(self, keys: Path) -> None:
        transparency.checkpoint_note(LOG)
        (path,) = keys.iterdir()
        path.rename(keys / "elsewhere")
        with pytest.raises(LogKeyError, match="restore it"):
            transparency.checkpoint_note(LOG)
        with pytest.raises(CommandError, match="restore it"):
            call_command("rotate_log_key")
        call_command("rotate_log_key", "--lost", stdout=StringIO())
        old, new = transparency.public_keys(LOG)
        assert old.until is not None
        assert verify_note(transparency.checkpoint_note(LOG), [new.vkey], LOG).size == 0

    def test_public_or_invalid_key_file_signs_nothing(self, keys: Path) -> None:
        transparency.checkpoint_note(LOG)
        (path,) = keys.iterdir()
        path.chmod(0o640)
        with pytest.raises(LogKeyError, match="chmod 600"):
            transparency.checkpoint_note(LOG)
        path.chmod(0o600)
        for text in ("ab" * 32, "ab", "no hex", "\u00e4"):
            path.write_text(text)
            with pytest.raises(LogKeyError, match=r"does not contain|cannot be read"):
                transparency.checkpoint_note(LOG)

    def test_unwritable_folder_raises_error(self, settings: Settings) -> None:
        settings.LOG_KEYS_DIR = "/proc/none/log-keys"
        with pytest.raises(LogKeyError, match="EVENSHARE_LOG_KEYS_DIR"):
            transparency.checkpoint_note(LOG)

    @pytest.mark.parametrize("days", ["-1", "367"])
    def test_overlap_is_limited_to_a_year(self, days: str) -> None:
        with pytest.raises(CommandError, match="not 0 to 366"):
            call_command("rotate_log_key", f"--overlap-days={days}")
