"""Findings as lines for people: one line for a round, one for each violation."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.plurals import plural
from evenshare_core.money.fixed_point import to_text
from evenshare_core.verification.heads import HeadFinding
from evenshare_core.verification.rounds import OwnClaim, RoundCheck, RoundFigures, RoundFinding
from evenshare_core.verification.verdict import (
    TO_DO,
    Gap,
    ProofVerdict,
    Unproven,
    combined,
)

# The number of the head in `Tally`, in place of a round's number.
HEAD = -1

_DONE = {
    RoundCheck.BYTES: "hash",
    RoundCheck.RECORD: "chain",
    RoundCheck.DECISION: "decision",
    RoundCheck.PLAN: "plan",
    RoundCheck.CERTIFICATE: "certificate",
    RoundCheck.FOLLOWS: "follows",
    RoundCheck.CARRIED: "carried out",
    RoundCheck.NAMES: "own names",
}


def round_line(finding: RoundFinding) -> str:
    """Return a round as one line: its checks, its figures, and the result."""
    done = ", ".join(text for check, text in _DONE.items() if check in finding.recomputed)
    parts = [done, *(_figure_texts(finding.figures) if finding.figures else ())]
    verdict = _verdict_text(finding)
    remarks = f" ({'; '.join(finding.remarks)})" if finding.remarks else ""
    time = f"{from_us(finding.at_us):%Y-%m-%dT%H:%M:%SZ}"
    return f"round {finding.round}  {time}  {'; '.join(parts)}: {verdict}{remarks}"


def _verdict_text(finding: RoundFinding) -> str:
    if finding.problems:
        return "WRONG: " + "; ".join(_problem_texts(finding))
    if finding.unproven:
        return "NOT PROVEN: " + "; ".join(row.text for row in finding.unproven)
    return "ok"


def _problem_texts(finding: RoundFinding) -> Iterator[str]:
    for problem in finding.problems:
        yield f"{problem.check.value}: {problem.text}"


def _figure_texts(figures: RoundFigures) -> Iterator[str]:
    yield (
        f"{figures.grants} grants, {figures.renewals} renewals decided,"
        f" {figures.not_carried_out} not carried out, {figures.waiting} jobs wait"
    )
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
    decided = f"{claim.own} own + {claim.borrowed} borrowed"
    return f"{claim.gpu_type} rho {rho} {decided} decided, {claim.held} held"


def head_lines(finding: HeadFinding) -> Iterator[str]:
    """Yield the head, then its violations and remarks."""
    if finding.root:
        yield f"head of {finding.log}: {finding.size} rounds, root {finding.root.hex()}"
    for problem in finding.problems:
        yield f"WRONG: {problem.check.value}: {problem.text}"
    yield from finding.remarks


@dataclass(slots=True)
class Tally:
    """The results of all rounds, for the last lines of the output; `rows` has (round, verdict).

    `accepted` has the gaps that the reader accepts. `gaps` has the unproven texts by gap and round;
    round -1 is the head. `not_decided` and `not_certified` count rounds whose decision or
    certificate was not recomputed. `without_own` counts rounds in which a tenant of the reader is
    missing.
    """

    accepted: Collection[str] = ()
    rows: list[tuple[int, ProofVerdict]] = field(default_factory=list)
    gaps: dict[Gap, dict[int, str]] = field(default_factory=dict)
    not_decided: int = 0
    not_certified: int = 0
    without_own: int = 0
    wrong_heads: int = 0

    def add(self, finding: RoundFinding) -> None:
        self.rows.append((finding.round, finding.verdict(self.accepted)))
        self._leave(finding.round, finding.unproven)
        self.not_decided += not finding.is_decided
        self.not_certified += finding.lacks_certificate
        self.without_own += bool(finding.absent)

    def add_head(self, head: HeadFinding) -> None:
        self.wrong_heads += bool(head.problems)
        self._leave(HEAD, head.unproven)

    @property
    def verdict(self) -> ProofVerdict:
        wrong = self.wrong_heads + len(self.numbers(ProofVerdict.WRONG))
        unproven = [Unproven(gap, "") for gap in self.gaps]
        return combined(len(self.numbers(ProofVerdict.PROVEN)), wrong, unproven, self.accepted)

    def numbers(self, verdict: ProofVerdict) -> list[int]:
        return [number for number, came_out in self.rows if came_out is verdict]

    def _leave(self, number: int, unproven: Iterable[Unproven]) -> None:
        for row in unproven:
            self.gaps.setdefault(row.gap, {})[number] = row.text


def gap_lines(tally: Tally) -> Iterator[str]:
    """Yield a sentence for each gap: its rounds, the unproven part, and the next step."""
    for gap, texts in tally.gaps.items():
        where = "the head" if set(texts) == {HEAD} else f"{plural(len(texts), 'round')}"
        numbers = [number for number in texts if number != HEAD]
        named = f" ({_some(numbers)})" if numbers else ""
        first = next(iter(texts.values()))
        yield gap_line(gap, f"{where}{named}: {first}", tally.accepted)


def gap_line(gap: Gap, text: str, accepted: Collection[str]) -> str:
    """Return the sentence of a gap: the unproven part and the next step."""
    if gap in accepted:
        return f"accepted, not proven: {gap.value}: {text}"
    return f"NOT PROVEN: {gap.value}: {text}. To do: {TO_DO[gap]}"


def summary(tally: Tally) -> str:
    """Return the last line, with the number of proven rounds and the total."""
    total = plural(len(tally.rows), "round")
    proven = len(tally.numbers(ProofVerdict.PROVEN))
    wrong, left = tally.numbers(ProofVerdict.WRONG), tally.numbers(ProofVerdict.NOT_PROVEN)
    if tally.verdict is ProofVerdict.PROVEN:
        return f"{total} proven"
    parts = [f"{proven} of {total} proven"]
    parts += [f"{len(wrong)} wrong ({_some(wrong)})"] if wrong else []
    parts += [f"{len(left)} not proven ({_some(left)})"] if left else []
    parts += ["the head is WRONG"] if tally.wrong_heads else []
    parts += ["the head is not proven"] if Gap.HEAD in set(tally.gaps) - set(tally.accepted) else []
    return "; ".join(parts)


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
