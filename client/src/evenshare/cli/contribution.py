"""`evenshare contribution`: a tenant's lending income, reconciled with the ledger."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from .api import Transport
from .terminal import Terminal, inert, when

SUMS = (("by_day", "DAY"), ("by_gpu_type", "GPU TYPE"), ("by_borrower", "BORROWER"))
QUOTA = (
    ("quota_gpu_h", "QUOTA"),
    ("own_gpu_h", "OWN USE"),
    ("lent_gpu_h", "LENT"),
    ("kept_gpu_h", "KEPT"),
    ("free_gpu_h", "TAKEN BY NO JOB"),
    ("without_gpu_h", "WITHOUT GPU"),
)
LINE = (
    ("ends_at", "UNTIL"),
    ("round", "ROUND"),
    ("borrower", "BORROWER"),
    ("lease", "LEASE"),
    ("term", "TERM"),
    ("gpu_type", "TYPE"),
    ("gpus", "GPUS"),
    ("price", "PRICE"),
    ("charge", "CHARGE"),
    ("own_part", "OWN PART"),
    ("earned", "EARNED"),
)
RIGHT = "LINES LENT EARNED ROUND LEASE TERM GPUS PRICE CHARGE QUOTA KEPT"


def contribution(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    asked = {name: getattr(options, name) for name in ("tenant", "pool", "since", "until")}
    if options.lines:
        lines = list(client.pages("/contribution/lines", options.limit, **asked))
        heads, nothing = [head for _, head in LINE], "nothing was lent in this period"
        return screen.listed(lines, nothing, heads, partial(_cells, LINE), RIGHT)
    shown = client.get("/contribution", **asked)
    if screen.answered(shown):
        return 0
    _summary(screen, shown)
    for key, head in SUMS:
        rows = shown.get(key) or []
        if rows:
            screen.line()
            columns = (("name", head), ("lines", "LINES"), ("lent_gpu_h", "LENT"))
            _table(screen, (*columns, ("earned", "EARNED")), rows)
    if shown.get("quota_use"):
        screen.line()
        _table(screen, (("gpu_type", "GPU-HOURS OF"), *QUOTA), shown["quota_use"])
    return 0


def _summary(screen: Terminal, shown: Mapping[str, Any]) -> None:
    ledger = shown.get("reconciliation") or {}
    alpha = shown.get("alpha")
    screen.pairs(
        [
            ("tenant", inert(shown.get("tenant", ""))),
            ("pool", inert(shown.get("pool", ""))),
            ("time", f"{when(shown.get('since'))} to {when(shown.get('until'))}"),
            ("earned", f"{inert(shown.get('earned'))} {inert(shown.get('currency', ''))}"),
            ("lent", f"{inert(shown.get('lent_gpu_h'))} GPU-hours"),
            ("settled", inert(ledger.get("settled"))),
            (
                "ledger",
                f"{inert(ledger.get('ledger'))}, difference {inert(ledger.get('difference'))}",
            ),
            ("not settled", inert(ledger.get("open"))),
            ("corrections", inert(ledger.get("corrections"))),
            ("alpha", "not defined" if alpha is None else f"{float(alpha):.4f}"),
        ]
    )


def _table(
    screen: Terminal, columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]
) -> None:
    screen.table([head for _, head in columns], [_cells(columns, row) for row in rows], RIGHT)


def _cells(columns: Sequence[tuple[str, str]], row: Mapping[str, Any]) -> list[str]:
    return [_cell(row, key) for key, _ in columns]


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    is_instant = key.endswith("_at") or (key == "name" and str(value).endswith("Z"))
    return when(value) if is_instant else inert(value)
