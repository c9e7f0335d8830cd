"""Test quotas from a reviewed file: shown first, applied fully or not at all, never in the past."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from scheduling.models import PoolClock
from tenants.audit import Actor
from tenants.models import AuditRecord, Quota, User
from tenants.services.quotas import undo_quotas
from tests.factories import BEGIN, Cluster, cluster

HEADER = "tenant,pool,gpu_type,gpus,from,until,mode,borrow_limit,lend_limit\n"
NOW = BEGIN + timedelta(days=9)
AGREED = HEADER + (
    "north,pool-1,v100,6,,,LEND_AND_BORROW,,\nsouth,pool-1,v100,2,2030-02-01,,RESERVE,,\n"
)


@pytest.fixture
def place(committed_db: str) -> Cluster:
    """Return two tenants that each have had 4 of 8 GPUs since the start nine days ago."""
    assert committed_db
    town = cluster({"north": 4, "south": 4})
    PoolClock.objects.update(paused=True, anchor_pool=NOW)
    User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
    User.objects.create(username="ada")
    return town


def sync(
    tmp_path: Path, text: str, *words: str, status: int = 0, name: str = "quotas.csv"
) -> tuple[str, str]:
    """Run the command; check its status and return its output."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    streams: dict[str, Any] = {"stdout": out, "stderr": err}
    try:
        call_command("sync_quota", str(path), *words, **streams)
        came = 0
    except SystemExit as ended:
        came = int(str(ended.code))
    assert came == status, err.getvalue()
    return out.getvalue(), err.getvalue()


APPLY = ("--apply", "--user", "otto")


def export(*words: str) -> str:
    out = io.StringIO()
    call_command("export_quota", *words, stdout=out)
    return out.getvalue()


def stored() -> list[tuple[Any, ...]]:
    rows = Quota.objects.order_by("tenant__slug", "valid_from")
    return list(rows.values_list("tenant__slug", "gpus", "valid_from", "valid_until", "mode"))


LEND, KEEP = "LEND_AND_BORROW", "RESERVE"
LATER = BEGIN + timedelta(days=31)
AT_FIRST = [("north", 4, BEGIN, None, LEND), ("south", 4, BEGIN, None, LEND)]


class TestDifference:
    def test_is_shown_and_not_written(self, place: Cluster, tmp_path: Path) -> None:
        out, _ = sync(tmp_path, AGREED)
        assert "~ north pool-1 v100: 4 LEND_AND_BORROW from now -> 6 LEND_AND_BORROW" in out
        assert "~ south pool-1 v100: 4 LEND_AND_BORROW from now -> 2 RESERVE from 2030-02-01" in out
        assert "pool-1 v100: 6 of 8 GPUs, 8 from 2030-02-01 00:00 UTC on" in out
        assert "0 added, 2 changed, 0 removed; nothing written" in out
        assert stored() == AT_FIRST
        assert not AuditRecord.objects.exists()

    def test_row_missing_in_file_ends_quota(self, place: Cluster, tmp_path: Path) -> None:
        out, _ = sync(tmp_path, HEADER + "north,pool-1,v100,4,,,,,\n", *APPLY)
        assert "- south pool-1 v100: 4 LEND_AND_BORROW from now -> ends now" in out
        assert stored() == [AT_FIRST[0], ("south", 4, BEGIN, NOW, LEND)]

    def test_reports_quotas_above_capacity(self, place: Cluster, tmp_path: Path) -> None:
        text = AGREED.replace(",2,2030", ",7,2030")
        out, _ = sync(tmp_path, text)
        assert "quotas exceed capacity by 5" in out

    def test_is_empty_for_exported_file(self, place: Cluster, tmp_path: Path) -> None:
        out, _ = sync(tmp_path, export(), *APPLY)
        assert "no change" in out
        out, _ = sync(tmp_path, export("--format", "yaml"), *APPLY, name="quotas.yaml")
        assert "no change" in out
        assert stored() == AT_FIRST
        assert not AuditRecord.objects.exists()


class TestApply:
    def test_takes_effect_from_now_and_never_in_the_past(
        self, place: Cluster, tmp_path: Path
    ) -> None:
        text = AGREED.replace("v100,6,,", "v100,6,2029-01-01,")
        sync(tmp_path, text, *APPLY)
        assert stored() == [
            ("north", 4, BEGIN, NOW, LEND),
            ("north", 6, NOW, None, LEND),
            ("south", 4, BEGIN, NOW, LEND),
            ("south", 2, LATER, None, KEEP),
        ]

    def test_is_idempotent(self, place: Cluster, tmp_path: Path) -> None:
        sync(tmp_path, AGREED, *APPLY)
        first = stored()
        PoolClock.objects.update(anchor_pool=NOW + timedelta(days=1))
        out, _ = sync(tmp_path, AGREED, *APPLY)
        assert "no change" in out
        assert stored() == first
        assert AuditRecord.objects.count() == 1

    def test_writes_audit_record(self, place: Cluster, tmp_path: Path) -> None:
        sync(tmp_path, AGREED, *APPLY)
        record = AuditRecord.objects.get()
        assert (record.actor.username, record.subject) == ("otto", "pool pool-1")
        assert record.reason == "sync_quota quotas.csv"
        assert {row["gpus"] for row in record.after["periods"]} == {2, 4, 6}

    def test_can_be_undone_like_change_in_console(self, place: Cluster, tmp_path: Path) -> None:
        sync(tmp_path, AGREED, *APPLY)
        otto = Actor(User.objects.get(username="otto"))
        record = AuditRecord.objects.get()
        undo_quotas(actor=otto, pool_id=place.pool.pk, record_id=record.pk, next_round=1)
        assert stored() == AT_FIRST

    def test_change_reverted_before_its_start_leaves_no_trace(
        self, place: Cluster, tmp_path: Path
    ) -> None:
        """The second file applies at the same pool time, so the first file had no effect."""
        sync(tmp_path, AGREED, *APPLY)
        sync(tmp_path, HEADER + "north,pool-1,v100,4,,,,,\nsouth,pool-1,v100,4,,,,,\n", *APPLY)
        assert [(slug, gpus) for slug, gpus, _, until, _ in stored() if until is None] == [
            ("north", 4),
            ("south", 4),
        ]
        assert sum(until is None or until > NOW for _, _, _, until, _ in stored()) == 2

    def test_gives_new_tenant_its_first_quota(self, place: Cluster, tmp_path: Path) -> None:
        other = cluster({"island": 4})
        text = AGREED + f"island,{place.pool.name},v100,1,,,,,\n"
        out, _ = sync(tmp_path, text, *APPLY)
        assert "+ island pool-1 v100: 1 LEND_AND_BORROW from now" in out
        # A pool that the file does not name stays unchanged.
        assert Quota.objects.filter(pool=other.pool, valid_until__isnull=True).count() == 1

    def test_is_used_by_rounds(self, place: Cluster, tmp_path: Path) -> None:
        place.at = NOW
        place.submit("north", 1, 600)
        sync(tmp_path, AGREED, *APPLY)
        done = place.round(after_s=10).round
        assert done is not None
        quotas = {row["tenant"]: row["quota"] for row in done.shares}
        assert quotas[place.tenants["north"].pk] == 6


class TestBadFile:
    def test_is_rejected_entirely_with_error_per_line(self, place: Cluster, tmp_path: Path) -> None:
        text = (
            AGREED + "west,pool-1,v100,1,,,,,\nnorth,pool-9,v100,1,,,,,\nnorth,pool-1,h1,1,,,,,\n"
        )
        _, err = sync(tmp_path, text, *APPLY, status=1)
        assert "line 4, tenant: there is no tenant 'west' here" in err
        assert "line 5, pool: there is no pool 'pool-9' here" in err
        assert "line 6, gpu_type: there is no GPU type 'h1' here" in err
        assert "nothing was changed" in err
        assert stored() == AT_FIRST

    def test_rejects_row_of_other_pool(self, place: Cluster, tmp_path: Path) -> None:
        cluster({"island": 4})
        text = AGREED + "island,pool-2,v100,1,,,,,\n"
        _, err = sync(tmp_path, text, "--pool", "pool-1", status=1)
        assert "line 4, pool: there is no pool 'pool-2' here" in err

    def test_empty_file_ends_quotas_of_named_pool_only(
        self, place: Cluster, tmp_path: Path
    ) -> None:
        out, _ = sync(tmp_path, HEADER, *APPLY)
        assert "no change" in out
        out, _ = sync(tmp_path, HEADER, "--pool", "pool-1")
        assert "0 added, 0 changed, 2 removed" in out


class TestPermission:
    @pytest.mark.parametrize("words", [(), ("--user", "nobody"), ("--user", "ada")])
    def test_is_restricted_to_operators(
        self, place: Cluster, tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        with pytest.raises(CommandError, match=r"--user NAME|is not an operator|no user"):
            sync(tmp_path, AGREED, "--apply", *words)
        assert stored() == AT_FIRST


class TestExport:
    def test_includes_past_periods_only_with_history_option(
        self, place: Cluster, tmp_path: Path
    ) -> None:
        sync(tmp_path, AGREED, *APPLY)
        # The quota ended at this time, and the clock advances by a day.
        PoolClock.objects.update(anchor_pool=NOW + timedelta(days=1))
        assert export("--pool", "pool-1").count("\n") == 3
        assert export("--pool", "pool-1", "--history").count("\n") == 5
