"""`evenshare credit`: shows spendable credit, and requests a transfer of credit."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from .conftest import Run
from .portal import Portal

ROW: dict[str, Any] = {
    "tenant": "vision", "book": "main", "balance": "7.000000", "credit_limit": None,
    "reserved": "1.000000", "overrun": "0.000000", "promisable": None, "budget": None,
}  # fmt: skip
BUDGET = {
    "amount": "10.000000", "state": "notice", "runs_out_on": None,
    "projection": "No reliable projection: 2 whole days are known, 3 are needed.",
}  # fmt: skip


class TestShow:
    def test_tells_what_may_be_spent_and_why_no_day_is_named(
        self, run: Run, portal: Portal
    ) -> None:
        portal.credit = [ROW, {**ROW, "tenant": "nlp", "promisable": "3.000000", "budget": BUDGET}]
        done = run("credit", "show")
        assert done.code == 0
        assert "any" in done.out
        assert "3.000000" in done.out
        assert "nlp: No reliable projection" in done.err
        assert run("credit", "show", "--output", "json").json == portal.credit

    def test_of_no_account_says_so(self, run: Run) -> None:
        assert "no account" in run("credit", "show").err


class TestTransfer:
    WORDS = ("credit", "transfer", "--to", "nlp", "--amount", "2.5", "--reason", "course")

    def test_asks_under_a_key(self, run: Run, portal: Portal) -> None:
        done = run(*self.WORDS, "--idempotency-key", "k", "--output", "json")
        assert done.json["key"] == "k"
        assert portal.seen[-1][3] == {"to": "nlp", "amount": "2.5", "reason": "course"}
        assert "Requested a transfer of 2.5 credits to nlp" in run(*self.WORDS).out

    def test_needs_somebody_an_amount_and_a_reason(self, run: Run) -> None:
        assert run("credit", "transfer", "--to", "nlp").code == 2


def test_login_asks_for_the_scope_only_where_it_is_wanted(
    run: Run, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("right\n"))
    assert run("login", "--username", "ada", "--password", "-", "--credit").code == 0
    assert "credit:write" in portal.seen[0][3]["scopes"]
