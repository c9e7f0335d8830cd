"""Test that the log of a pool's rounds over REST is enough for a tenant to detect tampering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from evenshare_core.chain import merkle
from evenshare_core.chain.checkpoints import Checkpoint, verify_note
from evenshare_core.chain.records import read_record
from tenants.models import LogNode, User
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.logs import log_rounds
from tests.plugin import Services
from tests.stages import Copy, copied, name_of_copy


def played_stage() -> ApiStage:
    stage = api_stage()
    play(stage, 7)
    return stage


copy = copied(played_stage)
committed_db = name_of_copy


@pytest.fixture
def stage(copy: Copy[ApiStage], tmp_path: Path, settings: Settings) -> ApiStage:
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    return copy.made


def play(stage: ApiStage, rounds: int) -> None:
    """Run rounds with changes."""
    for _ in range(rounds):
        stage.job()
        stage.cluster.round(after_s=10)


def answered(stage: ApiStage, path: str) -> Any:
    answer = stage.get(f"chain/{stage.pool}{path}")
    assert answer.status_code == 200, answer.json()
    return answer.json()


def head(stage: ApiStage) -> Checkpoint:
    shown = answered(stage, "")
    return verify_note(shown["checkpoint"], [key["vkey"] for key in shown["keys"]], shown["log"])


def path_of(answer: Any) -> list[bytes]:
    return [bytes.fromhex(step) for step in answer["path"]]


class TestRoundLog:
    def test_empty_log_has_signed_head(self, stage: ApiStage) -> None:
        shown = answered(stage, "")
        assert (shown["size"], shown["round"]) == (0, None)
        assert head(stage) == Checkpoint(shown["log"], 0, merkle.EMPTY_ROOT)
        assert answered(stage, "/records") == {"results": [], "next": None}
        assert stage.get(f"chain/{stage.pool}/inclusion?round=1").status_code == 404

    def test_proves_inclusion_of_each_round_and_append_only_growth(self, stage: ApiStage) -> None:
        log_rounds(stage.cluster.pool)
        before = head(stage)
        play(stage, 4)
        log_rounds(stage.cluster.pool)
        after = head(stage)
        assert (before.size, after.size) == (7, 11)
        assert answered(stage, "")["round"] == 11
        rows = answered(stage, "/records")["results"]
        assert [row["index"] for row in rows] == list(range(11))
        previous = ""
        for row in rows:
            data = row["record"].encode()
            record = read_record(data)
            assert (record.round, record.previous) == (row["index"] + 1, previous)
            previous = merkle.leaf_hash(data).hex()
            proof = answered(stage, f"/inclusion?round={record.round}&size=11")
            merkle.verify_inclusion(
                merkle.leaf_hash(data), proof["index"], proof["size"], path_of(proof), after.root
            )
        growth = answered(stage, "/consistency?first=7&second=11")
        merkle.verify_consistency(7, 11, path_of(growth), before.root, after.root)

    def test_returns_records_in_pages_by_round_range(
        self, stage: ApiStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log_rounds(stage.cluster.pool)
        monkeypatch.setattr("tenants.api.logs.RECORDS_MAX", 3)
        pages = [answered(stage, f"/records?first={first}&last=6") for first in (2, 5)]
        listed = [
            [read_record(row["record"].encode()).round for row in page["results"]] for page in pages
        ]
        assert listed == [[2, 3, 4], [5, 6]]
        assert [page["next"] for page in pages] == [5, None]
        assert answered(stage, "/records?first=8")["results"] == []
        assert answered(stage, "/records?first=5&last=4")["results"] == []

    def test_returns_signing_keys_with_validity(self, stage: ApiStage) -> None:
        (key,) = answered(stage, "")["keys"]
        assert key["vkey"].startswith(f"evenshare/es/rounds/{stage.pool}+")
        assert key["since"].endswith("Z")
        assert key["until"] is None

    @pytest.mark.parametrize(
        ("path", "field"),
        [
            ("records?first=-1", "first"),
            ("records?last=x", "last"),
            ("records?last=1e3", "last"),
            ("inclusion", "round"),
            ("inclusion?round=3&size=8", "size"),
            ("inclusion?round=3&size=2", "round"),
            ("consistency?first=1", "second"),
            ("consistency?second=1", "first"),
            ("consistency?first=5&second=4", "first"),
            ("consistency?first=5&second=8", "second"),
            ("consistency?first=5&second=" + "9" * 30, "second"),
        ],
    )
    def test_rejects_invalid_parameters_by_field(
        self, stage: ApiStage, path: str, field: str
    ) -> None:
        log_rounds(stage.cluster.pool)
        answer = stage.get(f"chain/{stage.pool}/{path}")
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == [field]

    def test_is_limited_to_pool_tenants_and_site_staff(self, stage: ApiStage) -> None:
        stage.person("olga")
        stage.person("otto", site_role=User.SiteRole.OPERATOR)
        for who, status in (("ada", 200), ("bob", 200), ("otto", 200), ("olga", 404), ("", 401)):
            assert stage.get(f"chain/{stage.pool}", as_=who).status_code == status


class TestUnprovableLog:
    def test_returns_503_without_signing_key(self, stage: ApiStage, tmp_path: Path) -> None:
        answered(stage, "")
        for path in (tmp_path / "log-keys").iterdir():
            path.unlink()
        answer = stage.get(f"chain/{stage.pool}")
        assert answer.status_code == 503
        assert answer.json()["reason_code"] == "log_unavailable"
        assert str(tmp_path) not in answer.content.decode()

    def test_returns_503_if_tree_hashes_are_missing(
        self, stage: ApiStage, committed_db: str, services: Services
    ) -> None:
        log_rounds(stage.cluster.pool)
        with services.postgres.connect(committed_db) as session:
            session.execute("SET session_replication_role = replica")
            session.execute("DELETE FROM tenants_lognode")
        assert not LogNode.objects.exists()
        for path in ("", "/inclusion?round=1", "/consistency?first=3&second=7"):
            answer = stage.get(f"chain/{stage.pool}{path}")
            assert answer.status_code == 503
            assert answer.json()["reason_code"] == "log_unavailable"
