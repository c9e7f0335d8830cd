"""The log of a book's transfers over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from billing.ledger import open_book, post_allowance
from billing.metering import log_transfers
from evenshare_core.chain import merkle
from evenshare_core.chain.checkpoints import verify_note
from evenshare_core.chain.records import read_ledger_record
from tenants.models import User
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage


@pytest.fixture
def stage(committed_db: str, tmp_path: Path, settings: Settings) -> ApiStage:
    assert committed_db
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    stage = api_stage()
    book = open_book(stage.cluster.pool.book)
    for number in range(5):
        post_allowance(
            book=book,
            tenant_id=stage.cluster.tenants["aa"].pk,
            amount_micro=777_777_777,
            effective_at=BEGIN,
            name=f"gift {number}",
        )
        log_transfers(book)
    return stage


def answered(stage: ApiStage, path: str) -> Any:
    answer = stage.get(f"ledgers/{stage.cluster.pool.book}/chain{path}")
    assert answer.status_code == 200, answer.json()
    return answer.json()


class TestLedgerLog:
    def test_signed_head_proves_inclusion_and_growth(self, stage: ApiStage) -> None:
        shown = answered(stage, "")
        head = verify_note(
            shown["checkpoint"], [key["vkey"] for key in shown["keys"]], shown["log"]
        )
        assert (head.size, shown["size"]) == (5, 5)
        page = answered(stage, "/records")
        assert page["next"] is None
        for row in page["results"]:
            data = row["record"].encode()
            record = read_ledger_record(data)
            assert (record.first, len(record.transfers)) == (row["index"], 1)
            proof = answered(stage, f"/inclusion?index={row['index']}")
            path = [bytes.fromhex(step) for step in proof["path"]]
            merkle.verify_inclusion(merkle.leaf_hash(data), row["index"], 5, path, head.root)
        leaves = [merkle.leaf_hash(row["record"].encode()) for row in page["results"]]
        first = merkle.node_hash(merkle.node_hash(*leaves[:2]), leaves[2])
        growth = answered(stage, "/consistency?first=3&second=5")["path"]
        merkle.verify_consistency(3, 5, [bytes.fromhex(step) for step in growth], first, head.root)

    def test_returns_records_in_pages(
        self, stage: ApiStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenants.api.logs.RECORDS_MAX", 2)
        pages = [answered(stage, f"/records?first={first}&last=3") for first in (0, 2, 9)]
        listed = [[row["index"] for row in page["results"]] for page in pages]
        assert listed == [[0, 1], [2, 3], []]
        assert [page["next"] for page in pages] == [2, None, None]

    def test_records_contain_no_amounts(self, stage: ApiStage) -> None:
        text = stage.get(f"ledgers/{stage.cluster.pool.book}/chain/records").content.decode()
        assert "777777777" not in text
        assert "777.777777" not in text

    def test_is_limited_to_pool_members_and_site_staff(self, stage: ApiStage) -> None:
        stage.person("olga")
        stage.person("fin", site_role=User.SiteRole.FINANCE)
        book = stage.cluster.pool.book
        for who, status in (("ada", 200), ("bob", 200), ("fin", 200), ("olga", 404), ("", 401)):
            assert stage.get(f"ledgers/{book}/chain", as_=who).status_code == status
        assert stage.get("ledgers/none/chain").status_code == 404

    @pytest.mark.parametrize(
        ("path", "field"),
        [
            ("/inclusion", "index"),
            ("/inclusion?index=5", "index"),
            ("/inclusion?index=1&size=6", "size"),
            ("/consistency?first=1", "second"),
            ("/records?first=x", "first"),
        ],
    )
    def test_rejects_invalid_parameters_by_field(
        self, stage: ApiStage, path: str, field: str
    ) -> None:
        answer = stage.get(f"ledgers/{stage.cluster.pool.book}/chain{path}")
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == [field]
