"""The trades line of certificates: it is measured without the policy, and red for a false trade."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Swap, Trade
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate, CertificateItem, Property, Verdict
from evenshare_core.fairness.trades import check_trades, trade_sides
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.units import GPU_MICRO

from .quanta import jobs_of, pool, quanta
from .test_gandiva_fair_properties import rounds

# speed of a V100 over a K80 by tenant, in thousandths: Table 3 of the paper
SPEEDS = {1: 1250, 2: 5000, 3: 6250}


def traded(count: int = 2) -> list[tuple[Snapshot, Decision]]:
    """Return quanta of Table 3; the first tenant has no jobs from the seventh quantum on."""
    profiles = [Profile(t, t, (("k80", 1000), ("v100", v))) for t, v in SPEEDS.items()]
    cluster = pool({"k80": [4] * 15, "v100": [4] * 3}, profiles)
    jobs = jobs_of((1, 60, 1), (2, 60, 1), (3, 60, 1), profile={1: 1, 2: 2, 3: 3}, ends={1: 6})
    tickets = {(t, name): gpus for t in SPEEDS for name, gpus in (("k80", 20), ("v100", 4))}
    return [(row.snapshot, row.decision) for row in quanta(cluster, tickets, jobs, count)]


def trades_line(found: Certificate) -> CertificateItem:
    assert not found.failure
    return next(row for row in found.findings if row.name is Property.TRADES)


def certified(snapshot: Snapshot, decision: Decision) -> CertificateItem:
    return trades_line(certify_round(snapshot, decision))


class TestHonestTrades:
    def test_holds_and_shows_tenant_with_least_gain(self) -> None:
        """A V100 costs five K80s; it is worth 1.25 K80s to the seller and 6.25 to the buyer."""
        snapshot, decision = traded(1)[0]
        row = certified(snapshot, decision)
        assert (row.verdict, row.checked, row.count) == (Verdict.HOLDS, 1, 0)
        assert (row.worst, row.tenant, row.other) == (1.25, 3, 1)
        assert row.total == 6  # one tenant got five K80s, the other one V100
        buyer, seller = trade_sides(decision.trades[0])
        assert (float(buyer.gave), float(buyer.received)) == (5, 6.25)
        assert (float(seller.gave), float(seller.received)) == (1.25, 5)

    def test_holds_with_only_earlier_trades(self) -> None:
        snapshot, decision = traded(6)[-1]
        row = certified(snapshot, decision)
        assert not decision.trades
        assert (row.verdict, row.checked, row.worst, row.total) == (Verdict.HOLDS, 0, None, 24)

    def test_holds_for_undone_trades(self) -> None:
        snapshot, decision = traded(7)[-1]
        row = certified(snapshot, decision)
        assert {trade.rate_micro for trade in decision.trades} == {-5_000_000}
        assert (row.verdict, row.checked, row.worst) == (Verdict.HOLDS, 4, None)

    def test_is_not_applicable_without_trades(self) -> None:
        snapshot, _ = traded(1)[0]
        quiet = replace(snapshot, options={"trading": False})
        row = certified(quiet, decide_round(quiet))
        assert (row.verdict, row.why) == (
            Verdict.NOT_APPLICABLE, "nothing was traded in this round, and no trade stands",
        )  # fmt: skip

    def test_other_policies_have_no_finding(self) -> None:
        snapshot, _ = traded(1)[0]
        other = replace(snapshot, policy="ltgf", options={}, memory={})
        found = certify_round(other, decide_round(other))
        assert Property.TRADES not in {row.name for row in found.findings}


class TestInvalidTrade:
    @pytest.mark.parametrize(
        "changes",
        [
            {"seller": 3},
            {"sold_type": "v100"},
            {"bought_micro": 0},
            {"rate_micro": 7_000_000, "sold_micro": 7_000_000},  # a price above the buyer's value
            {"rate_micro": 1_200_000, "sold_micro": 1_200_000},  # a price below the seller's value
            {"sold_micro": 5_000_003},
            {"sold_micro": 4_999_997},
            # The price would be correct if the buyer's jobs were so much faster.
            {"rate_micro": 7_000_000, "sold_micro": 7_000_000, "buyer_rate_micro": 7_000_000},
            {"seller_rate_micro": 1_000_000},
        ],
        ids=str,
    )
    def test_is_violation(self, changes: dict[str, Any]) -> None:
        snapshot, decision = traded(1)[0]
        wrong = replace(decision, trades=(replace(decision.trades[0], **changes),))
        row = certified(snapshot, wrong)
        assert row.verdict is Verdict.VIOLATED
        assert set(row.broken) <= {1, 3}
        assert row.count == len(row.broken) > 0

    def test_invalid_undo_is_violation(self) -> None:
        snapshot, decision = traded(7)[-1]
        wrong = replace(decision.trades[0], sold_micro=GPU_MICRO)
        row = certified(snapshot, replace(decision, trades=(wrong, *decision.trades[1:])))
        assert row.verdict is Verdict.VIOLATED

    def test_both_parties_are_worse_off_below_own_worth(self) -> None:
        trade = Trade("v100", GPU_MICRO, 1, "k80", 3 * GPU_MICRO, 2, 3 * GPU_MICRO,
                      2_500_000, 3_500_000, 0)  # fmt: skip
        assert [side.is_worse for side in trade_sides(trade)] == [True, True]

    @pytest.mark.parametrize(
        "swap",
        [
            Swap(1, "k80", 1),  # quota that no other tenant gave away
            Swap(1, "v100", -1),  # quota that tenant 1 gives away twice
        ],
    )
    def test_detects_swaps_that_do_not_add_up(self, swap: Swap) -> None:
        snapshot, decision = traded(1)[0]
        assert not check_trades(snapshot, decision).broken
        wrong = replace(decision, swaps=(*decision.swaps, swap))
        assert 1 in check_trades(snapshot, wrong).broken

    def test_detects_negative_quota(self) -> None:
        snapshot, decision = traded(1)[0]
        wrong = replace(decision, swaps=(Swap(1, "v100", -5), Swap(3, "v100", 5)))
        assert check_trades(snapshot, wrong).broken == (1,)


class TestRandomRounds:
    @given(rounds())
    def test_trades_are_never_violated(self, snapshot: Snapshot) -> None:
        row = certified(snapshot, decide_round(snapshot))
        assert row.verdict in (Verdict.HOLDS, Verdict.NOT_APPLICABLE)
