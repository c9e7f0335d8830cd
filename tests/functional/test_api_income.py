"""Test that incomes over REST have all factors that are needed to recompute them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from billing.models import UsageLine, UsageShare
from evenshare_core.verification.statement import HIDDEN, verify_statement
from evenshare_core.verification.statement_report import StatementReport
from evenshare_core.verification.statement_rounds import NO_BUNDLE, verify_with_rounds
from evenshare_core.verification.statement_rows import read_statement
from scheduling.models import Job, Pool
from tests.functional.api_stage import ApiStage
from tests.functional.lending_stage import Rounds, disclosed, lending_stage
from tests.stages import staged

ALL = "since=2029-12-01T00:00:00Z&until=2030-12-01T00:00:00Z"
Answers = dict[str, list[dict[str, Any]]]


live = staged(lending_stage)


def pages(live: ApiStage, path: str, as_: str, query: str = ALL, limit: int = 50) -> Answers:
    """Return all rows of a list, and the other fields of its answers."""
    cursor = ""
    stated: Answers = {"results": [], "idle": []}
    while True:
        answer = live.get(f"{path}?{query}&limit={limit}{cursor}", as_=as_).json()
        stated["results"] += answer["results"]
        stated["idle"] += answer.get("idle", [])
        if answer["next"] is None:
            return stated
        cursor = f"&cursor={answer['next']}"


def answers(live: ApiStage, as_: str = "bob", limit: int = 50) -> Answers:
    """Return all answers that are needed to verify a statement."""
    income = pages(live, "income", as_, limit=limit)
    types = {row["gpu_type"] for row in live.get("prices", as_=as_).json()["results"]}
    return {
        "usage": pages(live, "usage", as_, limit=limit)["results"],
        "income": income["results"],
        "idle": income["idle"],
        "prices": [
            row
            for name in sorted(types)
            for row in pages(live, f"prices/{live.pool}/{name}", as_)["results"]
        ],
        "entries": pages(live, "entries", as_, limit=limit)["results"],
    }


def verified(stated: Answers) -> StatementReport:
    return verify_statement(read_statement(json.loads(json.dumps(stated))))


class TestIncomeStatement:
    def test_recomputes_for_lender_and_borrower(self, live: ApiStage) -> None:
        for who, slug in (("bob", "bb"), ("ada", "aa")):
            report = verified(answers(live, who))
            assert report.findings == []
            shares = UsageShare.objects.filter(account__tenant__slug=slug).count()
            assert report.recomputed["income"] == report.recomputed["weight"] == shares
            borrowed = UsageLine.objects.filter(tenant__slug=slug, meter="borrowed").count()
            assert report.recomputed["charge"] == borrowed
        assert report.recomputed["charge"] > 5

    def test_covers_changes_of_idle_quota(self, live: ApiStage) -> None:
        stated = answers(live)
        assert len({(row["own"], row["total"]) for row in stated["idle"]}) > 1
        assert {row["transfer"] is None for row in stated["income"]} == {True, False}
        assert verified(stated).recomputed["settlement of incomes"] >= 2

    def test_does_not_depend_on_page_size(self, live: ApiStage) -> None:
        whole, cut = answers(live), answers(live, limit=1)
        assert cut["income"] == whole["income"]
        assert cut["entries"] == whole["entries"]
        assert verified(cut).recomputed == verified(whole).recomputed
        assert verified(cut).findings == []

    def test_splits_exactly_at_an_instant(self, live: ApiStage) -> None:
        whole = answers(live)
        instant = whole["entries"][0]["effective_at"]
        until = f"since=2029-12-01T00:00:00Z&until={instant}"
        since = f"since={instant}&until=2030-12-01T00:00:00Z"
        for path, who in (("income", "bob"), ("usage", "ada"), ("entries", "ada")):
            before = pages(live, path, who, until)["results"]
            after = pages(live, path, who, since)["results"]
            assert [*after, *before] == pages(live, path, who)["results"]
            assert before
            assert after


def move(row: dict[str, Any], field: str, by: int = 1) -> None:
    """Change an amount by `by` units of its last place."""
    whole, _, part = row[field].partition(".")
    text = str(int(whole + part) + by).rjust(7, "0")
    row[field] = f"{text[:-6]}.{text[-6:]}"


def an_income(stated: Answers) -> None:
    move(settled(stated), "earned")


def settled(stated: Answers) -> dict[str, Any]:
    return next(row for row in stated["income"] if row["transfer"])


def a_charge(stated: Answers) -> None:
    move(next(row for row in stated["usage"] if row["transfer"]), "amount", -1)


def a_price_after_posting(stated: Answers) -> None:
    """Change a posted price and its base; only the terms keep the former price."""
    term = settled(stated)["round"]
    posted = next(row for row in stated["prices"] if row["valid_from_round"] <= term)
    posted.update(price="0.500000", base="0.500000", theta="2.000", used=posted["capacity"])


def a_price_alone(stated: Answers) -> None:
    move(stated["prices"][0], "price")


def a_total(stated: Answers) -> None:
    stated["idle"][0]["total"] += 1


def an_own_idle(stated: Answers) -> None:
    stated["idle"][-1]["own"] -= 1


def a_remainder(stated: Answers) -> None:
    next(row for row in stated["usage"] if row["carried"])["carried"] += 1


def a_settlement(stated: Answers) -> None:
    move(next(row for row in stated["entries"] if row["earned"] != "0.000000"), "earned")


def a_lost_income(stated: Answers) -> None:
    stated["income"].remove(settled(stated))


def a_lost_entry(stated: Answers) -> None:
    del stated["entries"][-1]


PLANTS: list[tuple[str, Callable[[Answers], None], str]] = [
    ("bob", an_income, "income"),
    ("bob", an_income, "settlement of incomes"),
    ("ada", a_charge, "charge"),
    ("ada", a_charge, "settlement of charges"),
    ("bob", a_price_after_posting, "price of a term"),
    ("bob", a_price_alone, "posted price"),
    ("bob", a_total, "weight"),
    ("bob", an_own_idle, "weight"),
    ("ada", a_remainder, "carried remainder"),
    ("bob", a_settlement, "settlement of incomes"),
    ("bob", a_lost_income, "settlement of incomes"),
    ("bob", a_lost_entry, "settlement of incomes"),
    ("ada", a_lost_entry, "settlement of charges"),
]


class TestPlantedErrors:
    def test_are_each_detected_and_named(self, live: ApiStage) -> None:
        honest = {who: answers(live, who) for who in ("ada", "bob")}
        for who, plant, what in PLANTS:
            stated = copy.deepcopy(honest[who])
            plant(stated)
            problems = verified(stated).findings
            assert what in {finding.what for finding in problems}, (plant.__name__, problems)

    def test_finding_names_row_with_stated_and_recomputed_values(self, live: ApiStage) -> None:
        stated = answers(live)
        row = settled(stated)
        right = row["earned"]
        an_income(stated)
        problems = {finding.what: finding for finding in verified(stated).findings}
        assert set(problems) == {"income", "settlement of incomes"}
        finding = problems["income"]
        assert (finding.stated, finding.recomputed) == (row["earned"], right)
        assert f"round {row['round']}, transfer {row['transfer']}" in finding.where


class TestVisibility:
    @pytest.mark.parametrize(
        ("visibility", "borrower", "lenders"),
        [
            ("full", "aa", {"bb", "operator"}),
            ("pseudonyms", "tenant 1", {"bb", "operator"}),
            ("own", None, None),
        ],
    )
    def test_follows_visibility_of_pool(
        self, live: ApiStage, visibility: str, borrower: str | None, lenders: set[str] | None
    ) -> None:
        Pool.objects.filter(pk=live.cluster.pool.pk).update(visibility=visibility)
        stated = answers(live)
        assert {row["borrower"] for row in stated["income"]} == {borrower}
        for row in stated["income"]:
            shown = row["lenders"]
            assert (shown is None) == (lenders is None)
            if shown is not None:
                assert {one["name"] for one in shown} <= (lenders or set())
                assert [one["name"] for one in shown if one["is_you"]] == ["bb"]
            if borrower is None:
                assert (row["lease"], row["term"]) == (None, None)
        report = verified(stated)
        assert report.findings == []
        assert report.recomputed["income"] == len(stated["income"])
        assert bool(report.not_recomputed[HIDDEN]) == (lenders is None)

    def test_hides_borrowers_if_pool_shows_own_rows_only(self, live: ApiStage) -> None:
        Pool.objects.filter(pk=live.cluster.pool.pk).update(visibility="own")
        text = json.dumps(answers(live)["income"])
        jobs = Job.objects.filter(tenant__slug="aa")
        assert jobs
        for hidden in ('"aa"', *(str(job.uid) for job in jobs), *(job.name for job in jobs)):
            assert hidden not in text, hidden

    def test_is_limited_to_tenant_and_site_staff(self, live: ApiStage) -> None:
        for path in ("income", "entries"):
            asked = f"{path}?{ALL}&tenant=bb&pool={live.pool}"
            statuses = {who: live.get(asked, as_=who).status_code for who in live.people}
            assert statuses["bob"] == statuses["otto"] == 200
            assert statuses["ada"] == 404


def compared(stated: Answers, there: Rounds) -> StatementReport:
    statement = read_statement(json.loads(json.dumps(stated)))
    return verify_with_rounds(statement, there.rounds, there.keys)


class TestComparisonWithRounds:
    def test_agrees_for_lender_and_borrower(self, live: ApiStage) -> None:
        for who, slug in (("bob", "bb"), ("ada", "aa")):
            stated = answers(live, who)
            report = compared(stated, disclosed(live, slug))
            assert report.findings == []
            terms = {(row["job"], row["lease"], row["term"]) for row in stated["usage"]}
            assert report.recomputed["own and borrowed GPUs"] == len(terms)
            assert report.recomputed["price in its round"] > len(stated["income"])
            instants = report.recomputed["total idle quota"]
            assert (instants > 5) == bool(stated["income"])

    def test_detects_consistent_changes_across_answers(self, live: ApiStage) -> None:
        """A price, an idle quota and a term are changed consistently in all answers."""
        there, honest = disclosed(live, "bb"), answers(live)
        stated = copy.deepcopy(honest)
        for step in stated["idle"]:
            step["own"], step["total"] = 2 * step["own"], 2 * step["total"]
        assert verified(stated).findings == []
        problems = {finding.what for finding in compared(stated, there).findings}
        assert problems == {"own idle quota", "total idle quota"}
        stated = copy.deepcopy(honest)
        a_price_after_posting(stated)
        assert "price in its round" in {one.what for one in compared(stated, there).findings}
        stated = copy.deepcopy(honest)
        stated["usage"][0]["gpus"] += 1
        problems = {finding.what for finding in compared(stated, there).findings}
        assert problems == {"own and borrowed GPUs"}

    def test_counts_rows_without_bundle_or_key(self, live: ApiStage) -> None:
        stated = answers(live)
        report = compared(stated, Rounds({}, {}))
        assert report.not_recomputed[NO_BUNDLE] >= len(stated["income"])
        keyless = compared(stated, Rounds(disclosed(live, "bb").bundles, {}))
        assert keyless.findings == []
        assert sum("no key" in why for why in keyless.not_recomputed) == 2


class TestInvalidTimeRange:
    @pytest.mark.parametrize("path", ["income", "usage", "entries"])
    def test_names_field(self, live: ApiStage, path: str) -> None:
        for query, field in (
            ("since=monday", "since"),
            ("since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z", "until"),
            ("until=0001-01-01T00:00:00Z", "until"),
        ):
            answer = live.get(f"{path}?{query}", as_="bob")
            assert answer.status_code == 400
            assert [error["field"] for error in answer.json()["errors"]] == [field]
