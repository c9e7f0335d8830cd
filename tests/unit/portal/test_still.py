"""Test the still picture of a chart: each series drawn to scale, with gaps, and no script."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from portal.charts.explore.chart import PageChart, Series
from portal.charts.explore.looks import LENT, OWN, QUOTA
from portal.charts.explore.still import BASE, LEFT, RIGHT, TOP, still

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
KEYS = [T0 + timedelta(hours=hour) for hour in range(3)]


def chart(*series: Series, sideways: bool = False) -> PageChart:
    return PageChart("c", "Title", "", series, (0.0, 10.0), "GPUs", "file", sideways=sideways)


def paths(made: PageChart, *, bare: bool = False) -> list[ET.Element]:
    root = ET.fromstring(still(made, bare=bare))  # noqa: S314 - our own markup
    return [one for one in root.iter("path") if one.get("class") != "grid"]


class TestStill:
    def test_steps_through_values_to_scale(self) -> None:
        (line,) = paths(chart(Series("a", "a", KEYS, [0, 10, 10], QUOTA)))
        middle = (LEFT + RIGHT) // 2
        assert line.get("d") == f"M{LEFT} {BASE}H{middle}V{TOP}H{RIGHT}"
        assert line.get("stroke-dasharray")

    def test_stacks_areas(self) -> None:
        own = Series("own", "own", KEYS, [5, 5, 5], OWN, kind="area")
        more = Series("more", "more", KEYS, [5, 5, 5], LENT, kind="area")
        low, high = (one.get("d") or "" for one in paths(chart(own, more), bare=True))
        assert low == "M0 150H600V300H0Z"
        assert high == "M0 0H600V150H0Z"

    def test_borrowed_areas_are_hatched(self) -> None:
        (area,) = paths(chart(Series("a", "a", KEYS, [1, 2, 3], LENT, kind="area")))
        assert area.get("fill") == "url(#p-bor)"

    def test_leaves_gap_at_unknown_values(self) -> None:
        (line,) = paths(chart(Series("a", "a", KEYS, [1, None, 1], QUOTA)))
        assert (line.get("d") or "").count("M") == 2

    def test_omits_hidden_series(self) -> None:
        assert paths(chart(Series("a", "a", KEYS, [1, 2, 3], QUOTA, shown=False))) == []

    @pytest.mark.parametrize(("keys", "sideways"), [(KEYS[:1], False), (["a", "b"], True)])
    def test_is_empty_without_x_axis(self, keys: list[datetime], sideways: bool) -> None:
        one = Series("a", "a", keys, [1] * len(keys), QUOTA)
        assert still(chart(one, sideways=sideways)) == ""
