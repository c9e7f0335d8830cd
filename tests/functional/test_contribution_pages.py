"""Test contribution statements over HTTP: they sum to the ledger, and name no hidden tenant."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

import pytest

from billing.models import Account, Entry, UsageShare
from scheduling.models import Job
from tests.functional.pool_stage import Stage
from tests.functional.test_metrics import sample, scrape

ALL = "from=2001-01-01&to=2032-12-31&by=month"
PAGE, FILE = "/t/beta/ledger/contribution/", "/t/beta/ledger/contribution.csv"
ZERO = Decimal(0)


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


def rows(there: Stage, who: str, query: str = ALL) -> list[dict[str, str]]:
    answer = there.get(who, f"{FILE}?{query}")
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def earned(slug: str) -> Decimal:
    entries = Entry.objects.filter(account__tenant__slug=slug, amount__gt=0)
    return sum((one.amount for one in entries if one.transfer.code == "usage"), ZERO)


class TestCreditRows:
    """A credit row is GPU-hours x price, with its round and lease; the total is the ledger's."""

    def test_each_row_and_the_total_recompute_from_sources(self, there: Stage) -> None:
        self.every_row_is_recomputed_from_its_factors(there)
        self.every_row_leads_to_its_round_and_its_transfer(there)
        self.the_total_is_the_ledgers(there)

    def every_row_is_recomputed_from_its_factors(self, there: Stage) -> None:
        lines = rows(there, "neighbour")
        assert len(lines) > 2
        for line in lines:
            gpu_h = Decimal(line["gpus"]) * Decimal(line["held_h"])
            price = Decimal(line["price_credits_per_gpu_h"])
            charge = Decimal(line["charge_credits"])
            assert abs(gpu_h * price - charge) <= Decimal("0.000002") * Decimal(line["gpus"])
            part = Decimal(line["own_part"])
            assert abs(charge * part - Decimal(line["earned_credits"])) < Decimal("0.000001")

    def every_row_leads_to_its_round_and_its_transfer(self, there: Stage) -> None:
        page = there.page("neighbour", f"{PAGE}?{ALL}")
        table = page.split('id="t-lines"')[1].split("</table>")[0]
        shown = table.split("<tr>")[2:]
        assert len(shown) == len(rows(there, "neighbour"))
        for row in shown:
            round_, factors, *transfers = re.findall(r'href="([^"]+)"', row)
            assert "/contribution/line/?" in factors
            assert re.search(r"lease \d+, term \d+", row)
            there.page("neighbour", round_)
            assert len(transfers) + ("not yet" in row) == 1
            for transfer in transfers:
                there.page("neighbour", transfer)

    def the_total_is_the_ledgers(self, there: Stage) -> None:
        for who, slug in (("neighbour", "beta"), ("operator", "gamma"), ("owner", "alpha")):
            page = there.get(who, f"/t/{slug}/ledger/contribution/?{ALL}").context
            ledger = page["shown"].reconciliation
            assert ledger.ledger == ledger.settled == earned(slug)
            assert ledger.difference == ZERO
            account = Account.objects.get(tenant__slug=slug)
            every = UsageShare.objects.filter(account=account).values_list("amount", flat=True)
            assert page["shown"].total.earned == sum(every, ZERO)
        in_file = sum((Decimal(line["earned_credits"]) for line in rows(there, "neighbour")), ZERO)
        assert in_file == there.get("neighbour", f"{PAGE}?{ALL}").context["shown"].total.earned > 0


class TestContributionPage:
    def test_shows_credits_and_gpu_hours_lent(self, there: Stage) -> None:
        shown = there.page("neighbour", f"{PAGE}?{ALL}")
        assert re.search(r"You earned [\d.,]+ credits by lending [\d.,]+ GPU-hours\.", shown)
        quiet = there.page("neighbour", f"{PAGE}?from=2001-01-01&to=2001-01-02")
        assert "You earned nothing." in quiet
        assert "Lines of settled hours and ledger agree" in quiet

    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_borrower_names_follow_visibility_of_pool(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        page = there.page("neighbour", f"{PAGE}?{ALL}").split("<main")[1]
        lines = {line["borrower"] for line in rows(there, "neighbour")}
        names = {"full": "alpha", "pseudonyms": "tenant 1", "own": "another tenant"}
        assert names[visibility] in lines
        assert names[visibility] in page
        if visibility != "full":
            sums, _, rest = page.partition("Revenue fairness")
            assert "alpha" not in sums + rest.split('id="t-lines"')[1].split("</table>")[0]
        if visibility == "own":
            assert "other tenants" in page
        assert "/jobs/" not in page.split('id="t-lines"')[1].split("</table>")[0]

    def test_links_operators_to_jobs(self, there: Stage) -> None:
        page = there.page("operator", f"{PAGE}?{ALL}")
        (job, *_) = re.findall(r'href="(/jobs/[^"]+)"', page.split('id="t-lines"')[1])
        there.page("operator", job)

    def test_quota_parts_sum_to_quota(self, there: Stage) -> None:

        day = UsageShare.objects.order_by("-hour")[0].hour.date()
        page = there.get("neighbour", f"{PAGE}?from={day}&to={day}").context
        (row,) = page["quota_rows"]
        parts = row.own_gpu_h + row.kept_gpu_h + row.lent_gpu_h + row.free_gpu_h + row.without_gpu_h
        assert abs(parts - row.quota_gpu_h) <= Decimal("0.000003")
        assert row.lent_gpu_h > 0

    def test_explains_period_limit_of_quota_use(self, there: Stage) -> None:
        page = there.page("neighbour", f"{PAGE}?{ALL}")
        assert "periods of at most 31 days" in page

    def test_pages_through_every_line_once(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("portal.ledger.views.contribution.PAGE", 2)
        path, seen = f"{PAGE}?{ALL}", []
        while path:
            context = there.get("neighbour", path).context
            seen += [row.number for row in context["lines"]]
            older = context["older"]
            path = f"{PAGE}?{ALL}&before={older}" if older else ""
        assert len(seen) == len(set(seen)) == len(rows(there, "neighbour")) > 2
        for wrong in ("x", "1", "1-", "-1", "9999999999999-1", "1-99999999999999999999"):
            assert there.get("neighbour", f"{PAGE}?before={wrong}").status_code == 404

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("from=yesterday", "Enter a day or an instant such as 2026-11-20T14:30."),
            ("to=9999-12-31", "Enter a day or an instant such as 2026-11-20T14:30."),
            ("from=2030-02-02T10:00&to=2030-02-02T10:00", "The end must be after the start."),
            ("from=2001-01-01&to=2030-01-01", "Choose at most 400 days. Or sum by month."),
            ("by=fortnight", "Choose day, week, month."),
        ],
    )
    def test_invalid_period_returns_422_with_message(
        self, there: Stage, query: str, message: str
    ) -> None:
        for path in (PAGE, FILE):
            answer = there.get("neighbour", f"{path}?{query}")
            assert answer.status_code == 422
            assert message in answer.content.decode()

    def test_splits_exactly_at_an_instant(self, there: Stage) -> None:
        every = rows(there, "neighbour")
        instant = every[-1]["counted_at"][:16]
        before = rows(there, "neighbour", f"from=2001-01-01&to={instant}&by=month")
        after = rows(there, "neighbour", f"from={instant}&to=2032-12-31&by=month")
        assert before + after == every
        assert before
        assert after

    def test_query_count_is_bounded(self, there: Stage) -> None:
        assert there.reads("neighbour", f"{PAGE}?{ALL}") <= 24

    def test_is_linked_from_ledger_and_statement(self, there: Stage) -> None:
        for page in ("/t/beta/ledger/", f"/t/beta/ledger/statement/?{ALL}"):
            assert PAGE in there.page("neighbour", page)


class TestRevenueFairness:
    def test_own_value_is_shown_on_contribution_page(self, there: Stage) -> None:
        page = there.get("neighbour", f"{PAGE}?{ALL}").context
        row = page["fairness"]
        assert row.alpha == pytest.approx(row.income_part / row.quota_part)
        assert [one.name for one in page["alpha_chart"].series] == ["income only"]
        assert "no job with a declared value completed" in " ".join(
            there.page("neighbour", f"{PAGE}?{ALL}").split()
        )

    def test_page_of_all_tenants_requires_site_role(self, there: Stage) -> None:
        path = there.url("revenue/")
        page = there.get("operator", f"{path}?{ALL}").context
        names = [badge.name for badge, _ in page["rows"]]
        assert sorted(names)[:3] == ["alpha", "beta", "gamma"]
        weighted = sum(row.quota_part * (row.alpha or 0) for _, row in page["rows"])
        assert weighted == pytest.approx(1)
        assert page["earned"] == sum(
            (one.amount for one in Entry.objects.filter(amount__gt=0)), ZERO
        )
        assert path in there.page("operator", "/ledger/")
        for who in ("owner", "neighbour", "stranger", "nobody"):
            assert there.get(who, path).status_code == 404
        assert "Nothing is" in there.page("operator", f"{path}?from=2001-01-01&to=2001-01-02")

    def test_includes_declared_utilities_of_jobs(self, there: Stage) -> None:
        """All gains sum to the utilities, so the mean alpha, weighted by quota, is 1 again."""
        hour = UsageShare.objects.order_by("hour")[0].hour
        done = Job.objects.filter(tenant__slug="alpha").order_by("pk")[:1].get()
        utility = {"kind": "linear", "k": "0", "g": "250"}
        Job.objects.filter(pk=done.pk).update(state="succeeded", ended_at=hour, utility=utility)
        page = there.get("operator", f"{there.url('revenue/')}?{ALL}").context
        rows = {badge.name: row for badge, row in page["rows"]}
        assert rows["alpha"].utility == 250
        assert rows["beta"].utility == ZERO
        assert sum(row.quota_part * row.full_alpha for _, row in page["rows"]) == pytest.approx(1)
        gain = rows["alpha"].utility + rows["alpha"].earned - rows["alpha"].cost
        part = float(gain) / 250 / rows["alpha"].quota_part
        assert rows["alpha"].full_alpha == pytest.approx(part)
        assert len(page["charts"]) == 2
        own = there.get("owner", f"/t/alpha/ledger/contribution/?{ALL}").context
        assert own["fairness"].full_alpha == rows["alpha"].full_alpha
        assert [one.name for one in own["alpha_chart"].series] == ["income only", "with utilities"]

    def test_skips_and_reports_unreadable_utility(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The job is left out.

        The page reports the omission, monitors count it, and operators see it.
        """
        monkeypatch.setattr("portal.site.unreadable._own", {})
        hour = UsageShare.objects.order_by("hour")[0].hour
        done = Job.objects.filter(tenant__slug="alpha").order_by("pk")[:1].get()
        Job.objects.filter(pk=done.pk).update(
            state="succeeded", ended_at=hour, utility={"kind": "steep"}
        )
        own = there.page("owner", f"/t/alpha/ledger/contribution/?{ALL}")
        assert "1 completed job skipped: the stored utility cannot" in " ".join(own.split())
        assert "completed job skipped" not in there.page("neighbour", f"{PAGE}?{ALL}")
        assert "1 completed job skipped" in there.page("operator", f"{there.url('revenue/')}?{ALL}")
        assert sample(scrape(there.client(None)), "unreadable_rows", what="value of a job") == 1
        assert f"{done.uid}: kind must be one of" in there.page("operator", "/operate/")
