"""Test that changes of a stored log by the tables' owner are found, with the log and the entry."""

# ruff: noqa: S608 - statements are made of the constants of this file

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from pytest_django import Settings

from billing.checks import run_checks
from evenshare_core.chain.records import SCHEMA, RoundRecord, record_bytes, record_hash
from portal.site.health import State, is_ready, readiness
from scheduling.tasks import housekeeping
from tenants import transparency
from tenants.models import LogScrub
from tenants.transparency.scrub import faulty_logs, scrub_logs
from tests.plugin import Services

LOG = "evenshare/es/rounds/p"
OTHER = "evenshare/es/rounds/q"
A, SIZE = "a" * 64, 21

Session = psycopg.Connection[Any]


def write_log(log: str, count: int, *, bundle: str = A) -> None:
    with transparency.locked_log(log) as locked:
        previous = locked.last
        for place in range(locked.size, count):
            data = record_bytes(RoundRecord(SCHEMA, log, place + 5, place, previous, bundle, (A,)))
            transparency.append(log, [data], place)
            previous = record_hash(data)


@pytest.fixture
def session(
    committed_db: str, services: Services, tmp_path: Path, settings: Settings
) -> Iterator[Session]:
    """Yield a session of the tables' owner, with triggers disabled."""
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    write_log(LOG, SIZE)
    write_log(OTHER, 3)
    with services.postgres.connect(committed_db) as session:
        session.execute("SET session_replication_role = replica")
        session.execute("ALTER TABLE tenants_logentry DROP CONSTRAINT log_entry_hash_of_its_record")
        yield session


def faults() -> set[tuple[str, int, str]]:
    """Check all logs, and return all faults."""
    LogScrub.objects.update(place=0)
    scrub_logs()
    return {
        (scrub.log.origin, fault["place"], fault["text"])
        for scrub in LogScrub.objects.select_related("log")
        for fault in scrub.faults
    }


def ready() -> tuple[State, str]:
    (check,) = [check for check in readiness() if check.name == "logs"]
    return check.state, check.detail


class Bent(NamedTuple):
    """A change of a log, and some of the faults reported, by entry."""

    statement: str
    shown: set[tuple[int, str]]


ALTERED = record_bytes(RoundRecord(SCHEMA, LOG, 9, 4, A, A, ()))
AT_4 = "WHERE log_id = 1 AND index = 4"
SET_RECORD = f"UPDATE tenants_logentry SET record = '\\x{ALTERED.hex()}'"
SET_HASH = f"leaf_hash = '\\x{hashlib.sha256(bytes(1) + ALTERED).hexdigest()}'"
NOT_NAMED = "it does not name the previous record"
DONE = {
    "an altered record": Bent(
        f"{SET_RECORD} {AT_4}",
        {(4, "its leaf hash is not that of its record"), (4, NOT_NAMED), (5, NOT_NAMED)},
    ),
    "an altered record with its hash": Bent(
        f"{SET_RECORD}, {SET_HASH} {AT_4}",
        {(5, "the hash of 2 entries from 4 does not follow from its halves"), (5, NOT_NAMED)},
    ),
    "bytes that are no record": Bent(
        f"UPDATE tenants_logentry SET record = 'x' {AT_4}",
        {(4, "its leaf hash is not that of its record"), (5, NOT_NAMED)},
    ),
    "an entry that was taken out": Bent(
        f"DELETE FROM tenants_logentry {AT_4}",
        {
            (4, "the entry is missing"),
            (5, "the hash of 2 entries from 4 does not follow from its halves"),
        },
    ),
    "a node's hash": Bent(
        "UPDATE tenants_lognode SET hash = sha256('x')"
        " WHERE log_id = 1 AND level = 2 AND index = 1",
        {
            (7, "the hash of 4 entries from 4 does not follow from its halves"),
            (7, "the hash of 8 entries from 0 does not follow from its halves"),
        },
    ),
    "a node that was taken out": Bent(
        "DELETE FROM tenants_lognode WHERE log_id = 1 AND level = 4",
        {(15, "the hash of 16 entries from 0 is missing")},
    ),
    "an entry of another log": Bent(
        "UPDATE tenants_logentry e SET record = o.record, leaf_hash = o.leaf_hash"
        " FROM tenants_logentry o WHERE e.log_id = 1 AND e.index = 1"
        " AND o.log_id = 2 AND o.index = 1",
        {(1, f"it is a record of {OTHER}")},
    ),
    "two records that changed places": Bent(
        "UPDATE tenants_logentry e SET record = o.record, leaf_hash = o.leaf_hash"
        " FROM tenants_logentry o WHERE e.log_id = 1 AND o.log_id = 1"
        " AND (e.index, o.index) IN ((2, 3), (3, 2))",
        {
            (2, "round 8 follows round 6"),
            (3, "round 7 follows round 8"),
            (4, "round 9 follows round 7"),
        },
    ),
    "the last entries, with no care for the hashes": Bent(
        "DELETE FROM tenants_logentry WHERE log_id = 1 AND index >= 18",
        {(19, "a hash covers it, but the log ends at 18")},
    ),
}


class TestSoundLog:
    def test_has_no_faults_for_any_scan_size(self, session: Session) -> None:
        for limit in (1, 2, 3, 7, SIZE, 100):
            LogScrub.objects.update(place=0)
            for _ in range(SIZE // limit + 2):
                assert scrub_logs(limit=limit) == 0
        assert ready() == (State.OK, "")

    def test_is_scanned_in_parts_and_again_from_start(self, session: Session) -> None:
        places = []
        for _ in range(4):
            scrub_logs(limit=10)
            places.append(LogScrub.objects.get(log__origin=LOG).place)
        assert places == [10, 20, SIZE, 10]

    def test_is_scanned_by_housekeeping(self, session: Session) -> None:
        housekeeping()
        assert LogScrub.objects.filter(place=SIZE).exists()


class TestAlteredLog:
    @pytest.mark.parametrize("what", DONE)
    def test_is_named_with_its_entry(self, session: Session, what: str) -> None:
        assert faults() == set()
        session.execute(DONE[what].statement)
        seen = {(place, text) for log, place, text in faults() if log == LOG}
        assert DONE[what].shown <= seen
        assert {log for log, _, _ in faults()} == {LOG}
        state, detail = ready()
        assert state is State.FAILING
        place, text = min(seen)
        assert f"{LOG}, entry {place}: {text}" in detail
        assert not is_ready(readiness())
        broken = {check.name: check.violations for check in run_checks() if check.violations}
        assert any(f"{LOG}, entry " in one for one in broken["logs_are_sound"])

    def test_consistent_forgery_differs_from_remembered_root(self, session: Session) -> None:
        """A shorter or different log may be consistent, but its root is not the remembered one."""
        assert faults() == set()
        session.execute("DELETE FROM tenants_logentry WHERE log_id = 1 AND index >= 15")
        session.execute(
            "DELETE FROM tenants_lognode WHERE log_id = 1 AND (index + 1) << level > 15"
        )
        for _ in range(2):
            assert faults() == {(LOG, 15, "the log ends here; it had 21 entries")}
        session.execute("DELETE FROM tenants_logentry WHERE log_id = 1")
        session.execute("DELETE FROM tenants_lognode WHERE log_id = 1")
        write_log(LOG, SIZE + 1, bundle="b" * 64)
        for _ in range(2):
            assert faults() == {(LOG, 20, "the first 21 entries have a different root than before")}
        (faulty,) = faulty_logs()
        assert (faulty.log.origin, [one["place"] for one in faulty.faults]) == (LOG, [20])

    def test_is_sound_again_after_repair(self, session: Session) -> None:
        kept = session.execute(f"SELECT record, leaf_hash FROM tenants_logentry {AT_4}").fetchone()
        session.execute(DONE["an altered record with its hash"].statement)
        assert faults()
        session.execute(f"UPDATE tenants_logentry SET (record, leaf_hash) = (%s, %s) {AT_4}", kept)
        assert faults() == set()
        assert ready() == (State.OK, "")

    def test_non_consecutive_rounds_are_named(self, session: Session) -> None:
        with transparency.locked_log(OTHER) as locked:
            record = RoundRecord(SCHEMA, OTHER, 9, 9, locked.last, A, ())
            transparency.append(OTHER, [record_bytes(record)], locked.size)
        assert faults() == {(OTHER, 3, "round 9 follows round 7")}


@pytest.mark.usefixtures("session")
def test_missing_key_is_a_warning(tmp_path: Path) -> None:
    transparency.checkpoint_note(LOG)
    for path in (tmp_path / "log-keys").iterdir():
        path.unlink()
    state, detail = ready()
    assert state is State.WARNING
    assert "rotate_log_key --lost" in detail
