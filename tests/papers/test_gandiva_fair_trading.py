"""Trading of Gandiva_fair: Table 3, two users, E1 of OEF's paper with a misreport, and undo."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.decision import Swap, Trade
from evenshare_core.policies.gandiva_fair.trading import (
    LEAST_MICRO,
    Trader,
    changes_of,
    holdings_after,
    new_trades,
    undo_wrong,
    whole_swaps,
)
from evenshare_core.units import GPU_MICRO, ONE_MILLI

TYPES = ("k80", "v100")
ENDLESS = 10**15


def trader(tenant: int, speed: float, k80: float, v100: float, usable: int = ENDLESS) -> Trader:
    """Return a trader with quotas in GPUs; `speed` is the speed of a V100 relative to a K80."""
    quota = {"k80": round(k80 * GPU_MICRO), "v100": round(v100 * GPU_MICRO)}
    return Trader(tenant, {"k80": ONE_MILLI, "v100": round(speed * ONE_MILLI)}, quota, usable)


def quanta(traders: Sequence[Trader], count: int) -> list[Trade]:
    trades: list[Trade] = []
    for number in range(count):
        trades += new_trades(traders, trades, TYPES, number)
    return trades


TABLE_3 = [trader(1, 1.25, 20, 4), trader(2, 5, 20, 4), trader(3, 6.25, 20, 4)]


class TestTable3:
    """On 12 V100s and 60 K80s, the tenants' throughputs of 25, 40 and 45 become 40, 40 and 50."""

    def test_trades_at_the_second_price(self) -> None:
        trades = quanta(TABLE_3, 10)
        assert len(trades) == 4
        assert {(row.buyer, row.seller, row.rate_micro) for row in trades} == {(3, 1, 5_000_000)}
        assert {(row.bought_micro, row.sold_micro) for row in trades} == {(10**6, 5 * 10**6)}

    def test_throughputs_match_table_3(self) -> None:
        before = [one.throughput(one.quota) / 10**9 for one in TABLE_3]
        after = holdings_after(TABLE_3, quanta(TABLE_3, 10))
        assert before == [25, 40, 45]
        assert after[1] == {"k80": 40 * GPU_MICRO, "v100": 0}
        assert after[2] == {"k80": 20 * GPU_MICRO, "v100": 4 * GPU_MICRO}
        assert after[3] == {"k80": 0, "v100": 8 * GPU_MICRO}
        assert [one.throughput(after[one.tenant]) / 10**9 for one in TABLE_3] == [40, 40, 50]

    def test_swaps_are_whole_gpus(self) -> None:
        assert whole_swaps(quanta(TABLE_3, 10)) == (
            Swap(1, "k80", 20), Swap(1, "v100", -4), Swap(3, "k80", -20), Swap(3, "v100", 4),
        )  # fmt: skip


class TestTwoTenants:
    def test_trade_shares_surplus(self) -> None:
        (trade,) = quanta([trader(1, 1.25, 8, 4), trader(2, 5, 8, 4)], 1)
        assert trade.rate_micro == 3_125_000
        assert (trade.bought_micro, trade.sold_micro) == (GPU_MICRO, 3_125_000)
        swaps = {(row.tenant, row.gpu_type): row.gpus for row in whole_swaps([trade])}
        assert swaps == {(1, "k80"): 3, (1, "v100"): -1, (2, "k80"): -3, (2, "v100"): 1}

    @pytest.mark.parametrize("fast", [0.333_333, 0.123_457, 0.010_001])
    def test_fractional_trade_leaves_seller_no_worse_off(self, fast: float) -> None:
        """At the second price a seller gains nothing, so rounding down would cause a loss."""
        seller = trader(1, 1.7, 0, fast)
        traders = [seller, trader(2, 1.7, 8, 0), trader(3, 6, 8, 0)]
        (trade,) = quanta(traders, 1)
        assert (trade.seller, trade.rate_micro) == (1, 1_700_000)
        after = holdings_after(traders, [trade])
        assert seller.throughput(after[1]) >= seller.throughput(seller.quota)

    def test_equal_speedups_do_not_trade(self) -> None:
        assert not quanta([trader(1, 2, 8, 4), trader(2, 2, 8, 4)], 3)


class TestOefExampleE1:
    """Speedups are (1, 2), (1, 3) and (1, 4); each tenant has a third of a GPU of each type."""

    @pytest.mark.parametrize(
        ("told", "rates", "shares", "total"),
        [
            (2.0, [3, 2.5], [0.088889, 0.466667, 0.444444], [1.177778, 1.4, 1.777778]),
            (2.8, [3, 2.9], [0.107280, 0.448276, 0.444444], [1.214559, 1.344828, 1.777778]),
        ],
    )
    def test_trades_give_expected_rates_and_shares(
        self, told: float, rates: list[float], shares: list[float], total: list[float]
    ) -> None:
        third = Fraction(1, 3)
        traders = [trader(i, speed, float(third), float(third))
                   for i, speed in ((1, told), (2, 3), (3, 4))]  # fmt: skip
        trades = quanta(traders, 5)
        assert [row.rate_micro / GPU_MICRO for row in trades] == rates
        after = holdings_after(traders, trades)
        assert [after[i]["v100"] / GPU_MICRO for i in (1, 2, 3)] == pytest.approx(shares, abs=1e-5)
        true = [trader(i, speed, 0, 0) for i, speed in ((1, 2), (2, 3), (3, 4))]
        got = [one.throughput(after[one.tenant]) / 10**9 for one in true]
        assert got == pytest.approx(total, abs=1e-5)


class TestUndo:
    def test_keeps_trades_without_changes(self) -> None:
        trades = quanta(TABLE_3, 4)
        assert undo_wrong(trades, {one.tenant: one for one in TABLE_3}, 9) == (trades, [])

    def test_restores_fair_share_after_departure(self) -> None:
        trades = quanta(TABLE_3, 4)
        here = {one.tenant: one for one in TABLE_3[1:]}
        standing, undone = undo_wrong(trades, here, 9)
        assert not standing
        assert undone == [replace(row, rate_micro=-row.rate_micro, at_us=9) for row in trades[::-1]]

    @pytest.mark.parametrize("speed", [5.6, 7.0])
    def test_undoes_trades_after_speed_change(self, speed: float) -> None:
        trades = quanta(TABLE_3, 2)
        now = {one.tenant: one for one in [*TABLE_3[:2], trader(3, speed, 20, 4)]}
        standing, undone = undo_wrong(trades, now, 9)
        assert (len(standing), len(undone)) == (0, 2)

    @pytest.mark.parametrize("party", [1, 2])
    def test_undoes_trade_below_worth_of_quota(self, party: int) -> None:
        """Both speeds changed by less than 10 %, but at this price one tenant now loses."""
        traders = [trader(1, 3, 8, 4), trader(2, 3.2, 8, 4)]
        trades = quanta(traders, 1)
        assert [row.rate_micro for row in trades] == [3_100_000]
        now = {one.tenant: one for one in traders}
        assert undo_wrong(trades, now, 9) == (trades, [])
        now[party] = trader(party, {1: 3.15, 2: 3.05}[party], 8, 4)
        assert len(undo_wrong(trades, now, 9)[1]) == 1

    def test_undoes_newest_first_until_quota_suffices(self) -> None:
        """The buyer's quota of K80s falls to 12, which pays for two of the four trades."""
        trades = quanta(TABLE_3, 4)
        now = {one.tenant: one for one in [*TABLE_3[:2], trader(3, 6.25, 12, 4)]}
        standing, undone = undo_wrong(trades, now, 9)
        assert (standing, len(undone)) == (trades[:2], 2)
        assert holdings_after(now.values(), standing)[3]["k80"] == 2 * GPU_MICRO

    def test_undoes_trades_if_seller_can_use_less(self) -> None:
        """After four trades the seller has 40 K80s; its jobs can use 32, so two are undone."""
        trades = quanta(TABLE_3, 4)
        now = {one.tenant: one for one in TABLE_3}
        now[1] = now[1]._replace(usable=32 * GPU_MICRO)
        assert undo_wrong(trades, now, 9)[0] == trades[:2]


class TestJobsLimitedToSomeTypes:
    def test_buyer_gets_what_small_jobs_can_use(self) -> None:
        """The buyer has 4 V100s, and its jobs can use 5.5, so it buys 1.5."""
        buyer = TABLE_3[2]._replace(within=((("v100",), 5_500_000),))
        after = holdings_after([TABLE_3[0], buyer], quanta([TABLE_3[0], buyer], 9))
        assert after[3]["v100"] == 5_500_000

    def test_next_tenant_buys_after_first_is_full(self) -> None:
        full = TABLE_3[2]._replace(within=((("v100",), 4 * GPU_MICRO),))
        trades = quanta([*TABLE_3[:2], full], 9)
        assert {row.buyer for row in trades} == {2}
        assert {row.rate_micro for row in trades} == {3_125_000}

    def test_seller_takes_what_its_jobs_can_use(self) -> None:
        seller = TABLE_3[0]._replace(within=((("k80",), 22 * GPU_MICRO),))
        trades = quanta([seller, TABLE_3[2]], 9)
        assert {row.seller for row in trades} == {1}
        after = holdings_after([seller, TABLE_3[2]], trades)
        assert 22 * GPU_MICRO - LEAST_MICRO < after[1]["k80"] <= 22 * GPU_MICRO

    def test_undoes_trades_after_small_jobs_end(self) -> None:
        trades = quanta(TABLE_3, 4)
        now = {one.tenant: one for one in TABLE_3}
        now[3] = now[3]._replace(within=((("v100",), 6 * GPU_MICRO),))
        assert undo_wrong(trades, now, 9)[0] == trades[:2]


pools = st.lists(
    st.tuples(
        st.integers(1000, 9000), st.integers(500, 9000), st.integers(0, 8 * GPU_MICRO),
        st.integers(0, 8 * GPU_MICRO), st.integers(0, 8 * GPU_MICRO),
        st.integers(0, 30 * GPU_MICRO), st.integers(0, 30 * GPU_MICRO),
    ),
    max_size=6,
)  # fmt: skip
THREE = ("k80", "p100", "v100")


def drawn(rows: Sequence[tuple[int, ...]]) -> list[Trader]:
    traders = []
    for tenant, (fast, middle, one, two, three, spare, fits) in enumerate(rows, start=1):
        speeds = {"k80": 1000, "p100": middle, "v100": fast}
        quota = dict(zip(THREE, (one, two, three), strict=True))
        within = ((("p100", "v100"), two + three + fits), (("v100",), three + fits // 3))
        traders.append(Trader(tenant, speeds, quota, one + two + three + spare, within))
    return traders


class TestTradeInvariants:
    @given(pools)
    def test_conserves_gpus_and_no_tenant_is_worse_off(self, rows: list[tuple[int, ...]]) -> None:
        traders = drawn(rows)
        trades: list[Trade] = []
        for number in range(4):
            new = new_trades(traders, trades, THREE, number)
            for trade in new:
                assert trade.bought_micro >= LEAST_MICRO
                trades.append(trade)
                after = holdings_after(traders, trades)
                for name in THREE:
                    before = sum(one.quota[name] for one in traders)
                    assert sum(row[name] for row in after.values()) == before
                for one in traders:
                    gpus = after[one.tenant]
                    assert min(gpus.values()) >= 0
                    assert sum(gpus.values()) <= one.usable
                    assert all(
                        sum(gpus[name] for name in names) <= most for names, most in one.within
                    )
                    assert one.throughput(gpus) >= one.throughput(one.quota)
        assert undo_wrong(trades, {one.tenant: one for one in traders}, 9) == (trades, [])

    @given(pools)
    def test_undo_reverts_all_changes(self, rows: list[tuple[int, ...]]) -> None:
        traders = drawn(rows)
        trades = quanta_of(traders)
        assert not any(changes_of([*trades, *(_back(row) for row in trades)]).values())
        _, undone = undo_wrong(trades, {}, 9)
        assert [row.rate_micro for row in undone] == [-row.rate_micro for row in trades[::-1]]

    @given(pools)
    def test_swaps_of_each_type_sum_to_zero(self, rows: list[tuple[int, ...]]) -> None:
        whole = [(a, b, c // GPU_MICRO * GPU_MICRO, d // GPU_MICRO * GPU_MICRO,
                  e // GPU_MICRO * GPU_MICRO, f, g) for a, b, c, d, e, f, g in rows]  # fmt: skip
        traders = drawn(whole)
        swaps = whole_swaps(quanta_of(traders))
        by_tenant = {one.tenant: one for one in traders}
        for name in THREE:
            assert sum(row.gpus for row in swaps if row.gpu_type == name) == 0
        for row in swaps:
            assert by_tenant[row.tenant].quota[row.gpu_type] + row.gpus * GPU_MICRO >= 0


def quanta_of(traders: Sequence[Trader]) -> list[Trade]:
    trades: list[Trade] = []
    for number in range(4):
        trades += new_trades(traders, trades, THREE, number)
    return trades


def _back(trade: Trade) -> Trade:
    return replace(trade, bought_micro=-trade.bought_micro, sold_micro=-trade.sold_micro)
