"""Test that rounds are sealed once and in order, despite faults of workers, messages and bytes."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from celery import current_app
from django.db import connection, connections

from evenshare_core.chain.records import RoundRecord, read_record, record_hash
from evenshare_core.disclosure.bundle import make_bundle, read_bundle
from evenshare_core.domain.values import decode, sha256_hex
from evenshare_core.policies.base import decide_round
from scheduling import tasks
from scheduling.engine.seal import retry_sealing, seal_rounds, versions
from scheduling.models import (
    PoolClock,
    PoolFence,
    Profile,
    PseudonymKey,
    Round,
    RoundBlob,
    RoundBundle,
    RoundSealing,
)
from scheduling.selectors.rounds import stored as stored_rounds
from scheduling.selectors.rounds.bundles import read_place
from scheduling.selectors.rounds.sealing import unsealed_pools
from tenants import transparency
from tests.factories import Cluster, cluster
from tests.scope import nobody

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def lab(committed_db: str) -> Cluster:
    """A pool with four unsealed rounds."""
    assert committed_db
    return played(cluster({"a": 4, "b": 4}, lease_s=20))


def played(lab: Cluster, rounds: int = 4) -> Cluster:
    lab.submit("a", 2, 1000)
    lab.submit("b", 8, 1000)
    lab.rounds(rounds, every_s=10)
    return lab


def log_of(lab: Cluster) -> str:
    return transparency.round_log(lab.pool.name)


def records(lab: Cluster) -> list[RoundRecord]:
    return [read_record(entry.record) for entry in transparency.entries(log_of(lab), 0, 100)]


def state(lab: Cluster) -> RoundSealing:
    return RoundSealing.objects.get(pool=lab.pool)


class TestSealing:
    def test_is_not_part_of_round(self, lab: Cluster) -> None:
        assert not RoundBundle.objects.exists()
        assert transparency.size(log_of(lab)) == 0

    def test_records_each_round_with_hash_of_previous(self, lab: Cluster) -> None:
        assert lab.seal() == 4
        raw = [entry.record for entry in transparency.entries(log_of(lab), 0, 100)]
        found = records(lab)
        assert [record.round for record in found] == [1, 2, 3, 4]
        assert [record.previous for record in found] == ["", *map(record_hash, raw[:-1])]
        assert {record.log for record in found} == {log_of(lab)}
        assert all(not record.damage and not record.breaks for record in found)
        place = read_place(lab.pool.pk, 3)
        assert place is not None
        assert (place.index, place.sha256, place.size) == (2, record_hash(raw[2]), 4)
        assert place.follows

    def test_commits_to_stored_bytes(self, lab: Cluster) -> None:
        lab.seal()
        bundles = {row.number: row for row in RoundBundle.objects.filter(pool=lab.pool)}
        for record in records(lab):
            data = gzip.decompress(bytes(bundles[record.round].data))
            assert record.bundle == bundles[record.round].sha256 == sha256_hex(data)
        days = RoundBlob.objects.values_list("day", "number")
        assert set(days) == {(row.day, number) for number, row in bundles.items()}

    def test_disclosed_rounds_decide_to_same_result(self, lab: Cluster) -> None:
        lab.seal()
        for row in RoundBundle.objects.filter(pool=lab.pool):
            disclosed = read_bundle(gzip.decompress(bytes(row.data)))
            assert decide_round(disclosed.snapshot) == disclosed.decision
            assert disclosed.versions == versions()
            assert disclosed.versions.keys() >= {"evenshare-core", "highspy", "python"}
            assert (disclosed.pool, disclosed.round) == (lab.pool.name, row.number)

    def test_has_digest_of_rows_of_each_tenant(self, lab: Cluster) -> None:
        lab.seal()
        for record in records(lab):
            assert len(record.own) == 2
            assert list(record.own) == sorted(set(record.own))

    def test_is_idempotent(self, lab: Cluster) -> None:
        lab.seal()
        before = transparency.entries(log_of(lab), 0, 100)
        assert lab.seal() == 0
        assert transparency.entries(log_of(lab), 0, 100) == before
        assert RoundBundle.objects.count() == 4

    def test_four_concurrent_workers_seal_each_round_once(self, lab: Cluster) -> None:
        def work(_: int) -> int:
            try:
                return sum(seal_rounds(lab.pool.pk, limit=1) for _ in range(8))
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as workers:
            sealed = sum(workers.map(work, range(4)))
        assert sealed + lab.seal() == 4
        assert [record.round for record in records(lab)] == [1, 2, 3, 4]

    def test_skips_pool_locked_by_other_worker(
        self, lab: Cluster, owner: psycopg.Connection[Any]
    ) -> None:
        RoundSealing.objects.create(pool=lab.pool)
        with owner.transaction():
            owner.execute("SELECT FROM scheduling_roundsealing FOR UPDATE")
            assert lab.seal() == 0
        assert lab.seal() == 4

    def test_begins_with_oldest_stored_round(
        self, committed_db: str, owner: psycopg.Connection[Any]
    ) -> None:
        assert committed_db
        lab = played(cluster({"a": 4, "b": 4}, lease_s=20, begin=LONG_AGO))
        owner.execute("DELETE FROM scheduling_roundblob WHERE number < 3")
        assert lab.seal() == 2
        assert [(record.round, record.previous == "") for record in records(lab)] == [
            (3, True),
            (4, False),
        ]
        assert read_place(lab.pool.pk, 2) is None
        place = read_place(lab.pool.pk, 4)
        assert place is not None
        assert place.index == 1

    def test_begins_with_next_round_if_no_bytes_are_stored(
        self, committed_db: str, owner: psycopg.Connection[Any]
    ) -> None:
        assert committed_db
        lab = played(cluster({"a": 4, "b": 4}, lease_s=20, begin=LONG_AGO))
        owner.execute("DELETE FROM scheduling_roundblob")
        assert lab.seal() == 0
        lab.submit("a", 1, 100)
        lab.round(after_s=10)
        assert lab.seal() == 1
        assert [record.round for record in records(lab)] == [5]


class TestDamagedRound:
    HARMS = {
        "snapshot": "UPDATE scheduling_roundblob SET snapshot = 'x' WHERE number = 2",
        "decision": "UPDATE scheduling_roundblob SET decision = 'x' WHERE number = 2",
        "missing": "DELETE FROM scheduling_roundblob WHERE number = 2",
        "row": "UPDATE scheduling_round SET shares = '[]' WHERE number = 2",
        "row is missing": "DELETE FROM scheduling_round WHERE number = 2",
    }

    @pytest.mark.parametrize("part", HARMS)
    def test_is_recorded_and_later_rounds_are_sealed(
        self, lab: Cluster, owner: psycopg.Connection[Any], part: str
    ) -> None:
        owner.execute(self.HARMS[part])
        assert lab.seal() == 4
        found = records(lab)
        assert [bool(record.damage) for record in found] == [False, True, False, False]
        assert part in found[1].damage
        assert (found[1].bundle, found[1].own) == ("", ())
        assert not RoundBundle.objects.filter(number=2).exists()
        assert [(row["number"], row["kind"]) for row in state(lab).findings] == [(2, "damage")]
        place = read_place(lab.pool.pk, 3)
        assert place is not None
        assert place.follows is None, "cannot be linked to it"

    def test_record_of_other_schema_quotes_no_row(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stored_rounds, "decode", lambda _, kind: decode(b'["secret"]', kind))
        assert lab.seal() == 4
        assert {record.damage for record in records(lab)} == {
            f"round {number} cannot be read: its bytes are of another schema"
            for number in (1, 2, 3, 4)
        }


class TestInternalError:
    """Errors of the portal itself.

    Unlike damage they are in no record, because records are permanent.
    """

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
        def fails(snapshot: Any, *args: Any, **kwargs: Any) -> bytes:
            if snapshot.number == 3:
                raise ZeroDivisionError("in the third")
            return make_bundle(snapshot, *args, **kwargs)

        monkeypatch.setattr("scheduling.engine.seal.make_bundle", fails)
        return monkeypatch

    def test_stops_before_round_and_continues_after_repair(
        self, lab: Cluster, broken: pytest.MonkeyPatch
    ) -> None:
        assert lab.seal() == 2
        assert state(lab).failure == "ZeroDivisionError: in the third"
        assert lab.seal() == 0
        assert transparency.size(log_of(lab)) == 2
        broken.undo()
        with nobody():
            assert retry_sealing() == 2, "as the housekeeping does"
        assert state(lab).failure == ""
        assert [record.round for record in records(lab)] == [1, 2, 3, 4]

    @pytest.mark.usefixtures("broken")
    def test_is_not_retried_every_second(self, lab: Cluster) -> None:
        assert unsealed_pools() == [lab.pool.pk]
        lab.seal()
        assert unsealed_pools() == []

    def test_inconsistent_log_is_not_extended(
        self, lab: Cluster, owner: psycopg.Connection[Any]
    ) -> None:
        seal_rounds(lab.pool.pk, limit=2)
        owner.execute("DELETE FROM tenants_logentry WHERE index = 1")
        assert lab.seal() == 0
        assert "the log has 1 records, and 2 rounds are sealed" in state(lab).failure


class TestKey:
    def test_is_unique_per_pool_and_day(self, lab: Cluster) -> None:
        other = cluster({"c": 4})
        other.submit("c", 1, 100)
        other.round()
        lab.at = lab.at.replace(day=2)
        lab.submit("a", 1, 100)
        lab.round()
        lab.seal()
        other.seal()
        keys = PseudonymKey.objects.values_list("pool_id", "day", "secret")
        assert sorted((pool, day.day) for pool, day, _ in keys) == [
            (lab.pool.pk, 1),
            (lab.pool.pk, 2),
            (other.pool.pk, 1),
        ]
        secrets = {bytes(secret) for *_, secret in keys}
        assert len(secrets) == 3
        assert {len(secret) for secret in secrets} == {32}

    def test_keeps_names_within_a_day_only(self, lab: Cluster) -> None:
        lab.at = lab.at.replace(day=2)
        lab.submit("a", 1, 100)
        lab.round()
        lab.seal()
        rows = RoundBundle.objects.filter(pool=lab.pool).order_by("number")
        names = [read_bundle(gzip.decompress(bytes(row.data))).names.tenants for row in rows]
        assert names[0] == names[3]
        assert not set(names[3]) & set(names[4])

    def test_covers_job_type_dropped_meanwhile(self, committed_db: str) -> None:
        assert committed_db
        lab = cluster({"a": 4}, policy="oef", options={"environment": "cooperative"})
        profile = lab.profile("a", "net", v100=1000)
        job = lab.submit("a", 1, 10, profile=profile, gpu_types=["v100"])
        lab.round()
        lab.pool.jobs.filter(pk=job.pk).update(profile=None)
        Profile.objects.filter(pk=profile.pk).delete()
        assert lab.seal() == 1
        assert not records(lab)[0].damage


class TestMessages:
    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
        sent: list[tuple[str, Any]] = []
        monkeypatch.setattr(
            current_app,
            "send_task",
            lambda name, args=(), **_: sent.append((name, *args)),
        )
        return sent

    def test_round_requests_sealing(self, lab: Cluster, sent: list[tuple[str, Any]]) -> None:
        lab.at = lab.at.replace(minute=5)
        PoolClock.objects.filter(pool=lab.pool).update(
            anchor_pool=lab.at, anchor_wall=connection_now(), scale=1
        )
        lab.submit("a", 1, 100)
        with nobody():
            assert tasks.run_round(lab.pool.pk) == "committed"
        assert sent == [("scheduling.seal", lab.pool.pk)]
        assert Round.objects.count() == 5

    def test_lost_message_is_sent_again_by_tick(
        self, lab: Cluster, sent: list[tuple[str, Any]]
    ) -> None:
        PoolFence.objects.update(last_checked_at=datetime(2040, 1, 1, tzinfo=UTC))
        with nobody():
            tasks.tick()
            assert ("scheduling.seal", lab.pool.pk) in sent
            sent.clear()
            assert tasks.seal(lab.pool.pk, unknown=1) == 4
            tasks.tick()
        assert not any(name == "scheduling.seal" for name, *_ in sent)


def connection_now() -> datetime:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
        return now  # type: ignore[no-any-return]  # of the driver
