"""The report on a recomputed statement, with the names of its rows."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.money.rows import IncomeRow, UsageRow
from evenshare_core.verification.verdict import Gap, ProofVerdict, Unproven, combined


class Finding(NamedTuple):
    """A stated amount that differs from the recomputed one; `what` names the rule."""

    what: str
    where: str
    stated: str
    recomputed: str


@dataclass(slots=True)
class StatementReport:
    """The result of recomputing a statement: findings, and counts of recomputed and other amounts.

    `unproven` has the gaps: amounts for which the tenant would need more data. Other amounts that
    are not recomputed are out of scope: open hours, terms that began before, other transfers.
    """

    findings: list[Finding] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    recomputed: Counter[str] = field(default_factory=Counter)
    not_recomputed: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, where: str, stated: object, again: object) -> None:
        """Count one recomputation, and record a finding if the result differs."""
        self.recomputed[what] += 1
        if stated != again:
            self.findings.append(Finding(what, where, _shown(stated), _shown(again)))

    def find(self, what: str, where: str, stated: str, again: str) -> None:
        """Record rows that contradict each other; this does not count as a recomputation."""
        self.findings.append(Finding(what, where, stated, again))

    def left(self, why: str, gap: Gap | None = None) -> None:
        """Count an amount that cannot be recomputed; with `gap`, it is therefore not proven."""
        self.not_recomputed[why] += 1
        if gap is not None:
            self.unproven.append(Unproven(gap, why))

    def verdict(self, accepted: Collection[str] = ()) -> ProofVerdict:
        """Return the result; `accepted` gaps are ignored."""
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
    # Python limits integers to 4,300 digits; forged rows may have longer fractions
    except ValueError:
        return "a number that is too long to be shown"
