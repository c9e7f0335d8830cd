"""Test `evenshare credit`, which shows spendable credit and requests transfers."""

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
    def test_shows_spendable_credit_and_missing_projection(self, run: Run, portal: Portal) -> None:
        portal.credit = [ROW, {**ROW, "tenant": "nlp", "promisable": "3.000000", "budget": BUDGET}]
        done = run("credit", "show")
        assert done.code == 0
        assert "any" in done.out
        assert "3.000000" in done.out
        assert "nlp: No reliable projection" in done.err
        assert run("credit", "show", "--output", "json").json == portal.credit

    def test_reports_if_there_is_no_account(self, run: Run) -> None:
        assert "no account" in run("credit", "show").err


class TestTransfer:
    WORDS = ("credit", "transfer", "--to", "nlp", "--amount", "2.5", "--reason", "course")

    def test_sends_request_with_idempotency_key(self, run: Run, portal: Portal) -> None:
        done = run(*self.WORDS, "--idempotency-key", "k", "--output", "json")
        assert done.json["key"] == "k"
        assert portal.seen[-1][3] == {"to": "nlp", "amount": "2.5", "reason": "course"}
        assert "Requested a transfer of 2.5 credits to nlp" in run(*self.WORDS).out

    def test_requires_recipient_amount_and_reason(self, run: Run) -> None:
        assert run("credit", "transfer", "--to", "nlp").code == 2


def test_login_requests_credit_scope_only_on_demand(
    run: Run, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("right\n"))
    assert run("login", "--username", "ada", "--password", "-", "--credit").code == 0
    assert "credit:write" in portal.seen[0][3]["scopes"]
