"""Test that round files are kept for a set time, longer while cited, and proofs for ever."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.metering import meter_pool, settle_pool
from billing.models import MeterCursor
from billing.selectors import citations
from billing.selectors.citations import cited_from, open_since
from billing.tasks import drop_files as drop_files_task
from scheduling.engine import retention
from scheduling.engine.clock import wall_now
from scheduling.engine.retention import drop_files
from scheduling.models import Pool, Round, RoundArchive
from scheduling.selectors.rounds.bundles import bundle_sha256, packed_bundle, read_place
from scheduling.selectors.rounds.replay import find_rounds
from scheduling.selectors.rounds.stored import ReplayError, round_bytes
from scheduling.services.pool_creation import open_pool
from tenants.faults import arm_faults
from tenants.models import Budget
from tests.factories import Cluster
from tests.integration.archive_stage import (
    DAY,
    LONG_AGO,
    files_in,
    old_lab,
    only_file,
    put_away,
    round_of,
)


@pytest.fixture
def folder(committed_db: str, settings: Any, tmp_path: Path) -> Path:
    assert committed_db
    return files_in(settings, tmp_path)


@pytest.fixture
def lab(folder: Path) -> Cluster:
    """Return a pool with two days of rounds in files, metered and settled but for the last hour."""
    assert not folder.exists()
    lab = old_lab()
    put_away()
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    return lab


def book_is_at(monkeypatch: pytest.MonkeyPatch, lab: Cluster, **later: int) -> None:
    monkeypatch.setattr(citations, "book_now", lambda _: lab.at + timedelta(**later))


def kept_days() -> list[date]:
    return list(RoundArchive.objects.filter(dropped_at=None).values_list("day", flat=True))


class TestOldFile:
    def test_is_dropped_if_no_open_period_cites_it(
        self, lab: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        book_is_at(monkeypatch, lab)
        row = only_file(lab.pool)
        assert cited_from(lab.pool) == 4, "the round before the first of the open hour"
        assert drop_files_task() == 0, "round 4 is in it, which posted the prices of round 5"
        lab.round(after_s=7200)
        lab.round(after_s=7200)
        meter_pool(lab.pool.pk)
        settle_pool(lab.pool.pk)
        book_is_at(monkeypatch, lab)
        assert cited_from(lab.pool) > 4
        assert drop_files_task() == 2
        assert not (folder / row.name).exists()
        row.refresh_from_db()
        assert row.dropped_at is not None
        assert row.deleted_at is not None
        assert drop_files_task() == 0

    def test_hashes_and_proofs_remain_after_drop(self, lab: Cluster) -> None:
        row = round_of(lab.pool, 2)
        place = read_place(lab.pool.pk, 2)
        assert place is not None
        drop_files(lab.pool.pk, cited_from=5, keep_days=90)
        assert kept_days() == [DAY + timedelta(days=1)]
        after = read_place(lab.pool.pk, 2)
        assert after is not None
        assert (after.sha256, after.root, after.is_kept) == (place.sha256, place.root, False)
        assert after.bundle_sha256
        assert round_of(lab.pool, 2).snapshot_sha256 == row.snapshot_sha256
        assert bundle_sha256(lab.pool.pk, 2) is None
        assert packed_bundle(lab.pool.pk, 2) is None
        with pytest.raises(ReplayError, match="no longer kept"):
            round_bytes(row)
        assert [one.number for one in find_rounds(lab.pool.name, [], every=True)] == [5]

    def test_is_kept_until_old_enough(self, lab: Cluster) -> None:
        today = wall_now().date()
        drop_files(lab.pool.pk, cited_from=99, keep_days=(today - DAY).days)
        assert len(kept_days()) == 2
        drop_files(lab.pool.pk, cited_from=99, keep_days=(today - DAY).days - 1)
        assert kept_days() == [DAY + timedelta(days=1)]

    def test_is_kept_for_at_least_90_days(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = LONG_AGO + timedelta(days=90)
        monkeypatch.setattr(retention, "wall_now", lambda: now)
        assert drop_files(lab.pool.pk, cited_from=99, keep_days=1) == 0
        monkeypatch.setattr(retention, "wall_now", lambda: now + timedelta(days=1))
        assert drop_files(lab.pool.pk, cited_from=99, keep_days=1) == 1

    def test_is_kept_if_one_of_its_rounds_is_cited(self, lab: Cluster) -> None:
        assert drop_files(lab.pool.pk, cited_from=4, keep_days=90) == 0
        assert drop_files(lab.pool.pk, cited_from=5, keep_days=90) == 1

    def test_deletion_is_completed_after_crash(self, lab: Cluster, folder: Path) -> None:
        class CrashError(Exception):
            pass

        def crash(name: str) -> None:
            if name == "retention.after_mark":
                raise CrashError

        row = only_file(lab.pool)
        with arm_faults(crash), pytest.raises(CrashError):
            drop_files(lab.pool.pk, cited_from=5, keep_days=90)
        assert (folder / row.name).exists()
        with pytest.raises(ReplayError, match="no longer kept"):
            round_bytes(round_of(lab.pool, 2))
        assert drop_files(lab.pool.pk, cited_from=0, keep_days=90) == 1
        assert not (folder / row.name).exists()
        row.refresh_from_db()
        assert row.deleted_at is not None


class TestOpenPeriod:
    def budget(self, lab: Cluster, kind: str, **fields: Any) -> None:
        Budget.objects.update_or_create(
            tenant=lab.tenants["a"],
            book=lab.pool.book,
            defaults={"period_amount": Decimal(5), "period_kind": kind, **fields},
        )

    def test_month_or_quarter_keeps_its_rounds(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for kind, days, is_open in (
            *(("month", 20, True), ("month", 40, False)),
            *(("quarter", 50, True), ("quarter", 70, False)),
        ):
            settled = LONG_AGO + timedelta(days=200)
            MeterCursor.objects.filter(pool=lab.pool).update(settled_until=settled)
            self.budget(lab, kind)
            book_is_at(monkeypatch, lab, days=days)
            since = open_since(lab.pool)
            assert since is not None
            assert (since <= LONG_AGO) is is_open, (kind, days)
            assert (cited_from(lab.pool) < 2) is is_open, (kind, days)

    def test_custom_period_keeps_its_rounds_until_it_ends(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settled = LONG_AGO + timedelta(days=900)
        MeterCursor.objects.filter(pool=lab.pool).update(settled_until=settled)
        begin = LONG_AGO - timedelta(days=1)
        ends = LONG_AGO + timedelta(days=400)
        self.budget(lab, "custom", period_starts_at=begin, period_ends_at=ends)
        book_is_at(monkeypatch, lab, days=390)
        assert open_since(lab.pool) == begin
        assert drop_files_task() == 0
        book_is_at(monkeypatch, lab, days=401)
        assert open_since(lab.pool) == settled

    def test_unsettled_hours_keep_all_rounds(self, lab: Cluster) -> None:
        MeterCursor.objects.filter(pool=lab.pool).update(settled_until=None)
        assert open_since(lab.pool) is None
        assert cited_from(lab.pool) == 0
        MeterCursor.objects.filter(pool=lab.pool).update(settled_until=LONG_AGO)
        assert cited_from(lab.pool) == 0

    def test_running_terms_keep_their_rounds(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A long term is charged when it ends. Until then it cites its round."""
        settled = LONG_AGO + timedelta(hours=2)
        MeterCursor.objects.filter(pool=lab.pool).update(settled_until=settled)
        book_is_at(monkeypatch, lab)
        first = Round.objects.filter(pool=lab.pool, at__gte=settled).order_by("number")[0]
        assert cited_from(lab.pool) == first.number - 1
        lease = lab.pool.leases.order_by("id")[0]
        monkeypatch.setattr(citations, "_CITED", citations._CITED)
        term = lease.terms.order_by("number")[0]
        assert term.round < first.number - 1
        settled = term.starts_at + timedelta(seconds=1)
        MeterCursor.objects.filter(pool=lab.pool).update(settled_until=settled)
        assert cited_from(lab.pool) == max(0, term.round - 1)

    def test_pool_without_events_has_open_period(self, folder: Path) -> None:
        assert not folder.exists()
        lab = old_lab()
        empty = Pool.objects.create(name="empty", book=lab.pool.book)

        open_pool(empty, LONG_AGO, scale=1)
        assert open_since(empty) is not None
