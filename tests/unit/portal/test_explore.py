"""Test charts to explore: they show the selectors' figures, in styles that can be distinguished."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from billing.selectors.hours import AccountHour
from billing.selectors.prices import PriceRow
from evenshare_core.fairness.rho import standing
from portal.charts.explore.chart import PageChart, Series, axis_range
from portal.charts.explore.looks import OWN, tenant_area, tenant_line
from portal.charts.explore.money import account_chart
from portal.charts.explore.prices import forecast_chart, price_chart
from portal.charts.explore.throughputs import throughput_chart
from portal.charts.explore.uses import (
    pool_rho_chart,
    pool_use_chart,
    rho_chart,
    tells_rho,
    use_chart,
)
from portal.charts.explore.whatif import Course, Wait, course_chart, wait_chart
from portal.charts.tenants import BADGES, OTHERS, TenantBadge
from scheduling.selectors.pools.throughput import ThroughputPoint
from scheduling.selectors.rounds.histories import (
    ClaimHistoryPoint,
    PoolHistory,
    TenantCourse,
    joined,
)
from scheduling.selectors.sharing.price_forecasts import ForecastInstant, PriceForecastRow
from scheduling.selectors.visibility import VisibleTenant
from tests.plotly_figures import drawn

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>%{x}"


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def claim(minutes: float, use: int, quota: int, rho: float | None) -> ClaimHistoryPoint:
    return ClaimHistoryPoint(1, at(minutes), at(minutes), 1, "v100", use, quota, rho, 0.0, 0.0)


def posted(minutes: float, price: str) -> PriceRow:
    return PriceRow(
        *("p", "v100", Decimal(price), "credit", 3, 8, Decimal("1.000000"), Decimal("1.500")),
        *(None, None, None, None, 1, at(minutes)),
    )


def traces(chart: PageChart) -> dict[str, Any]:
    return {trace.name: trace for trace in drawn(chart).data}


def values(chart: PageChart) -> dict[str, list[Any]]:
    return {trace.name: list(trace.y) for trace in drawn(chart).data}


def sent(chart: PageChart) -> Any:
    return json.loads(unescape(chart.payload))


class TestPrices:
    def test_equal_selector_to_last_digit(self) -> None:
        history = [posted(0, "1.000001"), posted(5, "2.123456")]
        chart = price_chart("v100", history, at(9), pool="p")
        assert values(chart)["price"] == ["1.000001", "2.123456", "2.123456"]
        assert list(traces(chart)["price"].x) == [ms(at(0)), ms(at(5)), ms(at(9))]
        assert values(chart)["base"] == ["1.000000"] * 3
        assert list(traces(chart)["price"].customdata[0]) == ["1.500", "3", "8"]
        assert chart.heads[1] == "price of v100, credits per GPU-hour"

    def test_end_at_last_price_if_clock_is_behind(self) -> None:
        trace = traces(price_chart("v100", [posted(5, "1")], at(0), pool="p"))["price"]
        assert list(trace.x) == [ms(at(5)), ms(at(5))]

    def test_are_drawn_as_steps(self) -> None:
        trace = traces(price_chart("v100", [posted(0, "1")], at(9), pool="p"))["price"]
        assert trace.line.shape == "hv"

    def test_small_changes_do_not_fill_axis(self) -> None:
        low, high = price_chart("v100", [posted(0, "1"), posted(1, "1.001")], at(9), pool="p").y
        assert high - low >= 0.2

    def test_empty_history_is_valid(self) -> None:
        chart = price_chart("v100", [], at(9), pool="p")
        assert sent(chart)["end"] is None
        assert chart.rows == []


class TestUseAndRho:
    POINTS = (claim(0, 20, 16, 1.004), claim(60, 14, 16, None), claim(120, 0, 16, 0.996))

    def test_own_and_borrowed_add_up_to_use(self) -> None:
        chart = use_chart(self.POINTS, at(180), key="k", title="t", file="f")
        found = values(chart)
        assert found["within quota"] == [16, 14, 0, 0]
        assert found["borrowed"] == [4, 0, 0, 0]
        assert found["quota"] == [16] * 4
        assert traces(chart)["borrowed"].fillpattern.path
        assert traces(chart)["quota"].line.dash == "dash"

    def test_rho_has_gaps_without_demand(self) -> None:
        chart = rho_chart(self.POINTS, at(180), key="k", title="t", file="f")
        assert values(chart)["rho"] == [1.004, None, 0.996, 0.996]

    def test_rho_within_half_percent_is_at_fair_share(self) -> None:
        chart = rho_chart(self.POINTS, at(180), key="k", title="t", file="f")
        assert chart.y[1] - chart.y[0] >= 0.5
        assert chart.y[0] < 1 < chart.y[1]
        band = drawn(chart).layout.shapes[0]
        assert band.y0 < 0.996
        assert band.y1 > 1.004
        assert [label.text for label in chart.labels] == ["fair share"]

    @pytest.mark.parametrize("rho", [0.979, 0.98, 0.99, 1.0, 1.01, 1.02, 1.021])
    def test_fair_share_band_matches_other_pages(self, rho: float) -> None:
        chart = rho_chart([claim(0, 1, 16, rho)], at(9), key="k", title="t", file="f")
        is_at = [label.text for label in chart.labels] == ["fair share"]
        assert is_at == (standing(rho) == "at")
        seen = VisibleTenant(1, 1, "north", "", 0)
        history = PoolHistory((at(0),), (TenantCourse(seen, (1,), (rho,)),))
        title = pool_rho_chart(history, {}, at(9), pool="p").title
        assert ("below" in title) == (standing(rho) == "below")

    @pytest.mark.parametrize("chart", [use_chart, rho_chart])
    def test_zoom_keeps_vertical_range(self, chart: Any) -> None:
        layout = drawn(chart(self.POINTS, at(180), key="k", title="t", file="f")).layout
        assert layout.yaxis.fixedrange is True
        assert layout.yaxis.range is not None


class TestPool:
    BADGES = {
        1: TenantBadge("north", 3, "NO"),
        2: TenantBadge("south", 9, "SO"),
        3: TenantBadge("small", OTHERS, "··"),
    }

    def history(self) -> PoolHistory:
        seen = {
            number: VisibleTenant(number, number, name, "", 0)
            for number, name in ((1, "north"), (2, "south"), (3, "small"))
        }
        return PoolHistory(
            (at(0), at(5)),
            (
                TenantCourse(seen[1], (4, 6), (1.2, 1.1)),
                TenantCourse(seen[2], (2, 2), (None, 0.7)),
                TenantCourse(seen[3], (1, 0), (1.0, 1.0)),
                TenantCourse(None, (3, 1), (None, None)),
            ),
        )

    def test_shows_use_of_each_tenant(self) -> None:
        chart = pool_use_chart(self.history(), self.BADGES, at(9), pool="p", gpus=16)
        assert values(chart) == {"north": [4, 6, 6], "south": [2, 2, 2], "other tenants": [4, 1, 1]}
        assert chart.y[1] >= 16

    def test_shows_rho_only_of_visible_tenants(self) -> None:
        chart = pool_rho_chart(self.history(), self.BADGES, at(9), pool="p")
        assert values(chart)["south"] == [None, 0.7, 0.7]
        assert set(values(chart)) == {"north", "south", "small"}
        assert chart.title == "1 of 3 tenants below the fair share"

    @pytest.mark.parametrize(
        ("rhos", "hidden", "title"),
        [
            ((1.1, 1.0), False, "All tenants are at or above their fair share"),
            ((1.1, 1.0), True, "Your tenants are at or above the fair share"),
            ((1.1,), True, "Your tenant is at or above the fair share"),
            ((0.7, 1.0), True, "1 of your 2 tenants below the fair share"),
            ((0.7,), True, "Your tenant is below the fair share"),
            ((None,), True, "No tenant shown has a rho now"),
        ],
    )
    def test_title_covers_only_visible_tenants(
        self, rhos: tuple[float | None, ...], hidden: bool, title: str
    ) -> None:
        mine = [
            TenantCourse(VisibleTenant(n, n, f"t{n}", "", 0, you=True), (1,), (rho,))
            for n, rho in enumerate(rhos)
        ]
        rest = [TenantCourse(None, (7,), (None,))] if hidden else []
        history = PoolHistory((at(0),), (*mine, *rest))
        chart = pool_rho_chart(history, {}, at(9), pool="p")
        assert chart.title == title
        assert tells_rho(history) is (rhos[0] is not None)

    def test_tenant_has_same_colour_in_both_charts(self) -> None:
        area = traces(pool_use_chart(self.history(), self.BADGES, at(9), pool="p", gpus=16))
        line = traces(pool_rho_chart(self.history(), self.BADGES, at(9), pool="p"))
        for name, css in (("north", "t3"), ("south", "t9")):
            assert area[name].fillcolor == f"var(--{css}-fill)"
            assert line[name].line.color == f"var(--{css}-str)"
            assert area[name].meta["swatch"] == line[name].meta["swatch"] == css

    def test_distinguishes_tenants_with_same_name(self) -> None:
        seen = [VisibleTenant(n, n, "Vision", mark, n) for n, mark in ((1, "VI"), (2, "VS"))]
        courses = [TenantCourse(one, (one.id,), (1.0,)) for one in seen]
        history = PoolHistory((at(0),), (*courses, TenantCourse(None, (4,), (None,))))
        badges = {one.id: TenantBadge("Vision", one.swatch, one.initials) for one in seen}
        uses = pool_use_chart(history, badges, at(9), pool="p", gpus=16)
        rhos = pool_rho_chart(history, badges, at(9), pool="p")
        assert [list(trace.y) for trace in drawn(uses).data] == [[1, 1], [2, 2], [4, 4]]
        assert uses.heads[1:3] == ["GPUs in use by Vision (VI)", "GPUs in use by Vision (VS)"]
        assert rhos.heads[1:] == ["rho of Vision (VI)", "rho of Vision (VS)"]
        # The browser toggles a series by its key, which reveals no more than a pseudonym.
        keys = [[trace.meta["key"] for trace in drawn(chart).data] for chart in (uses, rhos)]
        assert keys == [["tenant-1", "tenant-2", "others"], ["tenant-1", "tenant-2"]]

    def test_sends_shared_instants_once(self) -> None:
        chart = pool_use_chart(self.history(), self.BADGES, at(9), pool="p", gpus=16)
        assert sent(chart)["axes"] == [[ms(at(0)), ms(at(5)), ms(at(9))]]

    def test_joins_history_of_days(self) -> None:
        whole = self.history()
        first = PoolHistory(
            whole.at[:1], tuple(TenantCourse(c.tenant, c.use[:1], c.rho[:1]) for c in whole.tenants)
        )
        # The second tenant occurs only in the later part.
        later = PoolHistory(
            whole.at[1:], tuple(TenantCourse(c.tenant, c.use[1:], c.rho[1:]) for c in whole.tenants)
        )
        assert joined([first, later]) == whole
        assert joined([PoolHistory((), ()), whole]) == whole


class TestStyles:
    def test_are_unique_per_tenant(self) -> None:
        badges = [TenantBadge(f"t{index}", index, "") for index in range(BADGES)]
        areas = {(look.fill, look.pattern) for look in map(tenant_area, badges)}
        assert len(areas) == BADGES
        # Neighbours differ not only in colour but also in their pattern or dash.
        assert len({look.pattern for look in map(tenant_area, badges[:8])}) == 8
        assert len({look.dash for look in map(tenant_line, badges[:6])}) == 6


class TestThroughput:
    def moment(self, number: int, milli: int, policy: str) -> ThroughputPoint:
        return ThroughputPoint(number, at(number), milli, policy)

    def test_has_line_per_policy_with_gaps(self) -> None:
        moments = [
            self.moment(0, 1000, "ltgf"),
            self.moment(1, 2000, "oef"),
            self.moment(2, 3000, "ltgf"),
        ]
        chart = throughput_chart(moments, at(3), key="k", title="t", file="f")
        assert values(chart) == {"ltgf": [1.0, 1.0, None, 3.0, 3.0], "oef": [2.0, 2.0, None]}
        assert [rule.text for rule in chart.rules] == ["oef", "ltgf"]
        looks = [(trace.line.color, trace.line.dash) for trace in drawn(chart).data]
        assert looks[0][0] != looks[1][0]
        assert looks[0][1] != looks[1][1]

    def test_table_has_value_only_for_active_policy(self) -> None:
        moments = [self.moment(0, 1000, "ltgf"), self.moment(1, 2000, "oef")]
        rows = dict(throughput_chart(moments, at(2), key="k", title="t", file="f").rows)
        under = [value for _, value in rows["2026-01-05 09:01:00"]]
        assert under == ["\N{EN DASH}", "2.000"]


class TestAccount:
    HOURS = (
        AccountHour(at(0), Decimal("1.000001"), Decimal("0.500000")),
        AccountHour(at(60), Decimal("0.000000"), Decimal("2.250000")),
    )

    def test_equals_selector_to_last_digit(self) -> None:
        chart = account_chart(self.HOURS, key="k", file="f")
        assert values(chart) == {
            "earned": ["1.000001", "0.000000", "0"],
            "paid": ["-0.500000", "-2.250000", "0"],
            "net": ["0.500001", "-2.250000", "0"],
        }
        assert chart.title == "1.00 credits earned, 2.75 paid"
        assert chart.y[0] < -2.25
        assert chart.y[1] > 1

    def test_hours_without_transfers_are_zero(self) -> None:
        """The net amount is drawn in steps of an hour, including the last hour."""
        hours = [AccountHour(at(60 * hour), Decimal(hour), Decimal(0)) for hour in (1, 2, 6)]
        net = traces(account_chart(hours, key="k", file="f"))["net"]
        assert net.line.shape == "hv"
        assert list(net.x) == [ms(at(60 * hour)) for hour in (1, 2, 3, 6, 7)]
        assert list(net.y) == ["1", "2", "0", "6", "0"]

    def test_single_hour_is_drawn_one_hour_long(self) -> None:
        hours = [AccountHour(at(0), Decimal(0), Decimal("0.5"))]
        net = traces(account_chart(hours, key="k", file="f"))["net"]
        assert (list(net.x), list(net.y)) == ([ms(at(0)), ms(at(60))], ["-0.5", "0"])


class TestWhatIf:
    def test_draws_courses_as_lines_and_all_gpus_as_level(self) -> None:
        lines = [Course("a", [(0, 1), (6, 5)]), Course("b", [(0, 1), (6, 2)])]
        chart = course_chart(
            lines, key="k", title="t", text="x", unit="GPUs held", file="f", top=(8, "8 GPUs")
        )
        assert values(chart) == {"a": [1, 5], "b": [1, 2], "8 GPUs": [8, 8]}
        assert [label.text for label in chart.labels] == ["a", "b"]
        assert chart.ranges == []
        assert sent(chart)["end"] is None

    def test_draws_waits_as_grouped_bars(self) -> None:
        chart = wait_chart(
            [Wait("n", 1.0, 2.0), Wait("s", 3.0, None)], ["a", "b"], key="k", file="f"
        )
        found = {trace.name: list(trace.x) for trace in drawn(chart).data}
        # A missing wait is not zero, so it has no bar.
        assert found == {"a": [1.0, 3.0], "b": [2.0, None]}
        assert drawn(chart).data[1].marker.pattern.path
        assert [key for key, _ in chart.rows] == ["n", "s"]
        assert [value for _, value in chart.rows[1][1]] == ["3.00", "\N{EN DASH}"]

    def test_tenants_with_same_name_have_separate_bars(self) -> None:
        waits = [Wait("Vision", 1.0, 2.0, "v1"), Wait("Vision", 3.0, 4.0, "v2"), Wait("n", 5.0)]
        chart = wait_chart(waits, ["a", "b"], key="k", file="f")
        assert list(drawn(chart).data[0].y) == ["Vision (v1)", "Vision (v2)", "n"]
        assert [key for key, _ in chart.rows] == ["Vision (v1)", "Vision (v2)", "n"]

    def test_empty_data_is_valid(self) -> None:
        empty = course_chart([Course("a", [])], key="k", title="t", text="x", unit="u", file="f")
        assert sent(empty)["figure"]["data"][0]["name"] == "a"
        assert sent(wait_chart([], ["a"], key="k", file="f"))["sideways"] is True


class TestChart:
    def long(self, count: int, name: str = "n") -> PageChart:
        keys = [at(10 * place) for place in range(count)]
        line = Series(name, f"{name}, GPUs", keys, list(range(count)), OWN)
        return PageChart("k", "t", "x", (line,), (0.0, 1.0), "GPUs", "f")

    @pytest.mark.parametrize(
        ("points", "ranges"),
        [
            (2, []),
            (8, ["1 h"]),
            (40, ["1 h", "6 h"]),
            (150, ["1 h", "6 h", "24 h"]),
            (1100, ["1 h", "6 h", "24 h", "7 d"]),
        ],
    )
    def test_offers_ranges_within_data(self, points: int, ranges: list[str]) -> None:
        assert [text for text, _ in self.long(points).ranges] == ranges

    def test_starts_with_last_day_of_longer_data(self) -> None:
        assert sent(self.long(40))["first"] is None
        assert sent(self.long(150))["first"] == 86_400

    def test_table_is_thinned_with_newest_first(self) -> None:
        chart = self.long(100)
        assert len(chart.rows) <= 24
        assert chart.rows[0] == ("2026-01-06 01:30:00", [("n, GPUs", "99")])
        assert chart.is_thinned
        assert not self.long(5).is_thinned

    def test_payload_contains_no_markup(self) -> None:
        chart = self.long(2, HOSTILE)
        assert "<" not in chart.payload
        trace = sent(chart)["figure"]["data"][0]
        assert trace["name"] == HOSTILE
        # Plotly interprets tags and replaces %{...} in texts.
        assert "<script" not in trace["hovertemplate"]
        assert "%{x}" not in trace["hovertemplate"]

    def test_colours_come_from_stylesheet(self) -> None:
        text = str(self.long(2).payload) + str(
            pool_use_chart(TestPool().history(), TestPool.BADGES, at(9), pool="p", gpus=9).payload
        )
        assert "#" not in text
        assert "rgb" not in text


class TestAxis:
    @pytest.mark.parametrize("shown", [[0.995, 1.005], [1.0], [], [0.4, 3.0], [0.0, 0.01]])
    def test_covers_all_values_and_minimum_width(self, shown: list[float]) -> None:
        low, high = axis_range(shown, least=0.5, around=1.0)
        assert high - low >= 0.5
        assert all(low <= value <= high for value in [*shown, 1.0])

    def test_starts_at_floor(self) -> None:
        assert axis_range([0.0, 0.01], least=0.2)[0] == 0
        assert axis_range([-1.0], least=0.2, floor=None)[0] < -1


class TestPriceForecast:
    def test_extends_last_step_to_full_length(self) -> None:
        steps = [at(0), at(15), at(30)]
        points = tuple(ForecastInstant(one, Decimal(1), Decimal(2), Decimal(3)) for one in steps)
        view = PriceForecastRow("p", "a100", 1, steps[0], points, "", 0, 0)

        chart = forecast_chart(view, Decimal(2), steps[0], pool="p")

        for line in chart.series:
            assert list(line.keys) == [steps[0], *steps, at(45)]
            assert line.values[-1] == line.values[-2]

    def test_draws_single_point(self) -> None:
        point = ForecastInstant(T0, Decimal(1), Decimal(2), Decimal(3))
        chart = forecast_chart(
            PriceForecastRow("p", "a100", 1, T0, (point,), "", 0, 0), Decimal(2), T0, pool="p"
        )
        assert [len(line.values) for line in chart.series] == [3, 3, 3]
