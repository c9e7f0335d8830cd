"""Test the charts on the page of a pool's GPU type: its use, and quotas after trades."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from portal.charts.explore.uses import pool_quota_chart, pool_rho_chart, pool_use_chart
from portal.charts.tenants import OTHERS, TenantBadge
from scheduling.selectors.rounds.histories import PoolHistory, TenantCourse
from scheduling.selectors.visibility import VisibleTenant
from tests.plotly_figures import drawn

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
END = START + timedelta(minutes=9)
SMALL = TenantBadge("small", OTHERS, "··")
BADGES = {1: TenantBadge("north", 3, "NO"), 2: TenantBadge("south", 9, "SO"), 3: SMALL, 4: SMALL}


def traded(swapped: tuple[int, int], *, hidden: bool = False) -> PoolHistory:
    """Return a history with two tenants that traded GPUs and two small tenants."""
    seen = [VisibleTenant(n, n, BADGES[n].name, "", 0) for n in BADGES]
    rows = (
        (seen[0], 3, swapped),
        (seen[1], 3, (-swapped[0], -swapped[1])),
        (seen[2], 1, (0, 0)),
        (None if hidden else seen[3], 2, (0, 0)),
    )
    return PoolHistory(
        (START, START + timedelta(minutes=5)),
        tuple(
            TenantCourse(tenant, (0, 1), (None, 1.0), (), (gpus + more[0], gpus + more[1]), more)
            for tenant, gpus, more in rows
        ),
    )


class TestQuotaAfterTrades:
    def test_is_step_line_per_tenant(self) -> None:
        chart = pool_quota_chart(traded((0, 2)), BADGES, END, pool="p", gpu_type="v100")
        rows = {trace.name: list(trace.y) for trace in drawn(chart).data}
        assert rows == {"north": [3, 5, 5], "south": [3, 1, 1], "other tenants": [3, 3, 3]}
        assert {trace.line.shape for trace in drawn(chart).data} == {"hv"}
        assert chart.heads[1] == "quota of north after trades, v100 GPUs"
        assert chart.file == "quota-p-v100"
        assert chart.y[1] >= 5
        assert [label.value for label in chart.labels] == [5, 1, 3]
        keys = [trace.meta["key"] for trace in drawn(chart).data]
        assert keys == ["tenant-1", "tenant-2", "others"]

    @pytest.mark.parametrize(
        ("swapped", "hidden", "title"),
        [
            ((0, 2), False, "Trades move 2 v100 of quota now"),
            ((2, -1), False, "Trades move 1 v100 of quota now"),
            ((2, 0), False, "Trades move no quota of v100 now"),
            ((0, 0), False, "Quota of v100, by tenant"),
            # Trades among hidden tenants are unknown.
            ((0, 2), True, "Quota of v100, by tenant"),
        ],
    )
    def test_title_shows_traded_quota(
        self, swapped: tuple[int, int], hidden: bool, title: str
    ) -> None:
        history = traded(swapped, hidden=hidden)
        assert pool_quota_chart(history, {}, END, pool="p", gpu_type="v100").title == title


class TestUse:
    def test_names_single_gpu_type(self) -> None:
        history = traded((0, 0))
        chart = pool_use_chart(history, BADGES, END, pool="p", gpus=16, gpu_type="v100")
        assert (chart.title, chart.file) == ("4 v100 in use, by tenant", "use-p-v100")
        assert chart.text.startswith("Of 16 v100.")
        assert chart.heads[1] == "v100 GPUs in use by north"

    def test_rho_text_states_that_it_covers_all_types(self) -> None:
        rho = pool_rho_chart(traded((0, 0)), BADGES, END, pool="p", of_all=True)
        assert rho.text.startswith("All GPU types together.")
        assert "Of all" not in pool_rho_chart(traded((0, 0)), BADGES, END, pool="p").text
