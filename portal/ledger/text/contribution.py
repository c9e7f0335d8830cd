"""What a tenant earned by lending, in words: sums, lines, what became of its quota, fairness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from billing.selectors.contribution import Contribution, IncomeSumRow
from billing.selectors.income import IncomeLine
from billing.selectors.quota_use import QuotaUseItem
from portal.charts.figures import credits_text, thousands
from tenants.api.times import time_text

ZERO = Decimal(0)
COLUMNS = (
    "counted_at", "hour", "round", "gpu_type", "borrower", "lease", "term", "starts_at", "ends_at",
    "gpus", "price_credits_per_gpu_h", "held_h", "carried_micro_credits", "charge_credits",
    "own_part", "own_part_exact", "lent_gpu_h", "earned_credits", "transfer",
    "charged_until", "borne_credits", "earned_borne_credits",
)  # fmt: skip # a table


@dataclass(frozen=True, slots=True)
class SumTable:
    """Lines summed by something: the table's id, its title, the head of its first column."""

    id: str
    title: str
    head: str
    rows: Sequence[IncomeSumRow]


def contribution_headline(tenant: str, shown: Contribution, pool: str) -> str:
    """The finding of a statement as a sentence."""
    if not shown.total.lines:
        return f"{tenant} lent nothing in pool {pool} in this time."
    lent = thousands(shown.total.lent_gpu_h, 2)
    earned = credits_text(shown.total.earned)
    return f"{tenant} earned {earned} credits in pool {pool} by lending {lent} GPU-hours."


def quota_use_total(rows: Sequence[QuotaUseItem]) -> QuotaUseItem:
    """All types together."""
    _, *columns = QuotaUseItem.__struct_fields__
    return QuotaUseItem(
        "Sum", *(sum((getattr(row, name) for row in rows), ZERO) for name in columns)
    )


def quota_use_text(total: QuotaUseItem) -> str:
    """The finding about idle quota as a heading."""
    idle = total.quota_gpu_h - total.own_gpu_h
    if not total.quota_gpu_h:
        return "No quota in this time"
    if not idle:
        return "Of the quota nothing was idle"
    share = thousands(100 * total.lent_gpu_h / idle, 1)
    return f"{share} % of the idle quota was lent"


def file_rows(lines: Sequence[IncomeLine]) -> Iterator[list[Any]]:
    """Each line as a row of `COLUMNS`, exact to the micro-credit, oldest first."""
    for line in reversed(lines):
        yield [
            time_text(line.counted_at),
            time_text(line.hour),
            "" if line.round is None else line.round,
            line.gpu_type,
            line.borrower,
            line.lease,
            line.term,
            time_text(line.starts_at),
            time_text(line.ends_at),
            line.gpus,
            f"{line.price:f}",
            f"{line.held_h:f}",
            "" if line.carried is None else f"{line.carried:f}",
            f"{line.charge:f}",
            f"{line.own_part:f}",
            line.own_part_exact,
            f"{line.lent_gpu_h:f}",
            f"{line.earned:f}",
            line.transfer or "",
            time_text(line.charged_until) or "",
            f"{line.borne:f}",
            f"{line.earned_borne:f}",
        ]
