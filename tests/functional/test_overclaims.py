"""Test declared and measured speeds on a round's page and over REST, by viewer."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduling.models import Profile, Round
from scheduling.selectors.rounds.replay import replay_stored_round
from tests.functional.certificate_stage import overclaimed, plant
from tests.functional.mixed_stage import mixed_stage
from tests.functional.page_text import words
from tests.functional.pool_stage import Stage, last_round
from tests.stages import staged

there = staged(mixed_stage)


@pytest.fixture
def planted(there: Stage) -> Round:
    """Store a round: alpha-net declared 4 and measured 2, beta-net declared 7.5 and measured 5."""
    return plant(there, overclaimed)


def section(there: Stage, number: int, who: str) -> str:
    """Return the text of the round's overclaims."""
    page = there.page(who, there.url(f"rounds/{number}/"))
    if 'id="d-overclaims"' not in page:
        return ""
    return words(page[page.index('id="d-overclaims"') :].partition("</details>")[0])


def told(there: Stage, number: int, who: str) -> dict[str, Any]:
    answer = there.get(who, f"/api/v1/rounds/{there.pool}/{number}").json()
    certificate: dict[str, Any] = answer["certificate"]
    return certificate


class TestRoundWithOverclaims:
    def test_page_names_only_own_job_types(self, there: Stage, planted: Round) -> None:
        shown = section(there, planted.number, "owner")
        assert "2 speeds were declared faster than measured" in shown
        assert "alpha-net v100 4.000 2.000 100.0 % 12" in shown
        assert "beta v100 7.500 5.000 50.0 % 12" in shown
        assert "beta-net" not in shown
        page = there.page("owner", there.url(f"rounds/{planted.number}/"))
        assert f"/t/alpha/profiles/alpha-net/?pool={there.pool}" in page

    def test_certificate_line_holds_with_a_note(self, there: Stage, planted: Round) -> None:
        page = words(there.page("owner", there.url(f"rounds/{planted.number}/")))
        line = page[page.index("Measured speeds are used") :]
        assert line.startswith("Measured speeds are used holds, with a note")
        said = "2 of 3 job types were declared faster than measured, by at most 100.0 %: alpha's."
        assert said in line
        # The injected round does not follow from the previous round. Its other promises hold.
        assert "1 promise is broken." in page
        assert re.search(r"Follows from round \d+ violated", page)

    def test_certificate_is_reproduced_by_replay(self, planted: Round) -> None:
        assert replay_stored_round(planted).certified is True

    def test_hides_other_tenants_if_pool_hides_rows(self, there: Stage, planted: Round) -> None:
        there.see("own")
        shown = section(there, planted.number, "neighbour")
        assert "beta-net v100 7.500 5.000 50.0 % 12" in shown
        assert "1 row of other tenants or beyond the limit is not shown" in shown
        page = there.page("neighbour", there.url(f"rounds/{planted.number}/"))
        assert "alpha" not in page
        assert "2 of 3 job types were declared faster than measured." in words(page)
        certificate = told(there, planted.number, "neighbour")
        assert certificate["overclaims_hidden"] == 1
        assert [row["tenant"]["name"] for row in certificate["overclaims"]] == ["beta"]
        line = certificate["lines"][-1]
        assert (line["property"], line["count"]) == ("measured_speeds", 2)
        assert (line["worst"], line["tenant"], line["hidden"]) == (None, None, True)

    def test_replaces_other_tenants_with_pseudonyms(self, there: Stage, planted: Round) -> None:
        there.see("pseudonyms")
        shown = section(there, planted.number, "neighbour")
        assert "tenant 1 v100 4.000 2.000 100.0 % 12" in shown
        assert "alpha" not in there.page("neighbour", there.url(f"rounds/{planted.number}/"))

    def test_rest_returns_overclaims(self, there: Stage, planted: Round) -> None:
        certificate = told(there, planted.number, "owner")
        assert certificate["overclaims"][0] == {
            "tenant": {"name": "alpha", "slug": "alpha", "you": True}, "job_type": "alpha-net",
            "gpu_type": "v100", "declared": "4.000", "measured": "2.000", "excess": "1.000",
            "reports": 12,
        }  # fmt: skip
        assert certificate["overclaims"][1]["job_type"] == ""
        line = certificate["lines"][-1]
        assert (line["verdict"], line["basis"], line["worst"]) == ("noted", "speeds", 1.0)
        operator = told(there, planted.number, "operator")
        assert [row["job_type"] for row in operator["overclaims"]] == ["alpha-net", "beta-net"]

    def test_page_needs_no_extra_queries(self, there: Stage, planted: Round) -> None:
        before, after = (
            there.reads("owner", there.url(f"rounds/{number}/"))
            for number in (planted.number - 1, planted.number)
        )
        assert before == after


class TestRoundWithoutOverclaims:
    def test_shows_no_section(self, there: Stage) -> None:
        number = last_round(there).number
        assert section(there, number, "owner") == ""
        assert "Measured speeds are used" not in there.page("owner", there.url(f"rounds/{number}/"))
        assert told(there, number, "owner")["overclaims"] == []


class TestProfilePage:
    def overclaim(self, there: Stage) -> str:
        row = Profile.objects.get(name="alpha-net")
        row.declared = {"k80": 1000, "v100": 4000}
        row.measured = {
            kind: {"speed_milli": milli, "spread_milli": 10, "reports": 12}
            for kind, milli in row.speedups.items()
        }
        row.save()
        return f"/t/alpha/profiles/alpha-net/?pool={there.pool}"

    def test_links_to_newest_round_with_overclaim(self, there: Stage) -> None:
        path = self.overclaim(there)
        assert "The certificate of round" not in words(there.page("owner", path))
        there.lab.round(after_s=10)
        number = last_round(there).number
        page = there.page("owner", path)
        assert f"/pools/{there.pool}/rounds/{number}/#overclaims" in page
        assert f"The certificate of round {number} shows it." in words(page)
        assert "alpha-net v100 4.000 2.000 100.0 % 12" in section(there, number, "owner")

    def test_has_no_link_if_no_certificate_shows_overclaim(self, there: Stage) -> None:
        path = self.overclaim(there)
        there.lab.pool.policy, there.lab.pool.options = "ltgf", {}
        there.lab.pool.save()
        there.lab.round(after_s=10)
        assert "The certificate of round" not in words(there.page("owner", path))
