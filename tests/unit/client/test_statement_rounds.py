"""Test rounds to which a statement refers: before the log's start, after its head, or withheld."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli.statement_files import fetch_rounds
from evenshare.cli.terminal import Terminal
from evenshare.cli.verify_files import Files, fetch_chain
from evenshare.cli.verify_statement_rounds import AFTER_HEAD, BEFORE_LOG, StatementRounds
from evenshare.errors import ApiError
from evenshare_core.verification.verdict import Gap
from tests.unit.verified_rounds import ADA, POOL, StagedPool, staged_rounds


class Asked:
    """A client that sends its requests to a staged pool."""

    def __init__(self, pool: StagedPool) -> None:
        self.pool = pool

    def get(self, path: str, **query: Any) -> Any:
        words = path.strip("/").split("/")
        status, body = self.pool.answer(words, {key: str(value) for key, value in query.items()})
        if status != 200:
            raise ApiError(status, {})
        return body

    def download(self, path: str, **query: Any) -> bytes:
        body = self.get(path, **query)
        return body if isinstance(body, bytes) else json.dumps(body).encode()


def downloaded(pool: StagedPool, folder: Path, named: set[int]) -> StatementRounds:
    client: Any = Asked(pool)
    files = Files(folder)
    chain = fetch_chain(client, files, POOL)
    screen = Terminal(io.StringIO(), io.StringIO(), {})
    log = (chain["round"], chain["size"])
    fetch_rounds(client, screen, files, named, pool=POOL, log=log)
    return verified(folder, named)


def verified(folder: Path, named: set[int]) -> StatementRounds:
    options = argparse.Namespace(vkey=[], from_dir=None)
    rounds = StatementRounds(Files(folder), POOL, None, options)
    rounds.read({ADA}, named)
    return rounds


class TestRounds:
    def test_named_in_rows_are_disclosed(self, tmp_path: Path) -> None:
        rounds = downloaded(StagedPool(), tmp_path, {3, 6})
        assert rounds.findings == []
        assert set(rounds.disclosed) == {3, 6}
        assert len(rounds.instants) == 4, "of the time between, too"
        assert len(rounds.keys) == 1
        assert not rounds.left

    @pytest.mark.parametrize("named", [{1, 2, 5}, {1, 2}])
    def test_before_start_of_log_are_counted(self, tmp_path: Path, named: set[int]) -> None:
        rounds = downloaded(StagedPool(staged_rounds(8)[3:]), tmp_path, named)
        assert rounds.findings == []
        assert rounds.left == {BEFORE_LOG: 2}

    def test_not_yet_in_log_are_counted(self, tmp_path: Path) -> None:
        rounds = downloaded(StagedPool(), tmp_path, {7, 9, 10})
        assert rounds.findings == []
        assert rounds.left == {AFTER_HEAD: 2}
        assert set(rounds.disclosed) == {7}

    def test_with_withheld_first_records_are_reported(self, tmp_path: Path) -> None:
        downloaded(StagedPool(), tmp_path, {2, 6})
        rows = json.loads((tmp_path / "records.json").read_text())
        (tmp_path / "records.json").write_text(json.dumps(rows[2:]))
        rounds = verified(tmp_path, {2, 6})
        (finding,) = rounds.findings
        assert (finding.what, finding.where) == ("record", "round 2")
        assert finding.stated == (
            "the portal holds back its record: those of rounds 4 to 6 were answered,"
            " of a head of 8 entries"
        )

    def test_with_own_rows_only_are_unproven(self, tmp_path: Path) -> None:
        rounds = downloaded(StagedPool(visibility="own"), tmp_path, {3, 6})
        assert (rounds.findings, rounds.disclosed) == ([], {})
        assert {row.gap for row in rounds.unproven} == {Gap.OWN_ROWS}

    def test_with_missing_bundle_are_not_disclosed(self, tmp_path: Path) -> None:
        pool = StagedPool()
        del pool.bundles[6]
        rounds = downloaded(pool, tmp_path, {3, 6})
        assert (rounds.findings, set(rounds.disclosed)) == ([], {3})
