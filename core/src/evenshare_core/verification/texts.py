"""Findings as lines for people: one line for a round, one for each thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.plurals import plural
from evenshare_core.money.fixed_point import to_text
from evenshare_core.verification.heads import HeadFinding
from evenshare_core.verification.rounds import OwnClaim, RoundCheck, RoundFigures, RoundFinding

_DONE = {
    RoundCheck.BYTES: "hash",
    RoundCheck.RECORD: "chain",
    RoundCheck.DECISION: "decision",
    RoundCheck.PLAN: "plan",
    RoundCheck.CERTIFICATE: "certificate",
    RoundCheck.FOLLOWS: "follows",
    RoundCheck.NAMES: "own names",
}


def round_line(finding: RoundFinding) -> str:
    """Return a round in one line: what was recomputed, with its numbers, and what came of it."""
    done = ", ".join(
        text for check, text in _DONE.items() if check in finding.recomputed
    )  # fmt: skip
    parts = [done, *(_figure_texts(finding.figures) if finding.figures else ())]
    verdict = "ok" if finding.ok else "WRONG: " + "; ".join(_problem_texts(finding))
    remarks = f" ({'; '.join(finding.remarks)})" if finding.remarks else ""
    time = f"{from_us(finding.at_us):%Y-%m-%dT%H:%M:%SZ}"
    return f"round {finding.round}  {time}  {'; '.join(parts)}: {verdict}{remarks}"


def _problem_texts(finding: RoundFinding) -> Iterator[str]:
    for problem in finding.problems:
        yield f"{problem.check.value}: {problem.text}"


def _figure_texts(figures: RoundFigures) -> Iterator[str]:
    yield f"{figures.grants} grants, {figures.renewals} renewals, {figures.waiting} jobs wait"
    by_tenant: dict[str, list[OwnClaim]] = {}
    for claim in figures.claims:
        by_tenant.setdefault(claim.tenant, []).append(claim)
    for tenant, claims in by_tenant.items():
        yield f"{tenant} {', '.join(map(_claim_text, claims))}"
    prices = ", ".join(f"{gpu_type} {to_text(micro)}" for gpu_type, micro in figures.prices)
    if prices:
        yield f"price {prices}"


def _claim_text(claim: OwnClaim) -> str:
    rho = "-" if claim.rho is None else f"{claim.rho:.3f}"
    return f"{claim.gpu_type} rho {rho} {claim.own} own + {claim.borrowed} borrowed"


def head_lines(finding: HeadFinding) -> Iterator[str]:
    """Return the head, then what is wrong with it and what is to be said of it."""
    if finding.root:
        yield f"head of {finding.log}: {finding.size} rounds, root {finding.root.hex()}"
    for problem in finding.problems:
        yield f"WRONG: {problem.check.value}: {problem.text}"
    yield from finding.remarks


@dataclass(slots=True)
class Tally:
    """Rounds counted for the last line: each one's number and whether it is fine.

    Of how many the decision, the certificate was not recomputed; in how many a tenant of the
    reader's is missing.
    """

    rows: list[tuple[int, bool]] = field(default_factory=list)
    not_decided: int = 0
    not_certified: int = 0
    without_own: int = 0

    def add(self, finding: RoundFinding) -> None:
        """Count a round."""
        self.rows.append((finding.round, finding.ok))
        self.not_decided += not finding.is_decided
        self.not_certified += finding.lacks_certificate
        self.without_own += bool(finding.absent)

    def __str__(self) -> str:
        """What is less than all, or nothing."""
        counts = (
            ("the decision of {} was not recomputed", self.not_decided),
            ("the certificate of {} was not recomputed", self.not_certified),
            ("own tenants are not in {}", self.without_own),
        )
        parts = [text.format(count) for text, count in counts if count]
        return f"; {'; '.join(parts)}, their lines say why" if parts else ""


def summary(tally: Tally, *, head_ok: bool) -> str:
    """Return the last line."""
    wrong = [number for number, ok in tally.rows if not ok]
    rounds = plural(len(tally.rows), "round")
    if not wrong and head_ok:
        return f"{rounds} verified, nothing is wrong{tally}"
    named = ", ".join(map(str, wrong[:10])) + (" ..." if len(wrong) > 10 else "")
    parts = [f"{len(wrong)} of {rounds} wrong ({named})" if wrong else f"{rounds} verified"]
    return "; ".join([*parts, *([] if head_ok else ["the head is WRONG"])])
