"""Test what the page of a round shows of its program: model, solver, status and time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.models import Pool, Round
from scheduling.selectors.rounds.stored import round_decision
from tests.functional.page_text import words
from tests.functional.test_operator import page
from tests.functional.visitors import Town, town

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.usefixtures("committed_db")


def decided(policy: str) -> tuple[Town, Round, str]:
    """Decide a round with a job that has a deadline; return the text of its page too."""
    there = town()
    lab = there.cluster
    Pool.objects.filter(pk=lab.pool.pk).update(policy=policy)
    lab.pool.refresh_from_db()
    lab.submit("north", 2, 600, job_class="strict_slo", deadline_at=lab.at + HOUR, estimate_s=600)
    lab.round(after_s=10)
    round_ = Round.objects.get(pool=lab.pool)
    return there, round_, words(page(there.owner, f"/pools/{lab.pool.name}/rounds/1/"))


class TestRoundPage:
    def test_names_program_of_deadlines_and_ortools(self) -> None:
        _, round_, shown = decided("unisched")
        solve = round_decision(round_).solve
        assert solve is not None
        assert "Program UniSched's Selector: leases with the largest reward of deadlines" in shown
        assert f"Program solved by ortools: {solve.status} Its objective" in shown
        assert f"Solved, decided and checked in {round_.decide_us / 1000:.1f} ms" in shown
        # Only a program that divides types of GPUs has other reports to try.
        assert "What-if reports" not in shown

    def test_of_policy_without_program_has_none(self) -> None:
        _, _, shown = decided("fifo")
        assert "Decided and checked in" in shown
        assert "Program none: jobs are picked in order" in shown
