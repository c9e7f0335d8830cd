"""Test that `evenshare statement verify` recomputes a credit for a late start from real answers."""

from __future__ import annotations

from pathlib import Path

from tests.functional.api_stage import ROLES, ApiStage
from tests.functional.test_cli_statement import Run, keep, live, rows, run
from tests.integration.test_late_starts import promised, settled, start_late
from tests.stages import copied, name_of_copy

__all__ = ["live", "run"]  # fixtures, for the stage of this module
TIME = ("--from", "2029-12-31", "--to", "2030-01-02")


def late_stage() -> ApiStage:
    """Create a stage in which beta's gang starts 90 s late, and its credit is settled."""
    lab = promised()
    start_late(lab, 90)
    settled(lab)
    stage = ApiStage(lab)
    stage.person("bea", "beta", ROLES.MANAGER)
    return stage


copy = copied(late_stage)
committed_db = name_of_copy


class TestLateStart:
    def test_is_proven_from_both_rounds(self, run: Run) -> None:
        done = run("bea", *TIME)
        assert done.code == 0, done
        for what in ("credit for a late start", "rate in its round", "late start in its round"):
            assert f"recomputed:      1  {what}" in done.out

    def test_with_wrong_amount_is_refused(self, run: Run, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        assert run("bea", *TIME, "--save-dir", str(kept)).code == 0
        entries = rows(kept, "entries")
        (entry,) = (row for row in entries if row["code"] == "late_start")
        entry["earned"] = "0.300000"
        keep(kept, "entries", entries)
        done = run("bea", "--from-dir", str(kept))
        assert done.code == 3
        assert "WRONG: credit for a late start: late start of job " in done.out
        assert "stated 0.300000, recomputed 0.400000" in done.out

    def test_without_its_entry_is_not_proven(self, run: Run, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        assert run("bea", *TIME, "--save-dir", str(kept)).code == 0
        keep(kept, "entries", [row for row in rows(kept, "entries") if row["code"] == "usage"])
        done = run("bea", "--from-dir", str(kept))
        assert done.code == 5
        assert "no entry shows that its hour is settled" in done.out
