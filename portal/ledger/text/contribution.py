"""What a tenant earned by lending, in words: sums, lines, what became of its quota, fairness."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.selectors.contribution import Contribution, IncomeLine, IncomeSumRow, LineKey
from billing.selectors.quota_use import CountedQuota
from evenshare_core.units import HOUR_US
from portal.charts.figures import credits_text, thousands
from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from portal.ledger.text.statement import VisibleNames
from scheduling.selectors.visibility import Visibility
from tenants.api.times import time_text

MICROSECOND = timedelta(microseconds=1)
ZERO = Decimal(0)
MICRO_HOURS = 10**6
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


@dataclass(frozen=True, slots=True)
class ContributionLine:
    """One income line as the viewer may see it; `uid` is empty where the job is not for them."""

    line: IncomeLine
    ends_at: Instant | None
    held_h: Decimal
    borrower: str
    job: str
    uid: uuid.UUID | None

    @property
    def key(self) -> str:
        """How an address names it."""
        return key_text(self.line.key)


def key_text(key: LineKey) -> str:
    """Return the key of a line as addresses have it: its hour in seconds since 1970, its number."""
    hour, number = key
    return f"{round(hour.timestamp())}-{number}"


def contribution_lines(
    lines: Iterable[IncomeLine], names: VisibleNames, visibility: Visibility, times: Clocks
) -> list[ContributionLine]:
    """Tell each line: whose job it was as far as the pool lets."""
    rows = []
    for line in lines:
        may_open = visibility.jobs_of(line.borrower_id)
        rows.append(
            ContributionLine(
                line=line,
                ends_at=times.instant(line.ends_at),
                held_h=_hours(line.held // MICROSECOND),
                borrower=names.of(line.borrower_id) or "another tenant",
                job=line.job if may_open else "",
                uid=line.job_uid if may_open else None,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class QuotaUseRow:
    """What became of a quota of one type, or of all, in GPU-hours."""

    name: str
    quota: Decimal
    own: Decimal
    kept: Decimal
    lent: Decimal
    free: Decimal
    without_gpu: Decimal


def quota_use_rows(counted: CountedQuota) -> list[QuotaUseRow]:
    """A row for each GPU type."""
    return [
        QuotaUseRow(
            name,
            *(
                _hours(gpu_us)
                for gpu_us in (use.quota_us, use.own_us, use.kept_us, use.lent_us, use.free_us,
                               use.without_gpu_us)
            ),
        )
        for name, use in counted.by_type.items()
    ]  # fmt: skip # rows of what belongs together


def quota_use_total(rows: Sequence[QuotaUseRow]) -> QuotaUseRow:
    """All types together."""
    columns = ("quota", "own", "kept", "lent", "free", "without_gpu")
    return QuotaUseRow(
        "Sum", *(sum((getattr(row, name) for row in rows), ZERO) for name in columns)
    )


def quota_use_text(total: QuotaUseRow) -> str:
    """The finding about idle quota as a heading."""
    idle = total.quota - total.own
    if not total.quota:
        return "No quota in this time"
    if not idle:
        return "Of the quota nothing was idle"
    share = thousands(100 * total.lent / idle, 1)
    return f"{share} % of the idle quota was lent"


def file_rows(lines: Sequence[IncomeLine], names: VisibleNames) -> Iterator[list[Any]]:
    """Each line as a row of `COLUMNS`, exact to the micro-credit, oldest first."""
    for line in reversed(lines):
        yield [
            time_text(line.counted_at),
            time_text(line.hour),
            "" if line.round is None else line.round,
            line.gpu_type,
            names.of(line.borrower_id) or "another tenant",
            line.lease,
            line.term,
            time_text(line.starts_at),
            time_text(line.ends_at),
            line.gpus,
            f"{line.price:f}",
            f"{_hours(line.held // MICROSECOND):f}",
            "" if line.carried is None else f"{line.carried:f}",
            f"{line.charge:f}",
            f"{line.share.part:f}",
            line.share.fraction,
            f"{line.share.lent_gpu_h:f}",
            f"{line.share.amount:f}",
            line.transfer or "",
            time_text(line.charged_until) or "",
            f"{line.borne:f}",
            f"{line.share_borne:f}",
        ]


def _hours(gpu_us: int | Fraction) -> Decimal:
    """Microseconds as hours, six places."""
    return Decimal(round(Fraction(gpu_us * MICRO_HOURS) / HOUR_US)) / MICRO_HOURS
