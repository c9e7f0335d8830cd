"""Test that the hook that CONTRIBUTING.md installs rejects unclear subjects of commits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

HOOK = ROOT / ".ci" / "hooks" / "commit-msg"


def run_hook(message: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "COMMIT_EDITMSG"
    path.write_text(message, "utf-8")
    return subprocess.run([sys.executable, HOOK, path], check=False, capture_output=True, text=True)


class TestCommitSubject:
    @pytest.mark.parametrize(
        "subject",
        [
            "core: Add Lease.expires_at",
            "api, docs: Speed up GET /jobs.",
            "Merge branch 'main'",
            'Revert "core: Add Lease.expires_at"',
        ],
    )
    def test_accepts_subject_of_required_form(self, subject: str, tmp_path: Path) -> None:
        assert run_hook(f"{subject}\n\nBecause.\n", tmp_path).returncode == 0

    @pytest.mark.parametrize(
        ("subject", "reason"),
        [
            ("", "Verb object"),
            ("Add Lease.expires_at", "Verb object"),
            ("core: Let a lease expire", "Speed up"),
            ("core: Add", "Verb object"),
            (f"core: Add {'a' * 63}", "73 characters"),
        ],
    )
    def test_rejects_subject_of_other_form(self, subject: str, reason: str, tmp_path: Path) -> None:
        refused = run_hook(f"{subject}\n", tmp_path)
        assert refused.returncode == 1
        assert reason in refused.stderr


def test_hook_is_executable() -> None:
    assert HOOK.stat().st_mode & 0o111
    assert "git config core.hooksPath .ci/hooks" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
