"""A tenant's statement over HTTP: the requested days, visible names, CSV."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from html import unescape

import pytest

from billing.models import Entry, Transfer, UsageShare
from billing.selectors.income import lines_of_transfer
from billing.selectors.usage import find_transfer
from scheduling.models import Pool
from tenants.models import Tenant
from tenants.scopes import site_scope
from tests.functional.pool_stage import Stage

ALL = "from=2001-01-01&to=2032-12-31&by=month"
PAGE, FILE = "/t/alpha/ledger/statement/", "/t/alpha/ledger/statement.csv"


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


def rows(there: Stage, who: str, path: str) -> list[dict[str, str]]:
    answer = there.get(who, path)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


class TestStatement:
    def test_sums_to_account_balance_for_every_viewer(self, there: Stage) -> None:
        for who, slug in (("owner", "alpha"), ("neighbour", "beta"), ("operator", "alpha")):
            page = there.get(who, f"/t/{slug}/ledger/statement/?{ALL}").context
            amounts = Entry.objects.filter(account__tenant__slug=slug).values_list("amount")
            total = sum((amount for (amount,) in amounts), Decimal(0))
            assert page["net"] == page["statement"].closing == total != 0
            assert sum((row.net for row in page["counterparties"]), Decimal(0)) == total
            assert page["periods"][-1][2] == total

    def test_shows_earned_and_charged_credits(self, there: Stage) -> None:
        shown = there.page("owner", f"{PAGE}?{ALL}")
        did = r"alpha earned 0\.\d\d and was charged [\d.,]+ credits"
        assert re.search(f"{did} from 1 Jan 2001 to 31 Dec 2032\\.", shown)
        assert "neither earned nor was charged" in there.page("owner", f"{PAGE}?to=2001-01-02")

    @pytest.mark.parametrize("by", ["day", "week", "month"])
    def test_periods_link_to_their_entries(self, there: Stage, by: str) -> None:
        page = there.get("owner", f"{PAGE}?from=2029-12-30&to=2030-01-02&by={by}")
        links = re.findall(r'<a href="([^"]+)">[^<]+</a>\s*</th>', page.content.decode())
        totals = [row[0].net for row in page.context["periods"]]
        entries = [there.get("owner", unescape(link)).context["sums"]["net"] for link in links]
        assert entries == totals != []

    def test_counterparties_link_to_transfers_that_add_up(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("portal.ledger.views.ledger.PAGE", 2)
        for who, slug, visibility in (
            ("owner", "alpha", "full"),
            ("neighbour", "beta", "pseudonyms"),
            ("neighbour", "beta", "own"),
        ):
            there.see(visibility)
            page = there.get(who, f"/t/{slug}/ledger/statement/?{ALL}")
            table = page.content.decode().split('id="t-counterparties"')[1]
            links = re.findall(r'<a\s+href="([^"]+)"', table.split("</tbody>")[0])
            rows = page.context["counterparties"]
            assert [self.listed(there, who, unescape(link)) for link in links] == [
                (row.name, row.net) for row in rows
            ]

    def listed(self, there: Stage, who: str, path: str) -> tuple[str, Decimal]:
        """Return the counterparty of a list of transfers, and their net over all its pages."""
        name, net = "", Decimal(0)
        base = path.split("?", maxsplit=1)[0]
        while path:
            answer = there.get(who, path)
            name, net = answer.context["party_name"], net + answer.context["sums"]["net"]
            older = re.search(r'href="([^"]+)"\s+rel="next"', answer.content.decode())
            path = base + unescape(older[1]) if older else ""
        return name, net

    def test_unknown_counterparty_returns_422_with_message(self, there: Stage) -> None:
        answer = there.get("owner", "/t/alpha/ledger/?counterparty=tenant-99")
        assert answer.status_code == 422
        assert "No counterparty “tenant-99”. Choose one from the list." in answer.content.decode()

    def test_states_with_the_contribution_what_is_not_settled(self, there: Stage) -> None:
        """The two pages differ by it."""
        at = there.lab.at.date()
        days = f"from={at}&to={at}"
        statement = there.get("neighbour", f"/t/beta/ledger/statement/?{days}")
        earned = there.get("neighbour", f"/t/beta/ledger/contribution/?{days}")
        missing = earned.context["shown"].total.earned - statement.context["statement"].earned
        assert missing > 0
        for answer in (statement, earned):
            text = " ".join(answer.content.decode().split())
            assert re.search(f"<b>{missing:.6f}</b>[^.]*(?:in the statement|earned)", text)
        past = there.page("neighbour", "/t/beta/ledger/statement/?from=2001-01-01&to=2001-01-02")
        assert "Not settled yet" not in past

    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_names_follow_visibility_of_pool(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        named = there.page("neighbour", f"/t/beta/ledger/statement/?{ALL}").split("<main")[1]
        lines = rows(there, "neighbour", f"/t/beta/ledger/statement.csv?{ALL}")
        paid = {line["counterparty"] for line in lines if line["what"] == "lent"}
        if visibility == "full":
            assert "alpha" in named
            assert paid == {"alpha", "gamma"}
        elif visibility == "pseudonyms":
            assert "tenant 1" in named
            assert "alpha" not in named
            assert paid == {"tenant 1", "tenant 3"}
        else:
            assert "other tenants" in named
            assert "alpha" not in named
            assert paid == {"another tenant"}

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("from=yesterday", "Enter a day such as 2026-11-20."),
            ("to=9999-12-31", "Enter a day such as 2026-11-20."),
            ("from=2030-02-30", "Enter a day such as 2026-11-20."),
            ("from=2030-02-02&to=2030-02-01", "The last day must not be before the first."),
            ("from=2001-01-01&to=2030-01-01", "Choose at most 400 days. Or sum by month."),
            ("to=0001-01-02&by=fortnight", "Choose day, week, month."),
        ],
    )
    def test_invalid_days_return_422_with_message(
        self, there: Stage, query: str, message: str
    ) -> None:
        for path in (PAGE, FILE):
            answer = there.get("owner", f"{path}?{query}")
            assert answer.status_code == 422
            assert message in answer.content.decode()

    def test_query_count_is_bounded(self, there: Stage) -> None:
        assert there.reads("owner", f"{PAGE}?{ALL}") <= 23

    def test_empty_start_day_is_replaced_by_default(self, there: Stage) -> None:
        page = there.page("owner", f"{PAGE}?from=&to=2030-01-07")
        assert re.search(r'name="from"\s+type="date"\s+value="2030-01-01"', page)

    @pytest.mark.parametrize("path", ["/t/alpha/ledger/", PAGE, FILE])
    def test_book_of_others_returns_404(self, there: Stage, path: str) -> None:
        """Regression: the page's header named a pool that the viewer may not see."""
        others = Pool.objects.exclude(pk=there.lab.pool.pk).get()
        Pool.objects.filter(pk=others.pk).update(book="others")
        assert there.get("owner", f"{path}?book=others").status_code == 404
        assert there.get("owner", f"{path}?book=none").status_code == 404
        assert there.get("operator", f"{path}?book=others").status_code == 200

    def test_is_linked_from_ledger(self, there: Stage) -> None:
        assert PAGE in there.page("owner", "/t/alpha/ledger/")


class TestCsv:
    def test_lists_every_exact_transfer_with_running_balance(self, there: Stage) -> None:
        lines = rows(there, "owner", f"{FILE}?{ALL}")
        touching = Transfer.objects.filter(entries__account__tenant__slug="alpha").distinct()
        assert len(lines) == touching.count() > 1
        balance = Decimal(0)
        for line in lines:
            balance += Decimal(line["earned_credits"]) - Decimal(line["paid_credits"])
            assert Decimal(line["balance_credits"]) == balance
            assert re.fullmatch(r"-?\d+\.\d{6}", line["net_credits"])
        assert lines[0]["effective_at"] < lines[-1]["effective_at"]

    def test_file_name_contains_tenant_and_days(self, there: Stage) -> None:
        answer = there.get("owner", f"{FILE}?from=2030-01-01&to=2030-01-02")
        name = "ledger-alpha-2030-01-01-2030-01-02.csv"
        assert answer["Content-Disposition"] == f'attachment; filename="{name}"'


class TestLenderLine:
    def test_factors_multiply_to_its_share(self, there: Stage) -> None:
        """The product of the line's factors is the payment, to the micro-credit."""
        transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
        assert transfer is not None
        page = there.page("neighbour", f"/t/beta/ledger/{transfer.pk}/")
        table = page.split('id="t-earned"')[1].split("</tbody>")[0]
        cells = [
            dict(re.findall(r'data-label="([^"]+)">\s*(?:<a[^>]*>)?([\d.,]+)\s*<', line))
            for line in table.split("<tr>")[2:]
        ]
        assert cells
        for cell in cells:
            gpus, price, held, charge, part, share = (
                Decimal(cell[name].replace(",", ""))
                for name in (
                    *("GPUs borrowed", "Price", "Held, hours", "Charge"),
                    *("Own part", "Share, credits"),
                )
            )
            assert abs(gpus * price * held - charge) <= Decimal("0.000002") * gpus
            assert abs(charge * part - share) < Decimal("0.000001")

    def test_own_part_is_its_weight_over_all_weights(self, there: Stage) -> None:
        transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
        assert transfer is not None
        with site_scope():
            stored = find_transfer(transfer.pk)
            assert stored is not None
            tenants = Tenant.objects.values_list("pk", flat=True)
            items = [item for one in tenants for item in lines_of_transfer(stored, one)[1]]
        assert items
        for item in items:
            shares = UsageShare.objects.filter(
                line__lease_id=item.lease_id, line__term=item.term, line__amount__gt=0
            )
            assert item.weights == sum(share.weight for share in shares)
            exact = Decimal(item.weight) / item.weights
            assert abs(item.own_part - exact) < Decimal(10) ** -12
