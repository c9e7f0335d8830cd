"""Test rounds in files over HTTP: unchanged, or reported if a file is damaged or dropped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.test import Client

from billing.checks import run_checks
from portal.operate.text.space import megabytes
from portal.site import health
from scheduling.engine.file_scrub import scrub_files
from scheduling.engine.retention import drop_files
from scheduling.models import RoundArchive, RoundBlob, RoundBundle, RoundState
from scheduling.selectors.rounds import files as round_files
from tests.functional.api_stage import PLAIN, ApiStage
from tests.functional.test_bundles import GZIP, bundle, committed_db, copy, see, there
from tests.integration.archive_stage import files_in, make_old, only_file, put_away

__all__ = ["committed_db", "copy", "there"]  # fixtures
READERS = {"ada": GZIP, "otto": PLAIN}


Asked = tuple[str, int]


@dataclass
class Filed:
    """A stage whose rounds were moved to files, and the answers before the move."""

    api: ApiStage
    folder: Path
    before: dict[Asked, bytes]

    def path(self) -> Path:
        return self.folder / self.row().name

    def row(self) -> RoundArchive:
        return only_file(self.api.cluster.pool)

    def round_page(self, number: int = 2) -> str:
        return shown_to(self.api, "ada", f"/pools/{self.api.pool}/rounds/{number}/")


@pytest.fixture
def filed(there: ApiStage, owner: psycopg.Connection[Any], settings: Any, tmp_path: Path) -> Filed:
    """Yield a stage with three sealed rounds in a file."""
    folder = files_in(settings, tmp_path)
    before = {
        (who, number): bundle(there, who, number, headers).content
        for who, headers in READERS.items()
        for number in (1, 2, 3)
    }
    make_old(owner, there.cluster.pool)
    put_away()
    assert not RoundBlob.objects.exists()
    assert not RoundBundle.objects.exists()
    return Filed(there, folder, before)


def shown_to(there: ApiStage, who: str, path: str) -> str:
    client = Client()
    client.force_login(there.people[who])
    answer = client.get(path)
    assert answer.status_code == 200
    return str(answer.content.decode())


def files_check() -> health.Check:
    (check,) = (one for one in health.readiness() if one.name == "files")
    return check


def health_page(there: ApiStage) -> str:
    return shown_to(there, "otto", f"/operate/pools/{there.pool}/health/")


class TestBundle:
    def test_bytes_match_those_before_archiving(self, filed: Filed) -> None:
        for (who, number), data in filed.before.items():
            answer = bundle(filed.api, who, number, READERS[who])
            assert (answer.status_code, answer.content) == (200, data)
        etag = bundle(filed.api)["ETag"]
        assert bundle(filed.api, headers={"If-None-Match": etag}).status_code == 304

    def test_own_rows_are_read_from_file(self, filed: Filed) -> None:
        see(filed.api, "own")
        body = bundle(filed.api, "bob").json()
        assert (body["form"], body["round"]) == ("own", 3)
        assert body["own"]

    def test_damaged_file_returns_503(self, filed: Filed) -> None:
        filed.path().write_bytes(filed.path().read_bytes()[:1000])
        round_files.forget()
        for visibility in ("full", "own"):
            see(filed.api, visibility)
            answer = bundle(filed.api)
            assert (answer.status_code, answer.json()["reason_code"]) == (503, "unreadable")
            assert "round 3" in answer.json()["detail"]
        record = filed.api.call("GET", f"rounds/{filed.api.pool}/3").json()["record"]
        assert record["bundle_sha256"]

    def test_dropped_file_returns_404_and_keeps_record(self, filed: Filed) -> None:
        drop_files(filed.api.cluster.pool.pk, cited_from=99, keep_days=90)
        answer = bundle(filed.api)
        assert (answer.status_code, answer.json()["reason_code"]) == (404, "not_kept")
        assert "its record is" in answer.json()["detail"]
        shown = filed.api.call("GET", f"rounds/{filed.api.pool}/3").json()
        assert shown["record"]["bundle_sha256"]
        assert shown["bundle"] is None


class TestRoundPage:
    def test_reads_decision_from_file_and_reports_missing_file(self, filed: Filed) -> None:
        shown = filed.round_page()
        assert "no longer kept" not in shown
        assert "damaged" not in shown
        row = filed.row()
        filed.path().unlink()
        round_files.forget()
        shown = filed.round_page()
        assert f"the file {row.name} is not there" in shown

    def test_states_that_dropped_bytes_are_not_kept(self, filed: Filed) -> None:
        drop_files(filed.api.cluster.pool.pk, cited_from=99, keep_days=90)
        shown = filed.round_page()
        assert "no longer kept" in shown


class TestOperatorViews:
    def test_show_storage_used_per_day(self, filed: Filed) -> None:
        shown = health_page(filed.api)
        assert "Storage of rounds" in shown
        assert "2020-05-04" in shown
        assert "In files, MB" in shown
        row = filed.row()
        left = RoundState.objects.get(number=3)
        in_database = len(bytes(left.service)) + len(bytes(left.memory))
        assert megabytes(row.bytes) in shown
        assert megabytes(in_database) in shown, "what the next round begins with"
        assert megabytes((row.bytes + in_database) * 90) in shown

    def test_warn_about_missing_file(self, filed: Filed) -> None:
        assert files_check().state is health.State.OK
        row = filed.row()
        filed.path().unlink()
        scrub_files()
        check = files_check()
        assert check.state is health.State.WARNING
        assert row.name in check.detail
        assert row.name in health_page(filed.api)

    def test_warn_about_day_that_cannot_be_archived(
        self, there: ApiStage, owner: psycopg.Connection[Any], settings: Any, tmp_path: Path
    ) -> None:
        files_in(settings, tmp_path).write_text("no folder")
        make_old(owner, there.cluster.pool)
        put_away()
        assert not RoundArchive.objects.exists()
        check = files_check()
        assert check.state is health.State.WARNING
        assert f"{there.pool}: not moved to files, 2020-05-04" in check.detail
        assert "A day of rounds is still in the database" in health_page(there)
        assert RoundBlob.objects.exists()


@pytest.mark.usefixtures("filed")
def test_ledger_checks_pass_without_files() -> None:
    wrong = [check.name for check in run_checks() if check.violations]
    assert wrong == []


def test_log_check_names_bundle_missing_from_its_file(filed: Filed) -> None:
    """A row that names a missing file must not hide damage."""
    filed.path().unlink()
    round_files.forget()
    broken = {check.name: check.violations for check in run_checks()}["rounds_as_logged"]
    assert len(broken) == 3
    assert f"the file {filed.row().name} is not there" in broken[0]
