"""Test that whole days of rounds move from the database to files; interruptions lose nothing."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from evenshare_core.domain.values import sha256_hex
from scheduling.engine import archive as engine
from scheduling.engine.archive import ArchivingError, archive_next, archive_rounds, drop_day
from scheduling.engine.file_scrub import scrub_files
from scheduling.engine.scrub import scrub_rounds
from scheduling.models import (
    RoundArchive,
    RoundArchiving,
    RoundBlob,
    RoundBundle,
    RoundSealing,
    RoundState,
)
from scheduling.selectors.rounds import files as round_files
from scheduling.selectors.rounds.bundles import bundle_sha256, packed_bundle, read_place
from scheduling.selectors.rounds.files import round_storage
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.selectors.rounds.states import damages_of, state_damages
from scheduling.selectors.rounds.stored import DamagedRoundError, round_bytes, unpacked
from tenants.faults import arm_faults
from tests.factories import Cluster
from tests.integration.archive_stage import (
    DAY,
    days_ago,
    files_in,
    old_lab,
    only_file,
    put_away,
    round_of,
    step_by_step,
    stored,
)


@pytest.fixture
def folder(committed_db: str, settings: Any, tmp_path: Path) -> Path:
    assert committed_db
    return files_in(settings, tmp_path)


@pytest.fixture
def lab(folder: Path) -> Cluster:
    """Return a pool with four rounds of one day, and a newest round on the next day."""
    assert not folder.exists()
    return old_lab()


def spoil(folder: Path, archive: RoundArchive, part: str) -> None:
    """Change a byte in the middle of a part in a file."""
    path = folder / archive.name
    with ZipFile(path) as file:
        one = file.getinfo(part)
        data = file.read(part)
    raw = bytearray(path.read_bytes())
    at = raw.index(data, one.header_offset) + len(data) // 2
    raw[at] ^= 0xFF
    path.write_bytes(bytes(raw))


class TestArchivedDay:
    def test_is_moved_to_file_byte_for_byte(self, lab: Cluster, folder: Path) -> None:
        before = stored(lab.pool)
        done = archive_rounds(seconds=60)
        assert (done.days, done.failures) == (2, [])
        assert not RoundBlob.objects.exists()
        assert not RoundBundle.objects.exists()
        row = only_file(lab.pool)
        assert (row.first, row.last) == (1, 4)
        data = (folder / row.name).read_bytes()
        assert (row.bytes, row.sha256) == (len(data), sha256_hex(data))
        with ZipFile(folder / row.name) as file:
            assert {one.compress_type for one in file.infolist()} == {ZIP_STORED}
            for number in range(1, 5):
                parts = (round_files.SNAPSHOT, round_files.DECISION, round_files.BUNDLE)
                assert tuple(file.read(f"{number}/{part}") for part in parts) == before[number]
        assert (folder / row.name).stat().st_mode & 0o777 == 0o600

    def test_is_readable_by_every_reader(self, lab: Cluster) -> None:
        before = stored(lab.pool)
        hashes = {number: bundle_sha256(lab.pool.pk, number) for number in before}
        put_away()
        assert not RoundBlob.objects.exists()
        for number, (snapshot, decision, bundle) in before.items():
            round_ = round_of(lab.pool, number)
            assert round_bytes(round_) == (unpacked(snapshot), unpacked(decision))
            assert packed_bundle(lab.pool.pk, number) == bundle
            assert bundle_sha256(lab.pool.pk, number) == hashes[number]
            assert damages_of(round_) == ()
            place = read_place(lab.pool.pk, number)
            assert place is not None
            assert place.is_kept
        every = find_rounds(lab.pool.name, [], every=True)
        assert [row.number for row in every] == sorted(before)
        replays = [replay_stored_round(row) for row in every]
        assert all(one.same and one.certified for one in replays)
        assert all(one.following and one.following.follows for one in replays)

    def test_is_replayed_by_command(self, lab: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        put_away()
        call_command("replay_round", "--pool", lab.pool.name, "--all")
        assert "5" in capsys.readouterr().out

    def test_keeps_state_for_next_round(self, lab: Cluster) -> None:
        put_away()
        numbers = set(RoundState.objects.values_list("number", flat=True))
        assert numbers & set(range(1, 6)) == {5}
        lab.submit("a", 1, 1000)
        round_ = lab.round(after_s=10).round
        assert round_ is not None
        assert round_.state_note == ""
        lab.seal()
        place = read_place(lab.pool.pk, 6)
        assert place is not None
        assert place.follows, "the bundle of the round before is in a file"

    def test_archiving_is_idempotent(self, lab: Cluster, folder: Path) -> None:
        put_away()
        rows = list(RoundArchive.objects.values())
        files = {path: path.read_bytes() for path in folder.rglob("*.zip")}
        done = archive_rounds(seconds=60)
        assert (done.files, done.days) == (0, 0)
        assert list(RoundArchive.objects.values()) == rows
        assert {path: path.read_bytes() for path in folder.rglob("*.zip")} == files

    def test_large_day_is_split_into_several_files(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "FILE_ROUNDS", 2)
        put_away()
        files = RoundArchive.objects.filter(day=DAY).order_by("first")
        assert [row.last - row.first < 2 for row in files] == [True] * len(files)
        assert len(files) >= 2
        assert all(damages_of(round_of(lab.pool, number)) == () for number in range(1, 6))

    def test_file_size_is_limited_in_bytes(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "FILE_BYTES", 1)
        put_away()
        assert RoundArchive.objects.filter(pool=lab.pool, day=DAY).count() >= 4

    @pytest.mark.usefixtures("lab")
    def test_current_week_stays_in_database(self) -> None:
        RoundBlob.objects.create(
            day=days_ago(0), pool_id=1, number=99, snapshot=b"1", decision=b"2"
        )
        put_away()
        assert list(RoundBlob.objects.values_list("number", flat=True)) == [99]


class TestUnarchivableDay:
    def test_waits_until_rounds_are_sealed(self, lab: Cluster) -> None:
        RoundSealing.objects.filter(pool=lab.pool).update(number=3)
        before = stored(lab.pool)
        archive_rounds(seconds=60)
        assert {1, 2, 3, 4} <= set(stored(lab.pool))
        assert stored(lab.pool).items() <= before.items()
        said = RoundArchiving.objects.get(pool=lab.pool).failure
        assert "sealed up to 3 only" in said
        assert str(DAY) in said

    def test_stays_in_database_until_archived_for_every_pool(self, lab: Cluster) -> None:
        other = old_lab()
        RoundSealing.objects.filter(pool=other.pool).update(number=0)
        archive_rounds(seconds=60)
        assert set(stored(lab.pool)) >= {1, 2, 3, 4}
        assert RoundArchive.objects.filter(pool=lab.pool, day=DAY).exists()
        assert RoundArchiving.objects.get(pool=lab.pool).failure == ""
        assert RoundArchiving.objects.get(pool=other.pool).failure
        RoundSealing.objects.filter(pool=other.pool).update(number=5)
        put_away()
        assert not RoundBlob.objects.exists()
        assert not RoundArchiving.objects.exclude(failure="").exists()

    def test_is_kept_if_storage_returns_other_bytes(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = round_files.read_file

        def bent(archive: RoundArchive) -> bytes:
            data = bytearray(real(archive))
            data[len(data) // 2] ^= 1
            return bytes(data)

        monkeypatch.setattr(round_files, "read_file", bent)
        before = stored(lab.pool)
        archive_rounds(seconds=60)
        assert stored(lab.pool) == before
        assert not RoundArchive.objects.exists()
        said = RoundArchiving.objects.get(pool=lab.pool).failure
        assert "reads back with other bytes than were written" in said
        monkeypatch.setattr(round_files, "read_file", real)
        put_away()
        assert not RoundBlob.objects.exists()

    def test_is_kept_if_storage_is_not_writable(self, lab: Cluster, folder: Path) -> None:
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("a file where the folder should be")
        before = stored(lab.pool)
        archive_rounds(seconds=60)
        assert stored(lab.pool) == before
        assert RoundArchiving.objects.get(pool=lab.pool).failure

    def test_database_refuses_to_drop_incomplete_day(self, lab: Cluster) -> None:
        before = stored(lab.pool)
        with pytest.raises(ArchivingError, match="in no complete file"):
            drop_day(DAY)
        assert archive_next(lab.pool, DAY)
        RoundArchive.objects.update(problem="is bent")
        with pytest.raises(ArchivingError, match="in no complete file"):
            drop_day(DAY)
        assert stored(lab.pool) == before
        RoundArchive.objects.update(problem="")
        assert drop_day(DAY)

    @pytest.mark.usefixtures("lab")
    def test_database_refuses_to_drop_day_of_current_week(self) -> None:
        with connection.cursor() as cursor, pytest.raises(Exception, match="last 7 days"):
            cursor.execute("SELECT evenshare_drop_archived_day(current_date - 7)")


class TestDamagedFile:
    @pytest.mark.parametrize(
        ("part", "name"),
        [("snapshot", round_files.SNAPSHOT), ("decision", round_files.DECISION)],
    )
    def test_is_named_in_damage_of_round(
        self, lab: Cluster, folder: Path, part: str, name: str
    ) -> None:
        put_away()
        row = only_file(lab.pool)
        spoil(folder, row, f"2/{name}")
        with pytest.raises(DamagedRoundError) as caught:
            round_bytes(round_of(lab.pool, 2))
        assert [damage.part for damage in caught.value.damages] == [part]
        assert row.name in str(caught.value)
        assert damages_of(round_of(lab.pool, 1)) == ()

    def test_is_named_for_bundle_and_state(self, lab: Cluster, folder: Path) -> None:
        put_away()
        row = only_file(lab.pool)
        spoil(folder, row, f"2/{round_files.BUNDLE}")
        spoil(folder, row, f"3/{round_files.SERVICE}")
        with pytest.raises(DamagedRoundError, match=row.name):
            packed_bundle(lab.pool.pk, 2)
        (damage,) = state_damages(round_of(lab.pool, 3))
        assert row.name in str(damage)

    def test_is_found_by_scrub_and_heals_when_restored(self, lab: Cluster, folder: Path) -> None:
        put_away()
        row = only_file(lab.pool)
        path = folder / row.name
        data = path.read_bytes()
        assert scrub_files() == 2
        assert not RoundArchive.objects.exclude(problem="").exists()
        path.unlink()
        round_files.forget()
        scrub_files()
        assert only_file(lab.pool).problem == f"the file {row.name} is not there"
        with pytest.raises(DamagedRoundError, match=f"the file {row.name} is not there"):
            round_bytes(round_of(lab.pool, 2))
        path.write_bytes(data)
        scrub_files()
        assert only_file(lab.pool).problem == ""
        round_bytes(round_of(lab.pool, 2))
        path.write_bytes(data[:-1] + b"?")
        scrub_files()
        assert "another one than was written" in only_file(lab.pool).problem

    @pytest.mark.usefixtures("lab")
    def test_scrub_checks_files_in_turn(self) -> None:
        put_away()
        assert scrub_files(files=1) == 1
        (first,) = RoundArchive.objects.order_by("-checked_at")[:1]
        assert scrub_files(size=1) == 1
        (second,) = RoundArchive.objects.order_by("-checked_at")[:1]
        assert first.pk != second.pk

    def test_earlier_damage_stays_recorded(
        self, lab: Cluster, owner: psycopg.Connection[Any]
    ) -> None:
        owner.execute("SET session_replication_role = replica")
        owner.execute("UPDATE scheduling_roundblob SET decision = '\\x00' WHERE number = 2")
        owner.execute("DELETE FROM scheduling_roundblob WHERE number = 3")
        put_away()
        assert not RoundBlob.objects.exists()
        (decision,) = damages_of(round_of(lab.pool, 2))
        assert "cannot be unpacked" in str(decision)
        missing = damages_of(round_of(lab.pool, 3))
        assert {damage.part for damage in missing} == {"snapshot", "decision"}
        assert all(only_file(lab.pool).name in str(damage) for damage in missing)

    @pytest.mark.usefixtures("lab")
    def test_database_scrub_ignores_archived_rounds(self) -> None:
        put_away()
        assert scrub_rounds() == 0


class TestCrash:
    @pytest.mark.parametrize(
        "point", ["archive.after_write", "archive.before_commit", "archive.before_drop"]
    )
    def test_loses_nothing_at_any_step(self, lab: Cluster, folder: Path, point: str) -> None:
        class CrashError(Exception):
            pass

        def crash(name: str) -> None:
            if name == point:
                raise CrashError

        before = stored(lab.pool)
        with arm_faults(crash), pytest.raises(CrashError):
            step_by_step()
        assert stored(lab.pool) == before, "nothing is dropped yet"
        assert list(folder.rglob("*.zip"))
        step_by_step()
        assert not RoundBlob.objects.exists()
        rows = RoundArchive.objects.all()
        assert {row.name for row in rows} == {
            str(path.relative_to(folder)) for path in folder.rglob("*.zip")
        }
        for number, (snapshot, decision, bundle) in before.items():
            assert round_bytes(round_of(lab.pool, number)) == (
                unpacked(snapshot),
                unpacked(decision),
            )
            assert packed_bundle(lab.pool.pk, number) == bundle
            assert gzip.decompress(bundle)

    @pytest.mark.usefixtures("lab")
    def test_leaves_no_partial_file(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(round_files, "sync_folder", full)
        archive_rounds(seconds=60)
        monkeypatch.undo()
        assert not RoundArchive.objects.exists()
        storage = round_storage()
        assert [str(path) for path in folder.rglob(".*")] == []
        put_away()
        assert all(storage.exists(row.name) for row in RoundArchive.objects.all())

    def test_restored_database_overwrites_unknown_files(self, lab: Cluster, folder: Path) -> None:
        name = f"{lab.pool.name}-{lab.pool.pk}/{DAY}/000000001-000000004.zip"
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"of another database")
        put_away()
        kept = only_file(lab.pool)
        assert kept.name == name
        assert sha256_hex(path.read_bytes()) == kept.sha256
