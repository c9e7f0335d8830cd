"""Test income from lending over REST: equal to the page and the ledger, and private."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from billing.ledger import Posting, open_accounts, open_book, post_transfer
from billing.metering import meter_pool, settle_pool
from billing.models import Entry, UsageShare
from scheduling.models import Pool
from tenants.models import User
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage
from tests.stages import staged

ALL = "since=2029-12-01T00:00:00Z&until=2030-12-01T00:00:00Z"
ZERO = Decimal(0)


def settled_stage() -> ApiStage:
    """Create a stage in which aa borrows from bb for 2.5 hours, of which two are settled."""
    stage = api_stage()
    stage.cluster.submit("aa", 6, 100_000)
    stage.cluster.round()
    for _ in range(10):
        stage.cluster.round(after_s=900)
    meter_pool(stage.cluster.pool.pk)
    settle_pool(stage.cluster.pool.pk)
    stage.person("otto", site_role=User.SiteRole.OPERATOR)
    stage.person("fina", site_role=User.SiteRole.FINANCE)
    return stage


live = staged(settled_stage)


def lines(live: ApiStage, query: str = "", as_: str = "bob") -> list[dict[str, Any]]:
    path, rows = f"contribution/lines?{ALL}{query}", []
    while True:
        answer = live.get(path, as_=as_).json()
        rows += answer["results"]
        if answer["next"] is None:
            return rows
        path = f"contribution/lines?{ALL}{query}&cursor={answer['next']}"


class TestTotals:
    def test_match_lines_and_reconcile_with_ledger(self, live: ApiStage) -> None:
        shown = live.get(f"contribution?{ALL}", as_="bob").json()
        every = sum((Decimal(line["earned"]) for line in lines(live)), ZERO)
        assert Decimal(shown["earned"]) == every > 0
        entries = Entry.objects.filter(account__tenant__slug="bb", amount__gt=0)
        ledger = shown["reconciliation"]
        assert Decimal(ledger["ledger"]) == sum((one.amount for one in entries), ZERO)
        assert ledger["difference"] == "0.000000"
        assert Decimal(ledger["settled"]) + Decimal(ledger["open"]) == every
        assert Decimal(ledger["open"]) > 0
        for by in ("by_day", "by_gpu_type", "by_borrower"):
            assert sum((Decimal(row["earned"]) for row in shown[by]), ZERO) == every
        assert [row["name"] for row in shown["by_borrower"]] == ["aa"]

    def test_include_quota_use_for_short_periods(self, live: ApiStage) -> None:
        assert live.get(f"contribution?{ALL}", as_="bob").json()["quota_use"] is None
        day = "since=2030-01-01T00:00:00Z&until=2030-01-02T00:00:00Z"
        shown = live.get(f"contribution?{day}", as_="bob").json()
        (row,) = shown["quota_use"]
        parts = [Decimal(value) for name, value in row.items() if name != "gpu_type"]
        quota, *rest = parts
        assert abs(sum(rest, ZERO) - quota) < Decimal("0.00001")
        assert Decimal(row["lent_gpu_h"]) > 0
        assert shown["quota_counted_until"] < "2030-01-02"
        assert shown["alpha"] > 1

    def test_hide_borrowers_if_pool_shows_own_rows_only(self, live: ApiStage) -> None:
        Pool.objects.filter(pk=live.cluster.pool.pk).update(visibility=Pool.Visibility.OWN)
        shown = live.get(f"contribution?{ALL}", as_="bob").json()
        assert [row["name"] for row in shown["by_borrower"]] == ["other tenants"]
        assert {(line["borrower"], line["job"]) for line in lines(live)} == {
            ("another tenant", None)
        }

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("since=monday", "since"),
            ("since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z", "until"),
            ("since=2028-01-01T00:00:00Z&until=2030-01-01T00:00:00Z", "since"),
            ("until=0001-01-01T00:00:00Z", "until"),
        ],
    )
    def test_invalid_time_range_names_parameter(
        self, live: ApiStage, query: str, field: str
    ) -> None:
        for path in ("contribution", "contribution/lines"):
            answer = live.get(f"{path}?{query}", as_="bob")
            assert answer.status_code == 400
            assert [error["field"] for error in answer.json()["errors"]] == [field]


class TestLines:
    def test_pagination_returns_every_line(self, live: ApiStage) -> None:
        assert lines(live, "&limit=1") == lines(live)
        assert len(lines(live)) == UsageShare.objects.filter(account__tenant__slug="bb").count() > 2

    def test_link_to_round_and_transfer(self, live: ApiStage) -> None:
        for line in lines(live):
            answer = live.get(f"rounds/{live.pool}/{line['round']}", as_="bob")
            assert answer.status_code == 200
            share = Decimal(line["charge"]) * Decimal(line["own_part"])
            assert abs(share - Decimal(line["earned"])) < Decimal("0.000001")
        assert {line["transfer"] is None for line in lines(live)} == {True, False}


class TestVisibility:
    def test_contribution_is_limited_to_tenant_and_site_staff(self, live: ApiStage) -> None:
        for path in (f"contribution?{ALL}", f"contribution/lines?{ALL}"):
            asked = f"{path}&tenant=bb&pool={live.pool}"
            statuses = {who: live.get(asked, as_=who).status_code for who in live.people}
            assert statuses["bob"] == statuses["otto"] == statuses["fina"] == 200
            assert statuses["ada"] == 404

    def test_revenue_fairness_of_all_tenants_requires_site_role(self, live: ApiStage) -> None:
        path = f"pools/{live.pool}/revenue-fairness?{ALL}"
        answer = live.get(path, as_="fina").json()
        assert {row["tenant"] for row in answer["results"]} >= {"aa", "bb"}
        alphas = [(row["quota_part"], row["alpha"]) for row in answer["results"]]
        assert sum(part * alpha for part, alpha in alphas) == pytest.approx(1)
        assert live.get(path, as_="otto").status_code == 200
        assert live.get(path, as_="bob").status_code == 404

    def test_shows_sums_larger_than_a_column_holds(self, live: ApiStage) -> None:
        """Each amount fits its column, but the sum of both directions does not."""
        tenants, book = live.cluster.tenants, open_book(live.cluster.pool.book)
        accounts = open_accounts(book, [tenants["aa"].pk, tenants["bb"].pk])
        aa, bb = accounts[tenants["aa"].pk], accounts[tenants["bb"].pk]
        much = 6 * 10**19
        for turn in range(2):
            hour = BEGIN + timedelta(minutes=turn + 1)
            fields: Any = {"book_id": book.pk, "effective_at": hour + timedelta(hours=1)}
            usage = Posting(
                id=uuid4(), code="usage", entries=[(aa, -much), (bb, much)], hour=hour,
                pool_id=live.cluster.pool.pk, tenant_id=tenants["aa"].pk, **fields,
            )  # fmt: skip
            back = Posting(id=uuid4(), code="transfer", entries=[(aa, much), (bb, -much)], **fields)
            post_transfer(usage)
            post_transfer(back)
        answer = live.get(f"pools/{live.pool}/revenue-fairness?{ALL}", as_="fina")
        assert answer.status_code == 200
        rows = {row["tenant"]: row for row in answer.json()["results"]}
        assert Decimal(rows["bb"]["earned"]) > 2 * 6 * 10**13
        assert Decimal(rows["aa"]["cost"]) > 2 * 6 * 10**13
        client = Client()
        client.force_login(live.people["fina"])
        page = client.get(f"/pools/{live.pool}/revenue/?{ALL.replace('T00:00:00Z', '')}")
        assert page.status_code == 200
        assert "120,000,000,00" in page.content.decode()
