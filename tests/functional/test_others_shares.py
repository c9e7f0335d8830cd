"""The overview's comparison with other tenants' shares, by the viewer's rights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenshare_core.fairness.others_shares import QuotaWork
from portal.overview.text.others import others_context
from scheduling.models import Round
from scheduling.selectors.tenants.others_shares import SharesCompared, compare_shares
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.models import User
from tenants.selectors.access import access_of
from tests.functional.mixed_stage import mixed_stage
from tests.functional.page_text import sentences
from tests.functional.pool_stage import Stage
from tests.stages import staged

there = staged(mixed_stage)


def owner_sees(there: Stage) -> Visibility:
    return read_visibility(there.lab.pool.pk, access_of(User.objects.get(username="owner")))


def compared(there: Stage, visibility: Visibility) -> SharesCompared:
    number = Round.objects.latest("number").number
    pool, tenant = there.lab.pool.pk, there.tenant("alpha").pk
    shares = compare_shares(pool, number, tenant, visibility)
    assert shares is not None
    return shares


class TestOthers:
    def test_are_compared_on_overview(self, there: Stage) -> None:
        (row,) = compared(there, owner_sees(there)).rows
        assert row.profile == "alpha-net"
        assert [other.tenant.name for other in row.others] == ["beta", "gamma"]
        assert all(other.throughput <= row.own + 1e-3 for other in row.others)
        page = sentences(there.page("owner", "/t/alpha/"))
        assert "No other share would do more of its work" in page
        assert f"its own {row.own:.2f}" in page

    @pytest.mark.parametrize(("setting", "name"), [("pseudonyms", "tenant 2"), ("own", "")])
    def test_are_named_as_pool_allows(self, there: Stage, setting: str, name: str) -> None:
        there.see(setting)
        page = there.page("owner", "/t/alpha/")
        assert ('id="others"' in page) == bool(name)
        part = page.partition('id="others"')[2].partition("</section>")[0]
        assert name in part
        assert "beta" not in part

    def test_show_no_job_types_of_others(self, there: Stage) -> None:
        assert "beta-net" not in there.page("owner", "/t/alpha/")


class TestTexts:
    def test_title_counts_shares_that_would_do_more(self, there: Stage) -> None:
        shares = compared(there, owner_sees(there))
        (row,) = shares.rows
        other = replace(row.others[0], throughput=row.own * 1.1)
        shares = replace(shares, rows=(replace(row, others=(other, row.others[1])),))
        context = others_context(shares)
        assert context["others_title"] == "1 of 2 other shares would do more of its work"
        assert context["others"][0].others[0].gain == pytest.approx(10)

    def test_trades_change_work_by_percent(self) -> None:
        context = others_context(SharesCompared(1, (), QuotaWork(10.0, 12.5)))
        assert context["traded_title"] == "Trades make its quota do 25.0 % more work"
        assert others_context(None)["traded"] is None
