"""Test how `evenshare contribution` shows the server's answer as tables or as JSON."""

from __future__ import annotations

import json

import pytest

from .conftest import Run
from .portal import Portal

SHOWN = {
    "tenant": "vision", "pool": "local", "since": "2031-05-04T00:00:00.000000Z",
    "until": "2031-05-05T00:00:00.000000Z", "currency": "credits", "lines": 2,
    "lent_gpu_h": "3.500000", "earned": "7.000001",
    "reconciliation": {
        "settled": "5.000001", "ledger": "5.000001", "difference": "0.000000",
        "open": "2.000000", "corrections": "-0.250000",
    },
    "by_day": [{"name": "2031-05-04T00:00:00.000000Z", "lines": 2, "lent_gpu_h": "3.500000",
                "earned": "7.000001"}],
    "by_gpu_type": [],
    "by_borrower": [{"name": "x\x1b[31m", "lines": 2, "lent_gpu_h": "3.5", "earned": "7.0"}],
    "quota_use": [{"gpu_type": "v100", "quota_gpu_h": "8.0", "own_gpu_h": "1.0",
                   "lent_gpu_h": "3.5", "kept_gpu_h": "2.0", "free_gpu_h": "1.5",
                   "without_gpu_h": "0.0"}],
    "quota_counted_until": "2031-05-04T20:00:00Z", "alpha": 1.25,
}  # fmt: skip
LINE = {
    "ends_at": "2031-05-04T03:02:01.5Z", "round": 7, "borrower": "another tenant", "lease": 1,
    "term": 2, "gpu_type": "v100", "gpus": 4, "price": "1.000000", "charge": "4.000000",
    "own_part": "0.500000000000", "earned": "2.000000",
}  # fmt: skip


class TestContribution:
    def test_shows_sums_and_difference_to_ledger(self, run: Run, portal: Portal) -> None:
        portal.contribution = SHOWN
        done = run("contribution", "--pool", "local", "--since", "2031-05-04T00:00:00Z")
        assert done.code == 0
        for text in ("7.000001 credits", "5.000001, difference 0.000000", "-0.250000", "1.2500"):
            assert text in done.out
        assert "x\\x1b[31m" in done.out
        assert "TAKEN BY NO JOB" in done.out
        assert "pool=local&since=2031-05-04" in portal.seen[-1][1]

    def test_lists_lines(self, run: Run, portal: Portal) -> None:
        portal.income = [LINE, {**LINE, "round": None}]
        done = run("contribution", "--lines", "--limit", "5")
        assert done.code == 0
        _, first, second = done.out.splitlines()
        assert first.split()[:2] == ["2031-05-04T03:02:01Z", "7"]
        assert second.split()[1] == "-"
        portal.income = []
        assert "nothing was lent" in run("contribution", "--lines").err

    @pytest.mark.parametrize("more", [[], ["--lines"]])
    def test_prints_json_on_demand(self, run: Run, portal: Portal, more: list[str]) -> None:
        portal.contribution, portal.income = SHOWN, [LINE]
        answer = json.loads(run("contribution", *more, "--output", "json").out)
        assert answer == ([LINE] if more else SHOWN)

    def test_shows_undefined_alpha(self, run: Run, portal: Portal) -> None:
        portal.contribution = {**SHOWN, "alpha": None, "quota_use": None}
        done = run("contribution")
        assert "not defined" in done.out
        assert "QUOTA" not in done.out

    def test_rejects_limit_of_zero(self, run: Run, portal: Portal) -> None:
        assert run("contribution", "--limit", "0").code == 2
        assert portal.seen == []
