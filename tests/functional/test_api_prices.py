"""Test the posted prices of a GPU type over REST: every round, with base, theta and use."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.metering import meter_pool
from billing.models import PostedPrice
from evenshare_core.money.pricing import posted_price_micro
from scheduling.models import PriceForecast
from tests.functional.api_stage import ApiStage, api_stage
from tests.stages import staged


def played_stage() -> ApiStage:
    stage = api_stage()
    for _ in range(3):
        stage.cluster.submit("aa", 1, 100_000)
        stage.cluster.round(after_s=60)
    meter_pool(stage.cluster.pool.pk)
    return stage


live = staged(played_stage)


class TestPriceHistory:
    def test_pages_through_all_prices_newest_first(self, live: ApiStage) -> None:
        path, seen = f"prices/{live.pool}/v100?limit=1", []
        answer = live.get(path).json()
        while True:
            seen += answer["results"]
            if answer["next"] is None:
                break
            answer = live.get(f"{path}&cursor={answer['next']}").json()
        rounds = PostedPrice.objects.order_by("-valid_from_round")
        assert [row["valid_from_round"] for row in seen] == [row.valid_from_round for row in rounds]
        assert len(seen) >= 3

    def test_price_follows_from_its_components(self, live: ApiStage) -> None:
        rows = live.get(f"prices/{live.pool}/v100").json()["results"]
        assert rows
        for row in rows:
            theta_milli = int(Decimal(row["theta"]) * 1000)
            base_micro = int(Decimal(row["base"]) * 1_000_000)
            price = posted_price_micro(base_micro, theta_milli, row["used"], row["capacity"])
            assert int(Decimal(row["price"]) * 1_000_000) == price

    def test_filters_by_time_range(self, live: ApiStage) -> None:
        whole = live.get(f"prices/{live.pool}/v100").json()["results"]
        since, until = whole[-1]["posted_at"], whole[0]["posted_at"]
        part = live.get(f"prices/{live.pool}/v100?since={since}&until={until}").json()["results"]
        assert [row["posted_at"] for row in part] == [
            row["posted_at"] for row in whole if since <= row["posted_at"] < until
        ]
        assert 0 < len(part) < len(whole)

    @pytest.mark.parametrize("query", ["since=monday", "until=2030-01-01", "since="])
    def test_names_invalid_time_parameter(self, live: ApiStage, query: str) -> None:
        answer = live.get(f"prices/{live.pool}/v100?{query}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == query.split("=", maxsplit=1)[0]

    def test_is_empty_before_first_posted_price(self, live: ApiStage) -> None:
        live.cluster.add_type("k80", nodes=1, gpus=4, quotas={})
        assert live.get(f"prices/{live.pool}/k80").json() == {"results": [], "next": None}

    def test_returns_404_for_unknown_type_or_pool(self, live: ApiStage) -> None:
        assert live.get(f"prices/{live.pool}/t4").status_code == 404
        assert live.get("prices/nowhere/v100").status_code == 404

    def test_cursor_is_rejected_by_another_list(self, live: ApiStage) -> None:
        cursor = live.get(f"prices/{live.pool}/v100?limit=1").json()["next"]
        assert cursor
        assert live.get(f"rounds?pool={live.pool}&cursor={cursor}").status_code == 400


class TestPriceForecasts:
    PATH = "price-forecasts/{}"

    def test_return_quantiles_and_past_hits_by_type(self, live: ApiStage) -> None:
        lab = live.cluster
        PriceForecast.objects.create(
            pool=lab.pool, gpu_type=lab.gpu_type, round=2, policy=lab.pool.policy, at=lab.at,
            step_s=3600, p10=[10] * 99, p50=[1_000_000] * 99, p90=[2_000_001] * 99, kept=True,
            points=5, hits=4,
        )  # fmt: skip
        (row,) = live.get(self.PATH.format(live.pool)).json()["results"]
        assert (row["gpu_type"], row["round"], row["reason"]) == ("v100", 2, "")
        assert (row["counted"], row["hits"]) == (5, 4)
        last = row["points"][-1]
        assert (last["p10"], last["p50"], last["p90"]) == ("0.000010", "1.000000", "2.000001")

    def test_missing_forecast_has_reason_none(self, live: ApiStage) -> None:
        (row,) = live.get(self.PATH.format(live.pool)).json()["results"]
        assert (row["points"], row["reason"], row["round"]) == ([], "none", None)
        assert live.get(self.PATH.format("nowhere")).status_code == 404
