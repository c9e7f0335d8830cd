"""`evenshare credit`: a tenant's remaining credit, and requests for transfers."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from .api import Transport
from .terminal import Terminal, inert

HEADS = [
    "TENANT",
    "BOOK",
    "BALANCE",
    "LIMIT",
    "RESERVED",
    "MAY SPEND",
    "BUDGET",
    "USED",
    "RUNS OUT",
]


def show(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    rows = client.get("/credit", tenant=options.tenant)["results"]
    screen.listed(rows, "there is no account yet", HEADS, _row, "BALANCE LIMIT RESERVED")
    for row in () if screen.writes_json else rows:
        budget = row.get("budget")
        if budget and not budget.get("runs_out_on"):
            screen.note(f"{inert(row.get('tenant'))}: {inert(budget.get('projection'))}")
    return 0


def transfer(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body = {"to": options.to, "amount": options.amount, "reason": options.reason}
    body |= {"tenant": options.tenant} if options.tenant else {}
    body |= {"book": options.book} if options.book else {}
    key = options.idempotency_key or str(uuid.uuid4())
    asked = client.post("/transfers", body, key=key)
    if not screen.answered(asked):
        to, amount = inert(asked.get("to")), inert(asked.get("amount"))
        screen.line(f"Requested a transfer of {amount} credits to {to}: {inert(asked.get('id'))}")
        screen.note("An operator or the finance role decides.")
    return 0


def _row(row: dict[str, Any]) -> list[str]:
    budget = row.get("budget") or {}
    return [
        inert(row.get("tenant")),
        inert(row.get("book")),
        inert(row.get("balance")),
        _or(row.get("credit_limit"), "none"),
        inert(row.get("reserved")),
        _or(row.get("promisable"), "any"),
        _or(budget.get("amount"), "none"),
        _or(budget.get("state"), "-"),
        _or(budget.get("runs_out_on"), "-"),
    ]


def _or(value: object, nothing: str) -> str:
    return nothing if value is None else inert(value)
