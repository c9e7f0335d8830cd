"""A round's answers to deadlines: on its page and over REST, by viewer."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.policies import registry
from scheduling.models import Job
from tests.functional.pool_stage import Stage, last_round, stage
from tests.stages import staged
from tests.toy_policy.deadlines import POLICY


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def played_pool() -> Stage:
    """Create a pool with a planned and a refused job of alpha, and a planned job of beta."""
    there = stage(policy=POLICY.name)
    due(there, "alpha", 1510)
    due(there, "alpha", 600, work_s=1200)
    due(there, "beta", 1510)
    there.lab.round(after_s=10)
    return there


there = staged(played_pool)


def due(there: Stage, tenant: str, within_s: int, *, work_s: int = 60) -> Job:
    """Submit a job of one GPU, named by its tenant and the time to its deadline."""
    job = there.lab.submit(
        tenant, 1, work_s, job_class="strict_slo", estimate_s=work_s,
        deadline_at=there.lab.at + timedelta(seconds=within_s),
    )  # fmt: skip
    job.name = f"{tenant}-{within_s}"
    job.save(update_fields=["name"])
    return job


def section(there: Stage, who: str, number: int | None = None) -> str:
    """Return the text of the round's answers; "" if there are none."""
    page = there.page(who, there.url(f"rounds/{number or last_round(there).number}/"))
    if 'id="d-answers"' not in page:
        return ""
    part = page[page.index('id="d-answers"') :].partition("</details>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def told(there: Stage, who: str) -> dict[str, Any]:
    path = f"/api/v1/rounds/{there.pool}/{last_round(there).number}"
    answers: dict[str, Any] = there.get(who, path).json()["decision"]["answers"]
    return answers


class TestRoundPage:
    def test_lists_answered_deadlines(self, there: Stage) -> None:
        shown = section(there, "owner")
        assert "3 deadlines were answered: 1 refused, 2 planned" in shown
        assert "Of 3 jobs with deadlines." in shown
        assert "alpha-600 Refused it takes longer, even on an empty pool" in shown
        assert "earliest feasible deadline:" in shown
        assert "alpha-1510 Planned" in shown
        assert "87 %" in shown
        assert "ends 10 min" in shown

    def test_lists_moved_plans_and_missed_deadlines(self, there: Stage) -> None:
        over = there.lab.at + timedelta(seconds=5)
        Job.objects.filter(name="alpha-600").update(deadline_at=over)
        there.lab.round(after_s=10)
        shown = section(there, "owner")
        assert "3 deadlines were answered: 1 missed, 2 moved" in shown
        assert "alpha-600 Missed" in shown
        assert "alpha-1510 Moved it waits for GPUs" in shown
        assert "beta Moved 1 v100" in shown  # the policy's own sentence is private to the tenant

    def test_states_that_no_answer_is_new(self, there: Stage) -> None:
        Job.objects.filter(name__endswith="1510").update(state="cancelled", ended_at=there.lab.at)
        there.lab.submit("gamma", 1, 10)
        there.lab.round(after_s=10)
        shown = section(there, "owner")
        assert "No new answers to deadlines" in shown
        assert "Of 1 job with a deadline." in shown
        assert "Earlier answers of the other jobs remain valid" in shown

    def test_omits_section_without_deadlines(self, there: Stage) -> None:
        assert section(there, "owner", 1) == ""

    def test_query_count_does_not_grow_with_answers(self, there: Stage) -> None:
        number = last_round(there).number
        few = there.reads("owner", there.url(f"rounds/{number}/"))
        for within_s in range(2000, 2010):
            due(there, "alpha", within_s)
            due(there, "beta", within_s)
        there.lab.round(after_s=10)
        number = last_round(there).number
        assert "22 deadlines were answered: 2 moved, 20 planned" in section(there, "owner", number)
        assert there.reads("owner", there.url(f"rounds/{number}/")) == few


class TestVisibility:
    def test_shows_others_time_and_gpus_without_private_fields(self, there: Stage) -> None:
        shown = section(there, "neighbour")
        assert "beta-1510 Planned" in shown
        assert "alpha Planned 1 v100" in shown
        assert "alpha Refused it takes longer" in shown
        assert "alpha-" not in shown
        assert shown.count("87 %") == 1
        assert "earliest feasible" not in shown

    def test_replaces_other_tenants_with_pseudonyms(self, there: Stage) -> None:
        there.see("pseudonyms")
        shown = section(there, "neighbour")
        assert "tenant 1 Planned 1 v100" in shown
        assert "alpha" not in shown

    def test_counts_hidden_rows_if_pool_hides_others(self, there: Stage) -> None:
        there.see("own")
        shown = section(there, "neighbour")
        assert "3 deadlines were answered: 1 refused, 2 planned" in shown
        assert "beta-1510 Planned" in shown
        assert shown.count("Refused") == 0
        assert "2 rows of other tenants are not shown" in shown

    def test_shows_everything_to_operators(self, there: Stage) -> None:
        shown = section(there, "operator")
        for name in ("alpha-1510", "alpha-600", "beta-1510"):
            assert name in shown


class TestRest:
    def test_returns_counts_and_private_fields_of_own_jobs(self, there: Stage) -> None:
        answers = told(there, "owner")
        assert answers["counts"] == {"missed": 0, "refused": 1, "moved": 0, "planned": 2}
        assert (answers["jobs_with_deadlines"], answers["rows_hidden"]) == (3, 0)
        first, mine, theirs = answers["rows"]
        assert (first["kind"], first["limit"], first["job"]["name"]) == (
            "refused", "length", "alpha-600",
        )  # fmt: skip
        assert first["earliest"] is not None
        assert (mine["kind"], mine["chance"], mine["points"]) == ("planned", 0.875, "100.000000")
        assert theirs["tenant"]["name"] == "beta"
        assert len(theirs["leases"]) == 1
        hidden = ("job", "by", "chance", "earliest")
        assert {name: theirs[name] for name in hidden} == dict.fromkeys(hidden)
        assert theirs["points"] == "0.000000"

    def test_omits_other_tenants_if_pool_hides_them(self, there: Stage) -> None:
        there.see("own")
        answers = told(there, "neighbour")
        assert [row["tenant"]["name"] for row in answers["rows"]] == ["beta"]
        assert (answers["rows_hidden"], answers["counts"]["refused"]) == (2, 1)
