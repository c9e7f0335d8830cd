"""Test statements of a hostile portal: the command ends, and reports what it did not check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenshare.cli.parser import parser
from evenshare.cli.statement_files import ASKED, LISTS, list_file
from evenshare_core.cli.bounded import LIMIT_S
from evenshare_core.verification.verdict import OVER_LIMIT

from .conftest import Run

FROM, TO = "2030-01-01T00:00:00Z", "2030-01-01T01:00:00Z"
USAGE = {
    "tenant": "aa", "job": "j", "lease": 1, "term": 1, "round": None, "meter": "borrowed",
    "gpu_type": "v100", "gpus": 1, "price": "1.000000", "starts_at": FROM, "ends_at": TO,
    "amount": "1.000000", "carried": 0, "hour": FROM, "transfer": None,
}  # fmt: skip
INCOME = {
    "tenant": "aa", "gpu_type": "v100", "round": None, "starts_at": FROM, "ends_at": TO, "gpus": 1,
    "price": "1.000000", "carried": 0, "charge": "1.000000", "weight": "1", "weights": "1",
    "lenders": None, "rounded_up": False, "earned": "1.000000", "counts_from": FROM,
    "counts_until": TO, "idle_then": None, "hour": FROM, "transfer": None,
}  # fmt: skip
POSTED = {
    "gpu_type": "v100", "price": "1.000000", "used": 1, "capacity": 1, "base": "1.000000",
    "theta": "2.000", "surcharge": None, "valid_from_round": 1,
}  # fmt: skip


def kept(folder: Path, **lists: list[dict[str, Any]]) -> Path:
    """Write the files of a statement that has no rounds."""
    folder.mkdir()
    asked = {"pool": "philly", "tenant": "aa", "since": FROM, "until": TO}
    for name in LISTS:
        (folder / list_file(name)).write_text(json.dumps(lists.get(name, [])))
    (folder / ASKED).write_text(json.dumps(asked))
    (folder / "no-rounds.json").write_text(json.dumps("not asked"))
    return folder


def endless(folder: Path, steps: int = 3000, incomes: int = 2000) -> Path:
    """Write idle quota with coprime totals, which make the numbers in each weight very long."""
    idle = [
        {"gpu_type": "v100", "at": f"2030-01-01T00:{n // 60:02}:{n % 60:02}Z", "own": 1,
         "total": 10**18 + 2 * n + 1}
        for n in range(steps)
    ]  # fmt: skip
    return kept(folder, idle=idle, income=[INCOME] * incomes)


class TestStatement:
    def test_exceeding_time_limit_is_not_proven(self, run: Run, tmp_path: Path) -> None:
        folder = str(endless(tmp_path / "kept"))
        done = run("statement", "verify", "--from-dir", folder, "--limit", "1")
        assert done.code == 5, done
        said = f"NOT PROVEN: limit: 1 x: {OVER_LIMIT}. To do: give it more time: --limit SECONDS"
        assert said in done.out
        assert done.out.startswith("aa in pool philly")

    @pytest.mark.parametrize(
        ("name", "row", "absurd"),
        [
            ("usage", USAGE, {"price": "1e99999999999999"}),
            ("usage", USAGE, {"amount": "1" * 5000}),
            ("usage", USAGE, {"gpus": 10**4000}),
            ("usage", USAGE, {"carried": -(10**4000)}),
            ("usage", USAGE, {"borne": "1e-99999999999999"}),
            ("income", INCOME, {"charge": "1e99999999999999"}),
            ("income", INCOME, {"weights": "9" * 5000}),
            ("prices", POSTED, {"theta": "1e99999999"}),
            ("prices", POSTED, {"valid_from_round": 10**4000}),
        ],
    )
    def test_with_absurd_number_is_wrong(
        self, run: Run, tmp_path: Path, name: str, row: dict[str, Any], absurd: dict[str, Any]
    ) -> None:
        folder = kept(tmp_path / "kept", **{name: [row | absurd]})
        done = run("statement", "verify", "--from-dir", str(folder), "--limit", "5")
        assert done.code == 3, done
        assert f"WRONG: answer: {name}[0]: " in done.out

    def test_with_overlong_fractions_is_wrong(self, run: Run, tmp_path: Path) -> None:
        folder = str(endless(tmp_path / "kept", steps=400, incomes=1))
        done = run("statement", "verify", "--from-dir", folder)
        assert done.code == 3, done
        assert "recomputed a number that is too long to be shown" in done.out

    def test_has_same_default_limit_as_rounds(self) -> None:
        """`round verify`, `statement verify` and `evenshare-core verify` have the same default."""
        words = (["statement", "verify"], ["round", "verify", "--pool", "philly"])
        assert {parser().parse_args(each).limit for each in words} == {LIMIT_S}
