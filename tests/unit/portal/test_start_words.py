"""Test the sentence of a start estimate before and after its times have passed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from portal.common.starts import expected_text
from portal.jobs.text.start import IN_ORDER, IN_ORDERS, queues_text
from scheduling.selectors.jobs.queue_order import FIRST, NO_QUEUE, QueueOrder
from scheduling.selectors.jobs.start_estimates import StartView

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY_S = 86_400


def said(p50_s: float | None, p90_s: float | None, until_s: float) -> str:
    def at(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    until = NOW + timedelta(seconds=until_s)
    return expected_text(StartView(7, NOW, at(p50_s), at(p90_s), until, ""), NOW)


class TestStartSentence:
    @pytest.mark.parametrize(
        ("p50_s", "p90_s", "until_s", "text"),
        [
            (720, 2400, DAY_S, "start in about 12 min (p50), within 40 min (p90)"),
            (60, 60, DAY_S, "start in about 1 min (p50), within 1 min (p90)"),
            (59.9, 600, DAY_S, "start within a minute (p50), within 10 min (p90)"),
            (10, 59, DAY_S, "start within a minute (p50 and p90)"),
            (0, 600, DAY_S, "start any time now (p50), within 10 min (p90)"),
            (-600, 600, DAY_S, "start any time now (p50), within 10 min (p90)"),
            (-600, 0.5, DAY_S, "start any time now (p50), within a minute (p90)"),
            (7200, None, 80_000, "start in about 2 h (p50), maybe not within 22 h 13 min (p90)"),
            (10, None, 30, "start within a minute (p50), maybe not within a minute (p90)"),
            (-5, None, 0, "start any time now (p50), maybe after the simulated time (p90)"),
            (-9000, None, -1, "start any time now (p50), maybe after the simulated time (p90)"),
        ],
    )
    def test_shows_times_still_ahead(
        self, p50_s: float, p90_s: float | None, until_s: float, text: str
    ) -> None:
        assert said(p50_s, p90_s, until_s) == f"Expected to {text}"

    def test_is_empty_without_estimate(self) -> None:
        assert said(None, None, DAY_S) == ""

    @pytest.mark.parametrize("p90_s", [0, -59, -7300])
    def test_is_empty_after_p90(self, p90_s: float) -> None:
        assert said(-9000, p90_s, DAY_S) == ""

    def test_shows_no_seconds_or_negative_times(self) -> None:
        steps = (None, -7200, -61, -60, -1, -0.5, 0, 0.5, 1, 59, 60, 61, 7200)
        for p50_s in steps[1:]:
            for p90_s in (one for one in steps if one is None or one >= (p50_s or 0)):
                for until_s in steps[1:]:
                    text = said(p50_s, p90_s, until_s or 0)
                    assert not re.search(r"\b(in|within) [0-9]+ s", text), text
                    assert "\N{MINUS SIGN}" not in text, text


class TestListOrder:
    def test_describes_order_of_its_pools(self) -> None:
        ordered, shared = QueueOrder(7, "LTGF.", is_ordered=True), QueueOrder(7, NO_QUEUE)
        assert queues_text({}) == queues_text({"a": ordered}) == IN_ORDER
        assert queues_text({"a": shared}) == f"By arrival, without positions. {NO_QUEUE}"
        assert queues_text({"a": QueueOrder(None, FIRST)}).endswith(FIRST)
        assert queues_text({"a": ordered, "b": ordered}) == IN_ORDERS
        mixed = queues_text({"b": shared, "a": ordered, "c": shared})
        assert mixed == f"{IN_ORDERS} Without positions, by arrival: b, c."
        assert "these pools" in queues_text({"a": shared, "b": shared})
