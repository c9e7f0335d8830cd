"""What came of recomputing a statement, and how findings name its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.money.rows import IncomeRow, UsageRow
from evenshare_core.verification.verdict import Gap, ProofVerdict, Unproven, combined


class Finding(NamedTuple):
    """Something that is not as its factors say; `what` names the rule."""

    what: str
    where: str
    stated: str
    recomputed: str


@dataclass(slots=True)
class StatementReport:
    """What came of a statement: findings, and how much of what was and was not recomputed.

    `unproven`: what of it a tenant would have to be shown. What is not recomputed and no gap is
    outside of the question: hours that are open, terms that began before, other transfers.
    """

    findings: list[Finding] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    recomputed: Counter[str] = field(default_factory=Counter)
    not_recomputed: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, where: str, stated: object, again: object) -> None:
        """Count one recomputation, and note where it gives something else."""
        self.recomputed[what] += 1
        if stated != again:
            self.findings.append(Finding(what, where, _shown(stated), _shown(again)))

    def find(self, what: str, where: str, stated: str, again: str) -> None:
        """Note rows that contradict each other; those that do not are no recomputation."""
        self.findings.append(Finding(what, where, stated, again))

    def left(self, why: str, gap: Gap | None = None) -> None:
        """Count what cannot be recomputed; `gap`: why it is not proven."""
        self.not_recomputed[why] += 1
        if gap is not None:
            self.unproven.append(Unproven(gap, why))

    def verdict(self, accepted: Collection[str] = ()) -> ProofVerdict:
        """Return the result; `accepted`: gaps that count for nothing."""
        count = sum(self.recomputed.values())
        return combined(count, len(self.findings), self.unproven, accepted)


def usage_name(row: UsageRow) -> str:
    return f"usage of job {row.job}, lease {row.lease}, term {row.term}"


def income_name(row: IncomeRow) -> str:
    times = f"{text_of(row.starts_at)} to {text_of(row.ends_at)}"
    settled = f"transfer {row.transfer}" if row.transfer else "not settled"
    return f"income of {row.gpus} {row.gpu_type} borrowed {times}, round {row.round}, {settled}"


def text_of(instant_us: int) -> str:
    return from_us(instant_us).isoformat().replace("+00:00", "Z")


def _shown(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes 4,300 digits; made-up rows may have longer fractions
        return "a number that is too long to be shown"
