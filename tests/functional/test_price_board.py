"""The price board: a chosen period, the price of one more GPU, and the forecast."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest

from billing.models import PostedPrice
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.units import CREDIT_MICRO
from scheduling.models import PriceForecast
from tests.functional.pool_stage import Stage


def one_more(page: str) -> str:
    """Return the row of the table as text."""
    table = page.partition('id="t-one-more"')[2].partition("</tbody>")[0].partition("<tbody>")[2]
    return " ".join(re.sub(r"<[^>]+>", " ", table).split())


class TestOneMoreGpu:
    def test_costs_posted_price_beyond_quota_and_shows_next_price(self, settled: Stage) -> None:
        now = PostedPrice.objects.order_by("-valid_from_round")[0]
        after = to_credits(posted_price_micro(CREDIT_MICRO, 2000, now.used + 1, now.capacity))
        row = one_more(settled.page("owner", settled.url("prices/")))
        lease = now.price * settled.lab.pool.lease_s / 3600
        assert row.startswith(f"v100 {now.price:.4f} {lease:.4f} {after:.4f}")

    def test_is_free_within_quota(self, settled: Stage) -> None:
        row = one_more(settled.page("neighbour", settled.url("prices/")))
        assert row.startswith("v100 0.0000 0.0000")
        assert "Own quota: 3 GPUs left." in row

    def test_is_shown_only_for_own_tenants(self, settled: Stage) -> None:
        own = settled.page("owner", settled.url("prices/"))
        assert one_more(settled.page("owner", settled.url("prices/?tenant=beta"))) == one_more(own)
        assert one_more(settled.page("operator", settled.url("prices/"))) == ""


class TestTimeWindow:
    @pytest.mark.parametrize("window", ["day", "week", "month", "year", "ever"])
    def test_is_selected_by_query_and_defaults_to_week(self, settled: Stage, window: str) -> None:
        page = settled.page("owner", settled.url(f"prices/?window={window}"))
        shown = re.search(r'<option value="(\w+)"\s+selected', page)
        assert shown is not None
        assert shown[1] == ("week" if window == "ever" else window)

    def test_includes_price_posted_in_its_first_days(self, settled: Stage) -> None:
        first = PostedPrice.objects.order_by("posted_at")[0]
        PostedPrice.objects.create(
            pool=first.pool, gpu_type=first.gpu_type, valid_from_round=0, price=Decimal("7.654321"),
            used=1, capacity=8, base=1, theta=2, event_number=0,
            posted_at=first.posted_at - timedelta(days=200),
        )  # fmt: skip
        assert "7.654321" in settled.page("owner", settled.url("prices/?window=year"))
        assert "7.654321" not in settled.page("owner", settled.url("prices/?window=month"))


class TestForecast:
    def test_states_missing_forecast(self, settled: Stage) -> None:
        page = settled.page("owner", settled.url("prices/"))
        assert "No reliable forecast of" in page
        assert "No forecast yet" in page

    def test_shows_quantiles_and_past_hit_rate(self, settled: Stage) -> None:
        last = PostedPrice.objects.order_by("-posted_at")[0]
        common = {"pool": last.pool, "gpu_type": last.gpu_type, "round": 3, "policy": "ltgf"}
        many = 60
        PriceForecast.objects.create(
            **common, at=last.posted_at, step_s=86_400, kept=True, points=8, hits=6,
            p10=[110_000] * many, p50=[220_000] * many, p90=[330_000] * many,
        )  # fmt: skip
        page = settled.page("owner", settled.url("prices/"))
        assert "No reliable forecast" not in page
        assert re.search(r"Of 8 later prices,\s+75", page)
        for amount in ("0.1100", "0.2200", "0.3300"):
            assert amount in page.partition('id="t-forecast-v100"')[2]
