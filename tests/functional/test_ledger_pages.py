"""Test a tenant's ledger: only for its members and operators, summing to zero, paged by key."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal
from html import unescape

import pytest

from billing.models import Entry, Transfer
from billing.selectors.accounts import ledger_row
from portal.ledger.text.ledger import visible_entries
from scheduling.selectors.visibility import read_visibility
from tenants.models import User
from tenants.selectors.access import access_of
from tests.functional.pool_stage import Stage, headline, stage


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


def first_transfer() -> Transfer:
    """Return alpha's payment for its first hour."""
    found = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
    assert found is not None
    return found


class TestVisibility:
    def test_ledger_is_limited_to_tenant_and_operator(self, there: Stage) -> None:
        transfer = first_transfer()
        people = ("owner", "mate", "operator", "neighbour", "stranger", "nobody")
        for page in ("/t/alpha/ledger/", f"/t/alpha/ledger/{transfer.pk}/"):
            answers = [there.get(who, page).status_code for who in people]
            assert answers == [200, 200, 200, 404, 404, 404]
            assert there.get(None, page).status_code == 302

    def test_ledger_root_redirects_members_to_their_own_ledger(self, there: Stage) -> None:
        answer = there.get("owner", "/ledger/")
        assert (answer.status_code, answer["Location"]) == (302, "/t/alpha/ledger/")
        assert there.get("nobody", "/ledger/").status_code == 404
        assert there.get(None, "/ledger/").status_code == 302

    def test_operator_sees_book_that_sums_to_zero(self, there: Stage) -> None:
        page = there.page("operator", "/ledger/")
        assert "sum to 0.00 credits" in page
        assert "operator, for unallocated quota" in page

    def test_unknown_transfer_returns_404(self, there: Stage) -> None:
        page = f"/t/alpha/ledger/{uuid.uuid4()}/"
        assert there.get("owner", page).status_code == 404


class TestLedgerPage:
    def test_shows_debt_or_credit_of_tenant(self, there: Stage) -> None:
        for view in ("", "statement/"):
            owner = headline(there.page("owner", f"/t/alpha/ledger/{view}"))
            assert re.fullmatch(r"You owe [\d.]+ credits\.", owner), view
            others = headline(there.page("operator", f"/t/beta/ledger/{view}"))
            assert re.fullmatch(r"beta has [\d.]+ credits\.", others), view

    def test_counterparty_name_follows_visibility_of_pool(self, there: Stage) -> None:
        assert "lent to alpha" in there.page("neighbour", "/t/beta/ledger/")
        there.see("pseudonyms")
        page = there.page("neighbour", "/t/beta/ledger/")
        assert "lent to tenant 1" in page
        assert "alpha" not in page
        there.see("own")
        page = there.page("neighbour", "/t/beta/ledger/")
        assert "lent to another tenant" in page
        assert "alpha" not in page

    def test_columns_sum_as_printed(self, there: Stage) -> None:
        for who, slug in (("owner", "alpha"), ("neighbour", "beta")):
            page = there.get(who, f"/t/{slug}/ledger/").context
            printed = sum((row["net"] for row in page["rows"]), Decimal(0))
            assert printed == page["printed_net"] == page["sums"]["net"].quantize(Decimal("0.01"))
            lent = sum((row["lent"] or Decimal(0) for row in page["rows"]), Decimal(0))
            assert lent == page["sums"]["lent_gpu_h"].quantize(Decimal("0.01"))

    def test_hours_show_pool_and_wall_time(self, there: Stage) -> None:
        page = there.page("owner", "/t/alpha/ledger/").split('id="t-ledger"')[1]
        hours = re.findall(r"<th scope=\"row\">.*?</th>", page, re.DOTALL)
        assert hours
        assert all(hour.count("wall time") == 1 for hour in hours)

    def test_explains_missing_settlement(self, committed_db: str) -> None:
        assert "Nothing is settled yet" in stage().page("owner", "/t/alpha/ledger/")

    def test_query_count_is_constant(self, there: Stage) -> None:
        assert there.reads("owner", "/t/alpha/ledger/") == 23

    def test_invalid_cursor_returns_404(self, there: Stage) -> None:
        assert there.get("owner", "/t/alpha/ledger/?before=x").status_code == 404


class TestViews:
    """Entries, statement and contribution: one place with the same filter."""

    @pytest.mark.parametrize("view", ["", "statement/", "contribution/"])
    def test_link_to_each_other_with_pool_and_days(self, there: Stage, view: str) -> None:
        days = "from=2030-01-01&to=2030-01-02&by=week"
        asked = f"book=main&pool={there.pool}&{days}"
        page = there.page("owner", f"/t/alpha/ledger/{view}?{asked}")
        tabs = page.split('<nav class="tabs"')[1].split("</nav>")[0]
        links = [unescape(link) for link in re.findall(r'href="([^"]+)"', tabs)]
        assert links == [
            f"/t/alpha/ledger/{other}?{asked}" for other in ("", "statement/", "contribution/")
        ]
        (here,) = re.findall(r'href="([^"]+)"\s+aria-current="page"', tabs)
        assert unescape(here) == f"/t/alpha/ledger/{view}?{asked}"

    def test_links_name_days_of_requested_instants(self, there: Stage) -> None:
        asked = "from=2030-01-01T02:00&to=2030-01-02T00:00"
        page = there.get("owner", f"/t/alpha/ledger/contribution/?{asked}").context
        query = f"book=main&pool={there.pool}&from=2030-01-01&to=2030-01-01&by=day"
        assert page["views"][1].href == f"/t/alpha/ledger/statement/?{query}"

    def test_entries_are_those_of_the_period(self, there: Stage) -> None:
        day = first_transfer().effective_at.date()
        shown = there.get("owner", f"/t/alpha/ledger/?from={day}&to={day}").context["rows"]
        every = there.get("owner", "/t/alpha/ledger/").context["rows"]
        assert (
            [row["row"].transfer for row in shown]
            == [row["row"].transfer for row in every if row["row"].effective_at.date() == day]
            != []
        )
        before = there.page("owner", "/t/alpha/ledger/?from=2001-01-01&to=2001-01-02")
        assert "No transfer was settled in this period." in before
        assert "last 24 h" not in before
        assert "last 24 h" in there.page("owner", "/t/alpha/ledger/")
        wrong = there.get("owner", "/t/alpha/ledger/?from=yesterday")
        assert wrong.status_code == 422
        assert "Enter a day such as 2026-11-20." in wrong.content.decode()

    def test_entries_are_paged_within_the_period(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("portal.ledger.views.ledger.PAGE", 1)
        path, seen = "/t/beta/ledger/?from=2029-01-01&to=2030-12-31&by=month", []
        while path:
            page = there.page("neighbour", path)
            seen += re.findall(r'id="transfer-([^"]+)"', page)
            older = re.search(r'href="([^"]+)"\s+rel="next"', page)
            path = f"/t/beta/ledger/{unescape(older[1])}" if older else ""
        entries = Entry.objects.filter(account__tenant__slug="beta")
        assert len(seen) == len(set(seen)) == entries.values("transfer").distinct().count() > 1


class TestTransferPage:
    def test_links_to_rounds_and_own_jobs_only(self, there: Stage) -> None:
        transfer = first_transfer()
        ours = there.page("owner", f"/t/alpha/ledger/{transfer.pk}/")
        theirs = there.page("neighbour", f"/t/beta/ledger/{transfer.pk}/")
        for page in (ours, theirs):
            assert f'href="{there.url("rounds/")}' in page.split('id="t-')[1]
        assert 'href="/jobs/' in ours
        assert 'href="/jobs/' not in theirs

    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_visible_entries_sum_to_zero(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        transfer = first_transfer()
        for who, slug in (("owner", "alpha"), ("neighbour", "beta")):
            tenant = there.tenant(slug).pk
            row = ledger_row(transfer.pk, tenant_id=tenant)
            assert row is not None
            viewer = access_of(User.objects.get(username=who))
            sides = visible_entries(row, read_visibility(there.lab.pool.pk, viewer), tenant)
            assert sum((side.amount for side in sides), Decimal(0)) == 0

    def test_lists_charged_lines(self, there: Stage) -> None:
        transfer = first_transfer()
        page = there.page("owner", f"/t/alpha/ledger/{transfer.pk}/")
        row = ledger_row(transfer.pk, tenant_id=there.tenant("alpha").pk)
        assert row is not None
        assert "Borrowed" in page
        charged = re.search(r"Charged</th>.*?credits\">([\d.]+)<", page, re.DOTALL)
        assert charged is not None
        assert Decimal(charged[1]) == row.paid
        assert "alpha-" in page

    def test_shows_lender_its_shares_without_borrower_jobs(self, there: Stage) -> None:
        page = there.page("neighbour", f"/t/beta/ledger/{first_transfer().pk}/")
        assert "Earned" in page
        assert "alpha-4" not in page
