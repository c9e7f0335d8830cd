"""Test the page of an income line: each factor, and products that a reader can check."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from evenshare_core.money.fixed_point import to_micro
from tests.functional.pool_stage import Stage, headline

ALL = "from=2001-01-01&to=2032-12-31&by=month"
LINES, LINE = "/t/beta/ledger/contribution/", "/t/beta/ledger/contribution/line/"


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


def links(there: Stage) -> list[str]:
    page = there.page("neighbour", f"{LINES}?{ALL}")
    return [
        link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+&amp;line=[^"]+)"', page)
    ]


class TestIncomeLine:
    def test_recomputes_from_its_intervals_and_lenders(self, there: Stage) -> None:
        problems = links(there)
        assert len(problems) > 2
        for link in problems:
            page = there.get("neighbour", link).context
            line, rows = page["line"], page["intervals"]
            assert sum(row.length_s for row in rows) == page["counted_s"] == page["held_s"]
            assert abs(sum(row.part_s for row in rows) - page["part_s"]) < Fraction(
                len(rows), 10**6
            )
            part = Fraction(page["part_s"]) / Fraction(page["counted_s"])
            assert abs(part - Fraction(line.weight, line.weights)) < Fraction(1, 10**6)
            assert sum(row.weight for row in page["lenders"]) == line.weights
            (mine,) = [row for row in page["lenders"] if row.is_you]
            assert abs(mine.exact - line.earned) < Fraction(1, 10**6)
            assert mine.got == line.earned

    def test_headline_shows_share_of_term_cost(self, there: Stage) -> None:
        page = there.page("neighbour", links(there)[0])
        shown = headline(page)
        assert re.fullmatch(
            r"beta earned [\d.]+ of the [\d.]+ credits that a term of \d+ borrowed GPUs? cost\.",
            shown,
        )
        command = re.search(r"evenshare statement verify --pool \S+ --tenant beta --from", page)
        assert command
        # The command is in the component for commands, which wraps on a phone.
        assert re.search(r'<div class="cmd">\s*<code[^>]*>evenshare statement verify', page)

    def test_defaults_to_newest_line(self, there: Stage) -> None:
        newest = there.get("neighbour", links(there)[0]).context["line"]
        assert there.get("neighbour", LINE).context["line"] == newest

    def test_unknown_or_foreign_line_returns_404(self, there: Stage) -> None:
        (key,) = re.findall(r"line=([\d-]+)", links(there)[0])
        hour, number = key.split("-")
        for wrong in (f"{hour}-{int(number) + 10**6}", f"{int(hour) + 3600}-{number}", "x", "1-"):
            assert there.get("neighbour", f"{LINE}?line={wrong}").status_code == 404
        assert (
            there.get("owner", f"/t/alpha/ledger/contribution/line/?line={key}").status_code == 404
        )
        for who in ("owner", "stranger", "nobody"):
            assert there.get(who, LINE).status_code == 404

    @pytest.mark.parametrize("visibility", ["full", "pseudonyms", "own"])
    def test_names_follow_visibility_of_pool(self, there: Stage, visibility: str) -> None:
        there.see(visibility)
        page = there.get("neighbour", links(there)[0])
        names = {"full": "alpha", "pseudonyms": "tenant 1", "own": "another tenant"}
        assert page.context["borrower"] == names[visibility]
        text = page.content.decode().split("<main")[1]
        assert ("alpha" in text) == (visibility == "full")
        lenders = page.context["lenders"]
        assert (lenders is None) == (visibility == "own")
        if visibility == "own":
            assert "cannot be recomputed here" in " ".join(text.split())

    def test_query_count_is_bounded(self, there: Stage) -> None:
        assert there.reads("neighbour", links(there)[0]) <= 22

    def test_tenant_that_lent_nothing_has_empty_page(self, there: Stage) -> None:
        page = there.page("operator", "/t/delta/ledger/contribution/line/")
        assert "has lent nothing yet" in page
        assert to_micro(there.get("neighbour", LINE).context["line"].charge) >= 0
