"""Test the client's report to the portal after a verification: by default, only documented data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenshare import __version__
from tests.unit.verified_rounds import ADA, POOL, StagedPool

from .conftest import ROUNDS, Run
from .portal import Portal, problem


class TestReport:
    def test_contains_verified_rounds_and_head(
        self, verify_all: Any, portal: Portal, pool: StagedPool
    ) -> None:
        shown = verify_all("--output", "json").json
        assert portal.reports == [
            {
                "tenant": ADA, "kind": "rounds", "size": ROUNDS, "root": shown["head"]["root"],
                "first": 1, "last": ROUNDS, "checked": ROUNDS, "findings": 0, "unproven": 0,
                "client": f"evenshare {__version__}",
            }
        ]  # fmt: skip
        method, path, *_ = portal.seen[-1]
        assert (method, path) == ("POST", f"/api/v1/chain/{POOL}/verifications")
        assert pool.size == ROUNDS

    def test_counts_findings(
        self, run: Run, pool: StagedPool, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bent = pool.bundles[6].replace(b'"round":6', b'"round":7')
        monkeypatch.setitem(pool.bundles, 6, bent)
        done = run("round", "verify", "--last", "4", "--pool", POOL, "--output", "json")
        assert done.code == 3
        wrong = sum(len(row["problems"]) for row in done.json["rounds"])
        [said] = portal.reports
        assert (said["findings"], said["checked"], said["first"]) == (wrong, 4, 5)
        assert wrong > 0

    def test_is_not_sent_with_option_no_report(self, verify_all: Any, portal: Portal) -> None:
        done = verify_all("--no-report")
        assert (done.code, portal.reports, done.err) == (0, [], "")

    def test_is_not_sent_for_saved_files(
        self, run: Run, verify_all: Any, portal: Portal, tmp_path: Path
    ) -> None:
        verify_all("--no-report", "--save-dir", str(tmp_path / "kept"))
        seen = len(portal.seen)
        done = run("round", "verify", "--from-dir", str(tmp_path / "kept"))
        assert (done.code, len(portal.seen)) == (0, seen)

    @pytest.mark.parametrize(
        ("status", "detail", "said"),
        [
            (
                409,
                "The log has the root 5f: forked\x1b[31m",
                "409, The log has the root 5f: forked",
            ),
            (403, "", "403, No"),
            (503, "later", "503, later"),
            (404, "", "404, No"),
        ],
    )
    def test_failure_prints_line_and_keeps_exit_code(
        self, verify_all: Any, portal: Portal, status: int, detail: str, said: str
    ) -> None:
        portal.refusal = status, problem(status, "No") | {"detail": detail}
        done = verify_all()
        assert done.code == 0
        assert done.out.splitlines()[-1] == f"{ROUNDS} rounds proven"
        [line] = done.err.splitlines()
        assert line.startswith(
            f"evenshare: the portal refused the report of this verification: {said}"
        )
        assert "\x1b" not in line

    def test_is_retried_with_same_key(
        self, verify_all: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, keys = portal.answer, []

        def answer(method: str, path: str, query: dict[str, str], body: Any, key: str) -> Any:
            if method == "POST":
                keys.append(key)
                if len(keys) == 1:
                    return 503, problem(503, "Busy")
            return whole(method, path, query, body, key)

        monkeypatch.setattr(portal, "answer", answer)
        assert verify_all().err == ""
        assert len(keys) == 2
        assert keys[0] == keys[1] != ""
