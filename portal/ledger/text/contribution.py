"""What a tenant earned by lending, in words: sums, lines, what became of its quota, fairness."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from billing.selectors.contribution import Contribution, IncomeLine, IncomeSumRow, LineKey
from billing.selectors.quota_use import CountedQuota
from evenshare_core.units import HOUR_US
from portal.charts.figures import credits_text, thousands
from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from portal.common.files import Columns
from portal.ledger.text.statement import VisibleNames
from scheduling.selectors.visibility import Visibility

MICROSECOND = timedelta(microseconds=1)
ZERO = Decimal(0)
MICRO_HOURS = 10**6


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


def file_columns(names: VisibleNames) -> Columns:
    """The columns of a file of lines, whose borrowers are named as the viewer may read them."""
    return {
        "counted_at": "counted_at",
        "hour": "hour",
        "round": "round",
        "gpu_type": "gpu_type",
        "borrower": lambda line: names.of(line.borrower_id) or "another tenant",
        "lease": "lease",
        "term": "term",
        "starts_at": "starts_at",
        "ends_at": "ends_at",
        "gpus": "gpus",
        "price_credits_per_gpu_h": "price",
        "held_h": lambda line: _hours(line.held // MICROSECOND),
        "carried_micro_credits": "carried",
        "charge_credits": "charge",
        "own_part": "share.part",
        "own_part_exact": "share.fraction",
        "lent_gpu_h": "share.lent_gpu_h",
        "earned_credits": "share.amount",
        "transfer": "transfer",
        "charged_until": "charged_until",
        "borne_credits": "borne",
        "earned_borne_credits": "share_borne",
    }


def _hours(gpu_us: int | Fraction) -> Decimal:
    """Microseconds as hours, six places."""
    return Decimal(round(Fraction(gpu_us * MICRO_HOURS) / HOUR_US)) / MICRO_HOURS
