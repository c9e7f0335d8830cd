"""Test forecasts of prices in the live portal: made with start estimates, kept, and counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.metering import count_forecasts, meter_pool
from billing.models import PostedPrice
from evenshare_core.units import HOUR_US
from scheduling.models import GpuType, Job, PriceForecast, PriceSetting, StartForecast
from scheduling.selectors.sharing.price_forecasts import price_forecasts
from scheduling.services import execute_forecast as executing
from scheduling.services import price_forecasts as service
from scheduling.services.forecasts import claim_forecast
from tests.factories import Cluster
from tests.integration.forecast_lab import busy_lab, forecast, known, lab_of, set_clock
from tests.stages import Stages


def capped_lab() -> Cluster:
    made = busy_lab()
    PriceSetting.objects.update(surcharge_cap=3)
    return made


def foreseen_lab() -> Cluster:
    made = capped_lab()
    forecast()
    return made


def idle_lab() -> Cluster:
    """Return a pool whose jobs have all ended, and which they filled in the past hours."""
    made = capped_lab()
    for _ in range(8):
        made.round(after_s=600)
    assert not Job.objects.filter(state__in=("pending", "running")).exists()
    return made


@pytest.fixture
def lab(stages: Stages) -> Iterator[Cluster]:
    with lab_of(stages, capped_lab) as made:
        yield made


@pytest.fixture
def foreseen(stages: Stages) -> Iterator[Cluster]:
    with lab_of(stages, foreseen_lab) as made:
        yield made


@pytest.fixture
def idle(stages: Stages) -> Iterator[Cluster]:
    with lab_of(stages, idle_lab) as made:
        yield made


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit forecasts to a quarter of an hour."""
    monkeypatch.setattr(service, "POINTS", 1)
    monkeypatch.setattr(executing, "HORIZON_US", HOUR_US // 4)


def one(lab: Cluster, **fields: Any) -> PriceForecast:
    values = {
        "pool": lab.pool, "gpu_type": GpuType.objects.get(), "round": 1, "policy": "ltgf",
        "at": lab.at, "step_s": 60, "kept": True,
    }  # fmt: skip
    return PriceForecast.objects.create(**{**values, **fields})


def posted(lab: Cluster, minutes: float, price: str) -> None:
    PostedPrice.objects.create(
        pool=lab.pool, gpu_type=GpuType.objects.get(), valid_from_round=10_000 + int(minutes * 10),
        price=Decimal(price), used=0, capacity=8, base=1, theta=2, event_number=1,
        posted_at=lab.at + timedelta(minutes=minutes),
    )  # fmt: skip


class TestPriceForecast:
    def test_is_made_with_start_estimates_of_same_round(self, foreseen: Cluster) -> None:
        lab, row = foreseen, StartForecast.objects.get()
        made = PriceForecast.objects.get()
        assert (made.round, made.policy, made.kept) == (row.round, lab.pool.policy, True)
        assert len(made.p10) == len(made.p50) == len(made.p90) == service.POINTS
        view = price_forecasts(lab.pool.pk, now=lab.at)["v100"]
        assert view.points[0].at == made.at + service.STEP
        assert all(point.p10 <= point.p50 <= point.p90 for point in view.points)
        late = price_forecasts(lab.pool.pk, now=made.at + timedelta(hours=7))["v100"]
        assert (late.points, late.reason) == ((), "passed")

    @pytest.mark.usefixtures("foreseen")
    def test_keeps_start_estimates_unchanged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = StartForecast.objects.get()
        with_prices = list(row.estimates.order_by("job").values_list("job", "p50", "p90"))
        row.estimates.all().delete()
        row.delete()
        monkeypatch.setattr(service, "POINTS", 1)
        again = forecast()
        assert list(again.estimates.order_by("job").values_list("job", "p50", "p90")) == with_prices

    @pytest.mark.usefixtures("few_points")
    def test_is_replaced_by_next_except_one_per_hour(self, foreseen: Cluster) -> None:
        lab = foreseen
        for _ in range(2):
            lab.round(after_s=30)
            set_clock(lab)
            forecast()
        assert sorted(PriceForecast.objects.values_list("kept", flat=True)) == [False, True]
        lab.round(after_s=3600)
        set_clock(lab)
        forecast()
        assert list(PriceForecast.objects.values_list("kept", flat=True)) == [True, True]

    @pytest.mark.usefixtures("few_points")
    def test_explains_missing_forecast(self, lab: Cluster) -> None:
        lab.pool.jobs.filter(state="succeeded").update(state="cancelled")
        forecast()
        assert PriceForecast.objects.get().reason == "too_little_known"
        assert price_forecasts(lab.pool.pk, now=lab.at)["v100"].why.startswith("Too few jobs")


class TestEmptyQueue:
    def test_forecast_includes_past_arrivals(self, idle: Cluster) -> None:
        """The idle pool's price is 0 now. Jobs that arrive as in the past will raise it."""
        row = forecast()
        assert not row.estimates.exists()
        assert row.facts["prices"] == {"v100": 0}
        made = PriceForecast.objects.get()
        assert len(made.p90) == service.POINTS
        assert min(made.p10) == 0
        assert max(made.p90) > 0
        view = price_forecasts(idle.pool.pk, now=idle.at)["v100"]
        assert (view.reason, view.round) == ("", row.round)
        again = PriceForecast.objects.values_list("p10", "p50", "p90").get()
        PriceForecast.objects.all().delete()
        StartForecast.objects.all().delete()
        forecast()  # the same round, so the same random numbers
        assert PriceForecast.objects.values_list("p10", "p50", "p90").get() == again

    @pytest.mark.usefixtures("few_points")
    def test_next_forecast_is_made_after_15_minutes_of_pool_time(self, idle: Cluster) -> None:
        forecast()
        for minutes, is_due in ((1, False), (13, False), (2, True)):
            StartForecast.objects.update(rest_until=None)
            idle.round(after_s=minutes * 60)
            set_clock(idle)
            claimed = claim_forecast()
            assert (claimed is not None) is is_due, minutes

    @pytest.mark.usefixtures("few_points")
    def test_forecast_is_missing_if_too_little_is_known(self, idle: Cluster) -> None:
        """No job of unknown length runs, and no job is expected to arrive."""
        idle.pool.jobs.filter(state="succeeded").update(state="cancelled")
        forecast()
        assert PriceForecast.objects.get().reason == "too_little_known"


class TestMissedBands:
    @pytest.mark.parametrize(
        ("points", "hits", "reason"), [(48, 23, "missed"), (48, 24, ""), (47, 0, "")]
    )
    def test_are_hidden_after_enough_points_were_counted(
        self, lab: Cluster, points: int, hits: int, reason: str
    ) -> None:
        old = lab.at - timedelta(hours=9)
        one(lab, at=old, p10=[1], p50=[1], p90=[1], points=points, hits=hits)
        one(lab, kept=False, p10=[1], p50=[2], p90=[3])
        view = price_forecasts(lab.pool.pk, now=lab.at)["v100"]
        assert (view.reason, bool(view.points)) == (reason, not reason)
        assert (view.counted, view.hits) == (points, hits)
        assert view.why.startswith("More than half") is bool(reason)


class TestHitCount:
    def test_compares_price_in_force_at_each_past_point(self, lab: Cluster) -> None:
        bands = {"p10": [10, 10, 10, 10], "p50": [15] * 4, "p90": [20, 20, 20, 20]}
        row = one(lab, **bands)
        posted(lab, 0.5, "0.000010")  # in force at minute 1, at the edge of the band
        posted(lab, 1.5, "0.000021")  # at minute 2: above the band
        assert count_forecasts(lab.pool.pk) == 1
        row.refresh_from_db()
        assert (row.points, row.hits) == (1, 1)
        posted(lab, 3, "0.000009")  # posted at minute 3: below the band
        count_forecasts(lab.pool.pk)
        row.refresh_from_db()
        assert (row.points, row.hits) == (3, 1)
        posted(lab, 9, "0.000020")  # no price since minute 3, so at minute 4 it is still below
        count_forecasts(lab.pool.pk)
        assert count_forecasts(lab.pool.pk) == 0
        row.refresh_from_db()
        assert (row.points, row.hits) == (4, 1)
        view = price_forecasts(lab.pool.pk, now=lab.at)["v100"]
        assert (view.counted, view.hits, view.hit_rate) == (4, 1, 0.25)

    def test_omits_unkept_forecasts_and_other_policies(self, lab: Cluster) -> None:
        bands = {"p10": [0], "p50": [0], "p90": [10**9]}
        one(lab, kept=False, **bands)
        one(lab, policy="fifo", at=lab.at - timedelta(hours=1), **bands)
        posted(lab, 5, "1")
        assert count_forecasts(lab.pool.pk) == 1
        view = price_forecasts(lab.pool.pk, now=lab.at)["v100"]
        assert (view.counted, view.hit_rate) == (0, None)

    def test_seeded_history_hits_more_than_half(self, foreseen: Cluster) -> None:
        """Forecasts promise that four of five prices are in the band.

        In one history it must be over half.
        """
        lab = foreseen
        for _ in range(40):
            lab.round(after_s=600)
        while meter_pool(lab.pool.pk).events:
            pass
        count_forecasts(lab.pool.pk)
        row = PriceForecast.objects.get()
        assert row.points == service.POINTS
        assert row.hits > row.points / 2
        assert known(row.at) < lab.at
