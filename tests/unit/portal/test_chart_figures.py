"""Test that figures are plain dictionaries whose attributes and values `plotly` accepts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils import translation

from evenshare_core.domain.estimates import EstimateSource
from evenshare_core.estimation.evaluations import MetricPoint, StopCriterion
from portal.charts.explore.chart import PageChart, Series
from portal.charts.explore.coverage import coverage_chart
from portal.charts.explore.looks import LENT, OWN, line_look
from portal.charts.explore.metrics import metric_chart
from portal.charts.explore.prices import forecast_chart
from portal.charts.explore.revenue import AlphaCourse, alpha_chart
from scheduling.selectors.jobs.start_estimates import Calibration, CalibrationStep
from scheduling.selectors.jobs.stop_forecasts import MetricView, StopView
from scheduling.selectors.sharing.price_forecasts import ForecastInstant, PriceForecastRow
from tests.plotly_figures import drawn

T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
T1 = T0 + timedelta(hours=1)


def alphas() -> PageChart:
    course = AlphaCourse(
        "north", "alpha of north", "tenant-1", line_look(0), (1.2, None), (Decimal("0.5"),) * 2
    )
    return alpha_chart((T0, T1), (course,), key="k", title="t", file="f")


def coverage() -> PageChart:
    step = CalibrationStep(T0, 10, 9, 0, 0)
    return coverage_chart(Calibration(T0, T1, 10, 0, (step,), None), pool="p")


def metric() -> PageChart:
    stop = StopView(80, 60, 120, 0, EstimateSource.FITTED, "", 2, 20)
    points = (MetricPoint(10, 0.5), MetricPoint(20, 0.7))
    view = MetricView("accuracy", StopCriterion(0.9, 200), points, forecast=stop)
    return metric_chart(view, title="t", criterion_text="at least 0.9", file="f")


def prices() -> PageChart:
    point = ForecastInstant(T1, Decimal(1), Decimal(2), Decimal(3))
    view = PriceForecastRow("philly", "a100", 1, T0, (point,), "", 0, 0)
    return forecast_chart(view, Decimal(2), T0, pool="p")


def bars() -> PageChart:
    """Return vertical bars whose lengths are proportional to their values."""
    line = Series("n", "n, GPUs", [T0], [1], LENT, kind="bar", span_s=3600, shown=False)
    return PageChart("k", "t", "x", (line,), (-1.0, 1.0), "GPUs", "f")


class TestFigure:
    @pytest.mark.parametrize("chart", [alphas, coverage, metric, prices, bars])
    def test_uses_only_plotly_attributes(self, chart: Callable[[], PageChart]) -> None:
        assert drawn(chart()).data

    @pytest.mark.parametrize("kind", ["line", "area", "bar"])
    def test_rejects_invalid_colour(self, kind: str) -> None:
        look = type(OWN)("no colour", fill="no colour either")
        line = Series("n", "n", [T0], [1], look, kind=kind)
        with pytest.raises(ValueError, match="color"):
            drawn(PageChart("k", "t", "x", (line,), (0.0, 1.0), "GPUs", "f"))


class TestLanguage:
    def test_headings_and_marks_are_of_the_page_and_those_of_csv_english(self) -> None:
        with translation.override("de"):
            chart = alphas()
            assert chart.heads[2] == "verdient, Credits"
            assert [value for _, value in chart.rows[-1][1]] == ["1,2000", "0,5"]
            figure = chart.figure
        (trace,) = figure["data"]
        assert figure["layout"]["separators"] == ",."
        assert (trace["customdata"][0], trace["meta"]["also"]) == (["0.5"], ["earned, credits"])
        assert "verdient, Credits" in trace["hovertemplate"]
