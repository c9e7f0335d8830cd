"""Test start forecasts: the order of pools, the pauses in between, and the rows read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections
from django.test.utils import CaptureQueriesContext

from scheduling.engine.clock import wall_now
from scheduling.models import (
    Job,
    StartForecast,
)
from scheduling.selectors.jobs.start_estimates import read_starts
from scheduling.services import execute_forecast as executing
from scheduling.services import forecasts as service
from scheduling.services import price_forecasts as prices
from tenants.scopes import site_scope
from tests.factories import Cluster, cluster
from tests.integration.forecast_lab import (
    forecast,
    known,
    lab_of,
    set_clock,
)
from tests.stages import Stages


@pytest.fixture
def lab(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(prices, "POINTS", 1)
    with lab_of(stages) as made:
        yield made


class Clock:
    """A stopped wall clock, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = wall_now()
        self.begun: list[tuple[int, str]] = []
        for module in (service, executing):
            monkeypatch.setattr(module, "wall_now", lambda: self.now)

    def begins_after(self, seconds: int) -> bool:
        """Return whether a forecast starts `seconds` later."""
        self.now += timedelta(seconds=seconds)
        begun = service.claim_forecast()
        if begun is not None:
            self.begun.append(begun)
        return begun is not None


class TestForecastTurn:
    def test_requires_queue_and_new_round(self, lab: Cluster) -> None:
        forecast()
        StartForecast.objects.update(rest_until=None)
        assert service.claim_forecast() is None, "no round since"
        lab.round(after_s=30)
        assert forecast().state == "done"
        lab.round(after_s=30)
        set_clock(lab)
        StartForecast.objects.update(rest_until=None)
        Job.objects.filter(state="pending").update(state="cancelled", ended_at=lab.at)
        assert service.claim_forecast() is None, "nobody is queued, and prices were just forecast"

    def test_waits_four_times_cpu_time_of_last_forecast(self, lab: Cluster) -> None:
        row = forecast(cpu=lambda: 7500.5)  # The pause is longer than any round takes here.
        assert row.cpu_ms == 7_500_500
        assert known(row.rest_until) - known(row.ended_at) == timedelta(seconds=30_002)
        lab.round(after_s=30)
        assert service.claim_forecast() is None
        StartForecast.objects.update(rest_until=wall_now())
        assert service.claim_forecast() is not None

    def test_waits_four_times_cpu_time_of_failed_forecast(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ValueError("boom")

        clock = Clock(monkeypatch)
        monkeypatch.setattr(executing, "estimate_starts", fail)
        row = forecast(cpu=lambda: 50.0)
        assert (row.state, row.cpu_ms, row.ended_at) == ("failed", 50_000, clock.now)
        assert not clock.begins_after(199)
        assert clock.begins_after(2)

    def test_waits_four_times_elapsed_time_of_lost_forecast(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lost process's CPU time is unknown.

        It is at most the time since the process started.
        """
        clock = Clock(monkeypatch)
        first = service.claim_forecast()
        assert first is not None
        clock.now += timedelta(seconds=40)
        service.beat_forecast(*first)
        clock.now += timedelta(seconds=60)
        assert service.fail_lost_forecasts() == 0
        clock.now += timedelta(seconds=1)
        assert service.fail_lost_forecasts() == 1
        assert StartForecast.objects.get().cpu_ms == 101_000
        assert not clock.begins_after(403)
        assert clock.begins_after(2)

    def test_failing_pool_does_not_delay_others(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch)
        first = service.claim_forecast()
        assert first is not None
        service.give_up_forecast(*first, "x", cpu_s=0.5)
        assert not clock.begins_after(9)
        assert not clock.begins_after(10), "its own pool waits for two minutes"
        other = cluster({"west": 4}, nodes=1, round_s=30)
        other.submit("west", 4, 600)
        other.submit("west", 4, 600)
        other.round()
        assert clock.begins_after(0)
        assert StartForecast.objects.latest("pk").pool == other.pool
        service.give_up_forecast(*clock.begun[-1], "x", cpu_s=0.5)
        assert not clock.begins_after(100)
        assert clock.begins_after(2)
        assert StartForecast.objects.latest("pk").pool == lab.pool

    def test_pools_take_turns_and_oldest_forecast_comes_first(self, lab: Cluster) -> None:
        other = cluster({"west": 4}, nodes=1, round_s=30)
        other.submit("west", 4, 600)
        other.submit("west", 4, 600)
        other.round()
        first = forecast()
        assert first.pool == lab.pool
        lab.round(after_s=30)
        StartForecast.objects.update(rest_until=None)
        claimed = service.claim_forecast()
        assert claimed is not None
        assert StartForecast.objects.get(pk=claimed[0]).pool == other.pool
        assert service.claim_forecast() is None
        with pytest.raises(IntegrityError, match="forecast_one_runs"):
            StartForecast.objects.create(
                pool=lab.pool, claim="x", started_at=wall_now(), beat_at=wall_now()
            )


PAST = """
INSERT INTO scheduling_startforecast (pool_id, state, claim, policy, round, at, until, facts,
    error, started_at, beat_at, ended_at, cpu_ms, rest_until)
SELECT pool_id, state, claim, policy, round, at, until, facts, error, started_at, beat_at,
    ended_at, cpu_ms, NULL
FROM scheduling_startforecast, generate_series(1, 5000) ORDER BY generate_series
"""


def rows_read(table: str, call: Callable[[], Any]) -> int:
    """Return how many rows of a table the queries of a call read, by their query plans."""

    def count(plan: dict[str, Any]) -> float:
        mine = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        own = mine * plan["Actual Loops"] if plan.get("Relation Name") == table else 0
        return float(own) + sum(count(below) for below in plan.get("Plans", ()))

    with CaptureQueriesContext(connection) as context:
        call()
    asked = [row["sql"] for row in context.captured_queries if row["sql"].startswith("SELECT")]
    total = 0.0
    for sql in asked:
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql.replace("%", "%%"))
            total += count(cursor.fetchone()[0][0]["Plan"])
    return int(total)


class TestMonthOfForecasts:
    def test_reads_few_rows_for_newest_forecast(self, lab: Cluster) -> None:
        """The test has two pools, because a list of jobs reads the forecasts of all its pools."""
        other = cluster({"west": 4}, nodes=1, round_s=30)
        other.submit("west", 4, 600)
        other.submit("west", 4, 600)
        other.round()
        forecasts = [forecast(), forecast()]
        jobs = list(Job.objects.filter(state="pending").values_list("pk", flat=True))
        with connection.cursor() as cursor:
            cursor.execute(PAST)
        with connections["owner"].cursor() as cursor:  # no other user may see it
            cursor.execute("ANALYZE scheduling_startforecast")
        now = {row.pool_id: lab.at for row in forecasts}
        table = StartForecast._meta.db_table
        with site_scope():
            assert rows_read(table, lambda: read_starts(now, jobs)) < 20
        assert rows_read(table, service.claim_forecast) < 20, "no round since: it looked at both"
