"""Test the sentences that compare two policies."""

from __future__ import annotations

from typing import Any

import pytest

from portal.charts.bars import wide_bar
from portal.common.simulated import REPLAY_METRICS, metric_rows
from portal.operate.text.simulation import METRICS, _headline, _work_text

METRIC = {metric.name: metric for metric in (*METRICS, *REPLAY_METRICS)}


def printed(name: str, before: float | None, after: float | None) -> tuple[Any, ...]:
    totals = {"jobs": 9, "deadlines": 0}
    (row,) = metric_rows([METRIC[name]], [{name: before, **totals}, {name: after, **totals}])
    return (*row.values, row.change, row.verdict)


class TestFigure:
    @pytest.mark.parametrize(
        ("name", "before", "after", "row"),
        [
            ("preemptions", 3, 5, ("3", "5", "+2", "worse")),
            ("gpu_utilisation", 0.5, 0.6, ("50.0 %", "60.0 %", "+10.0 points", "")),
            ("finished", 5, 4, ("5", "4", "\N{MINUS SIGN}1", "worse")),
            ("waste", 0.1, 0.0999, ("10.0 %", "10.0 %", "the same", "")),
            ("deadline_miss_rate", None, None, ("not applicable", "not applicable", "", "")),
            ("avg_queue_s", 59, 3661, ("59 s", "1 h 1 min 1 s", "+1 h 2 s", "worse")),
            ("avg_queue_s", 90_000, 90_059, ("1 d 1 h", "1 d 1 h 1 min", "+1 min", "worse")),
            ("rounds", 8, 9, ("8", "9", "+1", "")),
            ("ended", 8, 9, ("8 of 9", "9 of 9", "+1", "better")),
            ("deadlines_met", 0, 0, ("not applicable", "not applicable", "", "")),
            ("gpu_us", 3_600_000_000, 5_400_000_000, ("1.0", "1.5", "+0.5", "")),
            # A float could not keep the last digits.
            (
                "charged_micro",
                10**16 + 5_000,
                10**16 + 15_001,
                ("10,000,000,000.00", "10,000,000,000.02", "+0.02", ""),
            ),
        ],
    )
    def test_shows_change_and_whether_it_is_better(
        self, name: str, before: float, after: float, row: tuple[str, ...]
    ) -> None:
        assert printed(name, before, after) == row

    def test_difference_uses_printed_values(self) -> None:
        """Both 1.106 and 1.114 are printed as 1.11, so the sentence must not claim a difference."""
        assert printed("avg_slowdown", 1.106, 1.114)[2] == "the same"


class TestHeadline:
    def headline(self, **other: Any) -> str:
        own = {"policy": "ltgf", "jobs": 9, "finished": 4, "avg_queue_s": 100.0, "sha256": "a"}
        return _headline([own, {**own, "policy": "fifo", "sha256": "b", **other}], 24)

    def test_describes_differences(self) -> None:
        assert self.headline(avg_queue_s=40.0, finished=5) == (
            "Under fifo jobs would wait 1 min less. 1 more job would be completed in the next 24 h."
        )
        assert self.headline() == (
            "Under fifo jobs would wait the same time."
            " The same number of jobs would be completed in the next 24 h."
        )
        assert self.headline(policy="ltgf").startswith("Under ltgf with these options jobs")

    def test_reports_identical_results(self) -> None:
        assert self.headline(sha256="a") == (
            "The result in the next 24 h would be the same under fifo."
        )

    def test_for_one_policy_counts_completed_jobs(self) -> None:
        rows = [{"policy": "ltgf", "jobs": 9, "finished": 4}]
        assert _headline(rows, 6) == "4 of 9 jobs would be completed in the next 6 h."


def test_remaining_work_names_its_sources() -> None:
    known = {"estimate": 1, "tenant": 0, "pool": 2, "unknown": 0, "past": 1}
    words = _work_text({**known, "pool_s": 90.0, "unknown_s": 3600.0})
    assert "1 job with its own estimate" in words
    assert "2 jobs without one counted with the median ended job of the pool (1 min 30 s)" in words
    assert "1 job exceeded the estimate and goes on for the same time again." in words


class TestBar:
    @pytest.mark.parametrize("share", [-1, 0, 0.5, 2])
    def test_width_is_clamped(self, share: float) -> None:
        assert f'width="{600 * min(max(share, 0), 1):g}"' in wide_bar(share)
