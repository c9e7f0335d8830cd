"""Test the application's raw SQL that PostgreSQL refuses on scheduling tables."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, connections, transaction

from scheduling.engine.archive import ArchivingError, drop_day
from scheduling.models import Job, Lease, LeaseSlot, RoundArchive, RoundBlob, RoundBundle
from tenants.models import Quota
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

APPEND_ONLY = ("scheduling_leaseevent", "scheduling_leaseterm", "scheduling_round")


def running_cluster() -> Cluster:
    lab = cluster({"a": 4, "b": 4}, lease_s=20, policy="ltgf")
    lab.submit("a", 2, 100)
    lab.submit("b", 2, 100)
    lab.rounds(3, every_s=10)
    return lab


def refused(statement: str, using: str = "default") -> str:
    with (
        pytest.raises(DatabaseError) as caught,
        transaction.atomic(using=using),
        connections[using].cursor() as cursor,
    ):
        cursor.execute(statement)
    return str(caught.value)


class TestAppendOnlyTables:
    @pytest.mark.parametrize("table", APPEND_ONLY)
    @pytest.mark.parametrize(
        "statement", ["UPDATE {} SET id = id", "DELETE FROM {}", "TRUNCATE {}"]
    )
    def test_reject_changes_by_app(self, table: str, statement: str) -> None:
        running_cluster()
        assert "permission denied" in refused(statement.format(table))

    @pytest.mark.parametrize("table", APPEND_ONLY)
    @pytest.mark.parametrize(
        "statement", ["UPDATE {} SET id = id", "DELETE FROM {}", "TRUNCATE {} CASCADE"]
    )
    def test_reject_changes_by_owner(self, table: str, statement: str) -> None:
        running_cluster()
        assert "append-only" in refused(statement.format(table), using="owner")

    def test_round_bytes_can_only_be_dropped_by_archived_day(self) -> None:
        lab = running_cluster()
        today = RoundBlob.objects.count()
        old = date.today() - timedelta(days=30)  # noqa: DTZ011 - a day is all that is wanted
        with connection.cursor() as cursor:
            cursor.execute("SELECT evenshare_make_blob_day(%s)", [old])
            cursor.execute("SELECT evenshare_make_bundle_day(%s)", [old])
        here = {"day": old, "pool_id": lab.pool.pk, "number": 0}
        RoundBlob.objects.create(**here, snapshot=b"", decision=b"")
        RoundBundle.objects.create(**here, sha256="", data=b"")
        assert "permission denied" in refused("DELETE FROM scheduling_roundblob")
        assert "permission denied" in refused("DELETE FROM scheduling_roundbundle")
        with pytest.raises(ArchivingError, match="in no complete file"):
            drop_day(old)
        RoundArchive.objects.create(
            pool=lab.pool, day=old, name="n", first=0, last=0, members=3, bytes=1, sha256="",
            archived_at=BEGIN, checked_at=BEGIN,
        )  # fmt: skip
        assert drop_day(old), "a day of both is one day"
        assert RoundBlob.objects.count() == today
        assert RoundBundle.objects.count() == 0

    @pytest.mark.parametrize(
        "change",
        [
            *("SET sha256 = 'x'", "SET last = 9", "SET dropped_at = NULL"),
            "SET dropped_at = now() + interval '1 day'",
        ],
    )
    def test_archive_rows_reject_changes_of_content_and_drop_time(self, change: str) -> None:
        lab = running_cluster()
        RoundArchive.objects.create(
            pool=lab.pool, day=BEGIN, name="n", first=0, last=0, members=3, bytes=1, sha256="",
            archived_at=BEGIN, checked_at=BEGIN, dropped_at=BEGIN,
        )  # fmt: skip
        update = f"UPDATE scheduling_roundarchive {change}"
        if "dropped_at" not in change:
            assert "permission denied" in refused(update)
        assert "append-only" in refused(update, using="owner")
        assert "append-only" in refused("DELETE FROM scheduling_roundarchive", using="owner")
        assert "append-only" in refused("TRUNCATE scheduling_roundarchive CASCADE", using="owner")


class TestSlots:
    def test_are_never_held_twice(self) -> None:
        running_cluster()
        held, other = Lease.objects.order_by("id")[:2]
        slot = held.slots.first()
        assert slot
        with pytest.raises(IntegrityError, match="slot_held_once"):
            LeaseSlot.objects.create(
                lease=other, node_id=slot.node_id, slot=slot.slot, holding=True
            )

    def test_job_has_one_held_lease_at_a_time(self) -> None:
        running_cluster()
        lease = Lease.objects.order_by("id")[0]
        lease.pk, lease.number = None, 99
        with pytest.raises(IntegrityError, match="lease_one_held_per_job"):
            lease.save(force_insert=True)


class TestConstraints:
    def test_job_needs_at_least_one_gpu(self) -> None:
        lab = cluster({"a": 4})
        with pytest.raises(IntegrityError, match="job_gpus_at_least_1"):
            Job.objects.create(
                pool=lab.pool,
                tenant=lab.tenants["a"],
                name="x",
                submitted_at=BEGIN,
                gpus=0,
            )

    def test_quota_periods_do_not_overlap(self) -> None:
        lab = cluster({"a": 4})
        with pytest.raises(IntegrityError, match="quota_periods_do_not_overlap"):
            Quota.objects.create(
                tenant=lab.tenants["a"],
                pool=lab.pool,
                gpu_type=lab.gpu_type,
                gpus=1,
                valid_from=BEGIN + timedelta(days=1),
            )

    def test_own_plus_borrowed_equals_gpus_of_lease(self) -> None:
        running_cluster()
        with pytest.raises(IntegrityError, match="lease_own_plus_borrowed"):
            Lease.objects.update(borrowed=7)
