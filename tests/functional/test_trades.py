"""Trades over HTTP: lists of a pool and of a round, receipts and REST, by viewer."""

from __future__ import annotations

import html
import re
from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Swap, Trade
from evenshare_core.domain.snapshot import Snapshot
from portal.charts.notes import LineItem
from portal.common.trades import claim_line
from scheduling.models import LeaseEvent, Round
from scheduling.selectors.rounds.histories import claim_history
from scheduling.selectors.tenants.dashboard import last_round
from scheduling.selectors.tenants.pools import pool_uses
from scheduling.selectors.tenants.prospects import prospects
from tenants.models import Membership, User
from tests.functional.certificate_stage import plant
from tests.functional.pool_stage import Stage
from tests.functional.pool_stage import stage as pool_stage
from tests.functional.trades import write_trade
from tests.round_states import add_state, left_by
from tests.stages import staged

# The name of the other tenant by visibility, as the owner (alpha) sees it.
OTHER = {"full": "beta", "pseudonyms": "tenant 2", "own": "other tenants"}


def words(page: str) -> str:
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    return re.sub(r" ([,.:;])", r"\1", text)


def played_pool() -> Stage:
    """Create a pool of the tenants alpha, beta and gamma, and a person of each."""
    made = pool_stage()
    third = User.objects.create(username="third", password="!")
    Membership.objects.create(user=third, tenant=made.tenant("gamma"), role=Membership.Role.MEMBER)
    return made


there = staged(played_pool)


def api(there: Stage, who: str, path: str) -> Any:
    answer = there.get(who, f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def section(page: str) -> str:
    """Return the text of the table of trades; "" if there is no table."""
    match = re.search(
        r'<(?:section|div)[^>]*id="trades">(.*?)</(?:section|details)>', page, re.DOTALL
    )
    return words(match[1]) if match else ""


class TestPoolPage:
    @pytest.mark.parametrize("setting", OTHER)
    def test_lists_trades_with_visible_sides(self, there: Stage, setting: str) -> None:
        there.see(setting)
        write_trade(there.lab, "beta", "alpha")
        shown = section(there.page("owner", there.url("history/")))
        assert "1 trade of GPU types" in shown
        assert f"{OTHER[setting]} 1.00 v100" in shown
        assert "alpha 3.12 k80 3.12" in shown
        # The value for the other tenant is shown if that tenant is visible.
        assert ("1.25 to 5.00" in shown) == (setting != "own")
        assert "1.25" in shown

    def test_shows_undone_trade_with_negative_rate(self, there: Stage) -> None:
        write_trade(there.lab, "beta", "alpha")
        write_trade(there.lab, "beta", "alpha", rate_micro=-3_000_000, sold_micro=3_000_000)
        shown = section(there.page("operator", there.url("history/")))
        assert "1 trade of GPU types made, 1 undone" in shown
        assert "undone \N{MINUS SIGN}3.00" in shown

    def test_third_tenant_view_follows_visibility_of_pool(self, there: Stage) -> None:
        write_trade(there.lab, "beta", "alpha")
        there.see("own")
        assert section(there.page("third", there.url("history/"))) == ""
        there.see("pseudonyms")
        shown = section(there.page("third", there.url("history/")))
        assert "tenant 1" in shown
        assert "alpha" not in shown

    def test_shows_quota_gained_by_trades(self, there: Stage) -> None:
        there.see("full")
        swap_shares(there, {"alpha": 2, "beta": -2})
        page = words(there.page("owner", there.url()))
        assert "The rho of a type uses quotas before trades" in page
        row = re.search(r'id="claim-v100-1".*?</tr>', there.page("owner", there.url()), re.DOTALL)
        assert row is not None
        assert "+2" in words(row[0])

    def test_omits_section_without_trades(self, there: Stage) -> None:
        assert section(there.page("owner", there.url("history/"))) == ""
        assert "before trades" not in words(there.page("owner", there.url()))


class TestQuotaAfterTrades:
    def test_is_used_for_own_and_lendable_gpus(self, there: Stage) -> None:
        pool_id, alpha = there.lab.pool.pk, there.tenant("alpha").pk
        before = last_round(pool_id, there.tenant("gamma").pk)
        assert before is not None
        swap_shares(there, {"alpha": 2, "beta": -2})
        after = last_round(pool_id, alpha)
        assert after is not None
        (claim,) = after.claims
        (quota,) = [
            row["quota"] for row in Round.objects.latest("number").shares if row["tenant"] == alpha
        ]
        assert (claim.quota, claim.swapped) == (quota + 2, 2)
        assert claim_line(claim) == LineItem("v100, 2 bought", str(quota + 2))
        sold = changed(claim, swapped=-3)
        assert claim_line(sold).label == "v100, 3 sold"
        assert claim_line(changed(claim, swapped=0)).label == "v100"
        last = last_round(pool_id, there.tenant("gamma").pk)
        assert last is not None
        lent = dict(last.lenders)
        lent_before = dict(before.lenders)
        assert lent.get(alpha, 0) > lent_before.get(alpha, 0)
        (start,) = prospects(pool_id, alpha, at=there.lab.at)
        assert start.quota == quota + 2
        (use,) = pool_uses(alpha, {pool_id: there.lab.at})
        assert use.quota == quota + 2
        history = claim_history(pool_id, alpha, since=there.lab.at.replace(year=1999))
        assert [history[-1].quota, history[-2].quota] == [quota + 2, quota]

    def test_dashboard_shows_sold_quota(self, there: Stage) -> None:
        swap_shares(there, {"alpha": -2, "beta": 2})
        page = words(there.page("owner", "/t/alpha/"))
        assert "by trades \N{MINUS SIGN}2" in page
        assert "quotas exceed the pool" not in page
        assert "The fair share uses quotas before trades" in page


def swap_shares(there: Stage, swaps: dict[str, int]) -> None:
    """Write another last round in which trades have changed quotas."""
    last = Round.objects.latest("number")
    ids = {there.tenant(slug).pk: gpus for slug, gpus in swaps.items()}
    last.shares = [
        {**row, **({"swapped": ids[row["tenant"]]} if row["tenant"] in ids else {})}
        for row in last.shares
    ]
    last.pk, last.number = None, last.number + 1
    last.at = last.at.replace(year=last.at.year + 1)
    last.save(force_insert=True)
    add_state(there.lab.pool, last.number, left_by(there.lab.pool).prices)


def links_of(page: str) -> list[str]:
    """Return the links in the sentence below the headline of a receipt."""
    deck = re.search(r'<p class="deck">.*?</p>', page, re.DOTALL)
    assert deck is not None
    return re.findall(r'href="([^"]+)"', deck[0])


class TestTradeList:
    def test_pages_newest_first(self, there: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("portal.pools.views.trades.PAGE", 2)
        numbers = [write_trade(there.lab, "beta", "alpha").number for _ in range(3)]
        first = there.page("owner", there.url("trades/"))
        assert re.findall(r'id="trade-(\d+)"', first) == [str(n) for n in numbers[:0:-1]]
        assert f'href="?before={numbers[1]}"' in first
        second = there.page("owner", there.url(f"trades/?before={numbers[1]}"))
        assert re.findall(r'id="trade-(\d+)"', second) == [str(numbers[0])]
        assert "Older trades" not in second
        assert "Newest" in second

    def test_empty_list_states_that_no_trade_is_visible(self, there: Stage) -> None:
        page = words(there.page("owner", there.url("trades/")))
        assert "No such trade is visible to you." in page
        assert "No trades yet." in page

    @pytest.mark.parametrize("before", ["x", "-1", "9" * 19])
    def test_invalid_cursor_returns_404(self, there: Stage, before: str) -> None:
        assert there.get("owner", there.url(f"trades/?before={before}")).status_code == 404


class TestReceipt:
    def test_shows_gain_of_each_side(self, there: Stage) -> None:
        there.see("full")
        number = write_trade(there.lab, "beta", "alpha").number
        page = words(there.page("owner", there.url(f"trades/{number}/")))
        assert "Beta bought 1 v100 of quota from alpha for 3.125 k80." in page
        assert "No side is worse off" in page
        assert "+60.0 %" in page  # 5 received for 3.125 given
        assert "+150.0 %" in page  # 3.125 received for 1.25 given
        assert "1 v100 \N{MULTIPLICATION SIGN} 1.25" in page

    @pytest.mark.parametrize("who", ["owner", "neighbour"])
    def test_shows_only_own_gain_if_pool_hides_others(self, there: Stage, who: str) -> None:
        there.see("own")
        number = write_trade(there.lab, "beta", "alpha").number
        page = words(there.page(who, there.url(f"trades/{number}/")))
        gains = {"owner": "+150.0 %", "neighbour": "+60.0 %"}
        other = {"owner": "neighbour", "neighbour": "owner"}[who]
        assert gains[who] in page
        assert gains[other] not in page
        assert "You are not worse off" in page
        assert "another tenant" in page.lower()

    def test_undone_trade_has_no_gain(self, there: Stage) -> None:
        there.see("full")
        undone = write_trade(there.lab, "beta", "alpha", rate_micro=-3_125_000)
        page = words(there.page("owner", there.url(f"trades/{undone.number}/")))
        assert "Beta returned 1 v100 of quota to alpha and got its 3.125 k80 back." in page
        assert "its rate was 3.125" in page
        assert "Gain" not in page

    def test_links_trade_and_its_reversal_in_both_directions(self, there: Stage) -> None:
        there.see("full")
        undo = {"rate_micro": -3_125_000}
        # Of several equal trades, the newest one in force is undone, even if there are others in
        # between.
        first = write_trade(there.lab, "beta", "alpha", round_=1)
        second = write_trade(there.lab, "beta", "alpha", round_=2)
        third = write_trade(there.lab, "beta", "alpha", round_=3)
        write_trade(there.lab, "beta", "gamma", round_=3)
        undone = [write_trade(there.lab, "beta", "alpha", round_=3, **undo)]
        write_trade(there.lab, "beta", "alpha", round_=4, buyer_rate_micro=6_000_000, **undo)
        write_trade(there.lab, "alpha", "beta", round_=4, **undo)
        undone.append(write_trade(there.lab, "beta", "alpha", round_=4, **undo))
        pairs = {third.number: undone[0].number, second.number: undone[1].number}
        for made, later in pairs.items():
            page = there.page("owner", there.url(f"trades/{made}/"))
            assert links_of(page) == [f"/pools/{there.pool}/trades/{later}/"]
            assert "It was undone at 20" in words(page)
            page = there.page("owner", there.url(f"trades/{later}/"))
            assert links_of(page) == [f"/pools/{there.pool}/trades/{made}/"]
            assert f"This reverts trade {made}, made at 20" in words(page)
        page = there.page("owner", there.url(f"trades/{first.number}/"))
        assert links_of(page) == []
        assert "It was undone" not in words(page)

    def test_trade_dropped_by_policy_change_is_not_undone(self, there: Stage) -> None:
        dropped, later = (write_trade(there.lab, "beta", "alpha", round_=n) for n in (1, 5))
        write_trade(there.lab, "beta", "alpha", round_=6, rate_micro=-3_125_000)
        made = [there.page("operator", there.url(f"trades/{n.number}/")) for n in (dropped, later)]
        assert [len(links_of(page)) for page in made] == [0, 1]

    def test_warns_if_a_side_is_worse_off(self, there: Stage) -> None:
        there.see("full")
        number = write_trade(there.lab, "beta", "alpha", buyer_rate_micro=3_000_000).number
        page = words(there.page("owner", there.url(f"trades/{number}/")))
        assert "A side received less than it gave" in page
        assert "No side is worse off" not in page

    def test_returns_404_to_others_and_for_other_events(self, there: Stage) -> None:
        there.see("own")
        number = write_trade(there.lab, "beta", "alpha").number
        assert there.get("third", there.url(f"trades/{number}/")).status_code == 404
        other = LeaseEvent.objects.exclude(kind="traded")[0].number
        for wrong in (other, 987_654, 10**30):
            assert there.get("operator", there.url(f"trades/{wrong}/")).status_code == 404


class TestRound:
    def test_lists_only_its_own_trades(self, there: Stage) -> None:
        there.see("full")
        write_trade(there.lab, "beta", "alpha", round_=1)
        write_trade(there.lab, "beta", "gamma", round_=2)
        page = section(there.page("owner", there.url("rounds/1/")))
        assert "alpha" in page
        assert "gamma" not in page
        rows = api(there, "owner", f"rounds/{there.pool}/1")["trades"]
        assert [row["seller"]["name"] for row in rows] == ["alpha"]

    @pytest.mark.parametrize("setting", ["full", "own"])
    def test_counts_open_trades_only_if_others_are_visible(
        self, there: Stage, setting: str
    ) -> None:
        there.see(setting)
        number = plant(there, undone).number
        page = words(there.page("owner", there.url(f"rounds/{number}/")))
        assert "1 trade was undone" in page
        assert ("Open trades move 2 GPUs of quota" in page) == (setting == "full")
        assert "move 0 GPUs" not in page


def undone(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change the round to one in which a trade was undone while another one is in force."""
    buyer, seller = (row.id for row in snapshot.tenants[:2])
    trade = Trade(
        "v100", 1_000_000, buyer, "k80", 3_000_000, seller,
        -3_000_000, 5_000_000, 1_250_000, snapshot.at_us,
    )  # fmt: skip
    swaps = (Swap(buyer, "v100", -2), Swap(seller, "v100", 2))
    return snapshot, replace(decision, trades=(trade,), swaps=swaps)


class TestApi:
    def test_lists_trades_with_cursor(self, there: Stage) -> None:
        there.see("full")
        numbers = [write_trade(there.lab, "beta", "alpha").number for _ in range(2)]
        first = api(there, "owner", f"pools/{there.pool}/trades?limit=1")
        (row,) = first["results"]
        assert row["number"] == numbers[1]
        assert (row["bought_type"], row["bought_gpus"], row["sold_type"]) == ("v100", 1, "k80")
        assert (row["sold_gpus"], row["rate"], row["undone"]) == (3.125, 3.125, False)
        assert row["seller_side"] == {"speedup": 1.25, "gave": 1.25, "received": 3.125, "gain": 1.5}
        assert row["buyer_side"] == {"speedup": 5.0, "gave": 3.125, "received": 5.0, "gain": 0.6}
        path = f"pools/{there.pool}/trades?limit=1&cursor={first['next']}"
        second = api(there, "owner", path)
        assert [row["number"] for row in second["results"]] == numbers[:1]
        assert second["next"] is None

    def test_hides_other_side_if_pool_hides_others(self, there: Stage) -> None:
        there.see("own")
        write_trade(there.lab, "beta", "alpha")
        (row,) = api(there, "owner", f"pools/{there.pool}/trades")["results"]
        assert (row["buyer"], row["buyer_side"]) == (None, None)
        assert row["seller"]["name"] == "alpha"
        assert api(there, "third", f"pools/{there.pool}/trades")["results"] == []
