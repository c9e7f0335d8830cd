"""One round recomputed by whoever may read its bundle.

1. the bundle's SHA-256 is the one in the round's record;
2. the record names the leaf hash of the record before;
3. the disclosed snapshot, decided again, gives the disclosed decision, byte for byte;
4. and its certificate;
5. the snapshot follows from the round before;
6. the reader's own rows stand under the pseudonyms that its key gives.

Source: docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from evenshare_core.chain.records import RoundRecord, record_bytes, record_hash
from evenshare_core.disclosure.bundle import BundleError, Disclosed, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.disclosure.shapes import disclosed_certificate
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.fairness.certificate import plain
from evenshare_core.policies import registry
from evenshare_core.policies.base import InvariantViolation, certify_round, decide_round
from evenshare_core.verification.differences import differences
from evenshare_core.verification.following import breaks
from evenshare_core.verification.names import OwnNames, absent_jobs, name_breaks, own_numbers
from evenshare_core.verification.plans import plan_breaks, plan_remarks

# Whose versions may change what a policy with a program answers.
ORTOOLS = "ortools"
SOLVERS = ("highspy", "numpy", ORTOOLS)
# Policies with a program have its solver in their version: "4 highs 1.15.1".
_SOLVED_BY = " highs "
# What a snapshot gives that no policy answers; of another version it may be anything of these.
_REFUSED = (
    InvariantViolation, LookupError, ValueError, ArithmeticError, TypeError, AttributeError,
)  # fmt: skip
NOBODY = OwnNames({}, {})


class RoundCheck(StrEnum):
    """What is looked at in a round. Names are part of the command's JSON."""

    BYTES = "bytes"  # the bundle is what the record commits to
    RECORD = "record"  # the record is of the round, and names the record before
    DAMAGE = "damage"  # the portal itself says that its bytes are damaged
    DECISION = "decision"
    PLAN = "plan"  # where another version decided: the plan is one
    CERTIFICATE = "certificate"
    FOLLOWS = "follows"  # the snapshot follows from the round before
    NAMES = "names"  # the reader's rows stand under its pseudonyms


class RoundProblem(NamedTuple):
    """What is wrong with a round."""

    check: RoundCheck
    text: str


class OwnClaim(NamedTuple):
    """A tenant of the reader's in a round, by GPU type; GPUs after it, rho before it."""

    tenant: str
    gpu_type: str
    rho: float | None
    own: int
    borrowed: int


class RoundFigures(NamedTuple):
    """What was recomputed of a round, in numbers. Prices: micro-credits per GPU-hour, by type."""

    claims: tuple[OwnClaim, ...]
    prices: tuple[tuple[str, int], ...]
    grants: int
    renewals: int
    ends: int
    waiting: int


@dataclass(slots=True)
class RoundFinding:
    """What came of a round: what was recomputed, what is wrong, what could not be said.

    `disclosed`: what its bundle says, to follow the next round from; None where it is not readable.
    """

    round: int
    at_us: int
    recomputed: list[RoundCheck] = field(default_factory=list)
    problems: list[RoundProblem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: RoundFigures | None = None
    disclosed: Disclosed | None = None

    @property
    def is_decided(self) -> bool:
        """Whether its decision was recomputed, byte for byte."""
        return RoundCheck.DECISION in self.recomputed

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; there may be remarks."""
        return not self.problems

    def note(self, check: RoundCheck, broken: Iterator[str] | tuple[str, ...]) -> None:
        """Record that a check was made, with what is wrong by it; or that it cannot be made."""
        self.recomputed.append(check)
        try:
            self.problems += [RoundProblem(check, text) for text in broken]
        except _REFUSED as error:
            text = f"cannot be recomputed: {type(error).__name__}: {error}"
            self.problems.append(RoundProblem(check, text))


def verify_round(
    bundle: bytes | None,
    record: RoundRecord,
    record_before: RoundRecord | None,
    before: Disclosed | None,
    own: OwnNames = NOBODY,
    *,
    version_here: Callable[[str], str] = lambda _: "",
) -> RoundFinding:
    """Return what came of a round.

    `bundle`: its bytes, None where they are no longer kept; `record_before` and `before` of the
    round before, None where they are not at hand (of the first round: there is none).
    `version_here`: of an installed package, "" where it is not known.
    """
    finding = RoundFinding(record.round, record.at_us)
    finding.note(RoundCheck.RECORD, _record_breaks(record, record_before))
    if record.damage:
        finding.note(RoundCheck.DAMAGE, (f"the portal says: {record.damage}",))
    if record.breaks:
        finding.note(
            RoundCheck.FOLLOWS, tuple(f"the portal says: {text}" for text in record.breaks)
        )
    if bundle is None:
        if not record.damage:
            finding.remarks.append("its bytes are no longer kept, its record is under the head")
        return finding
    here = sha256_hex(bundle)
    differs = () if here == record.bundle else (_other_bytes(record.bundle, here),)
    finding.note(RoundCheck.BYTES, differs)
    try:
        disclosed = read_bundle(bundle)
    except BundleError as error:
        finding.problems.append(RoundProblem(RoundCheck.BYTES, f"is no bundle: {error}"))
        return finding
    finding.disclosed = disclosed
    finding.note(RoundCheck.RECORD, _described(record, disclosed))
    _decide(finding, disclosed, version_here)
    if before is not None:
        finding.note(RoundCheck.FOLLOWS, _following(before, disclosed))
    elif record.previous:
        finding.remarks.append("not compared with the round before, which is not at hand")
    if own.tenants:
        finding.note(RoundCheck.NAMES, name_breaks(disclosed, own))
        absent = absent_jobs(disclosed, own, before.at_us) if before is not None else []
        if absent:
            finding.remarks.append(f"own jobs that are not in it: {', '.join(absent[:10])}")
    finding.figures = figures(disclosed, own)
    return finding


def figures(disclosed: Disclosed, own: OwnNames) -> RoundFigures:
    """Return a round in numbers, as far as it is the reader's."""
    numbers, decision = own_numbers(disclosed, own), disclosed.decision
    return RoundFigures(
        claims=tuple(
            OwnClaim(numbers[row.tenant], row.gpu_type, row.rho_before, row.own, row.borrowed)
            for row in decision.shares
            if row.tenant in numbers
        ),
        prices=tuple((row.gpu_type, row.price_micro) for row in decision.prices),
        grants=len(decision.grants),
        renewals=len(decision.renewals),
        ends=len(decision.ends),
        waiting=sum(len(row.jobs) for row in decision.skips),
    )


def _other_bytes(committed: str, here: str) -> str:
    if not committed:
        return f"the record commits to no bundle; the bundle's SHA-256 is {here}"
    return f"the record commits to the SHA-256 {committed}, the bundle's is {here}"


def _record_breaks(record: RoundRecord, before: RoundRecord | None) -> Iterator[str]:
    if before is None:
        return
    if record.log != before.log:
        yield f"its record is of the log {record.log}, the one before of {before.log}"
    if record.round != before.round + 1:
        yield f"the round before it in the log is {before.round}"
    if record.at_us < before.at_us:
        yield f"it is at {record.at_us} us, before the round before it"
    leaf = record_hash(record_bytes(before))
    if record.previous != leaf:
        yield f"its record names {record.previous or 'nothing'} before it; that record is {leaf}"


def _described(record: RoundRecord, disclosed: Disclosed) -> Iterator[str]:
    """Whether record and bundle are of one round."""
    pairs = (
        ("round", record.round, disclosed.round),
        ("at_us", record.at_us, disclosed.at_us),
        ("pool", record.log.rpartition("/")[2], disclosed.pool),
        ("day", day_of(disclosed.at_us), disclosed.day),
        ("snapshot.number", disclosed.round, disclosed.snapshot.number),
        ("snapshot.at_us", disclosed.at_us, disclosed.snapshot.at_us),
    )
    for name, there, here in pairs:
        if there != here:
            yield f"{name} is {here} in the bundle, {there} is due"


def _following(before: Disclosed, disclosed: Disclosed) -> Iterator[str]:
    # Computed where what it refuses is a finding.
    yield from breaks(before, disclosed)


def _decide(
    finding: RoundFinding, disclosed: Disclosed, version_here: Callable[[str], str]
) -> None:
    """Decide and certify again; by another version, look at the plan."""
    snapshot, stored = disclosed.snapshot, disclosed.decision
    others = _other_versions(disclosed, version_here)
    again: Decision | None = None
    try:
        again = decide_round(snapshot)
    except _REFUSED as error:
        if not others:
            text = f"the snapshot cannot be decided: {type(error).__name__}: {error}"
            finding.note(RoundCheck.DECISION, (text,))
            return
    if again is not None and canonical_bytes(again) == canonical_bytes(stored):
        finding.note(RoundCheck.DECISION, ())
    elif again is not None and not others:
        finding.note(RoundCheck.DECISION, differences(stored, again))
    else:
        same_policy = snapshot.policy not in others
        ours = again if same_policy else None
        finding.note(RoundCheck.PLAN, plan_breaks(snapshot, stored, ours))
        finding.remarks.append(f"plan checked, {_versions_text(others)}")
        finding.remarks += plan_remarks(stored, ours)
    _certify(finding, disclosed, others)


def _certify(finding: RoundFinding, disclosed: Disclosed, others: Mapping[str, str]) -> None:
    stored = disclosed.certificate
    if stored is None:
        finding.remarks.append("no certificate was stored with it")
        return
    try:
        certificate = certify_round(disclosed.snapshot, disclosed.decision)
        again = disclosed_certificate(plain(certificate))
    except _REFUSED as error:
        finding.remarks.append(f"it cannot be certified here: {type(error).__name__}: {error}")
        return
    if stored.get("version") != again["version"]:
        versions = f"{stored.get('version')} there, {again['version']} here"
        finding.remarks.append(f"certificate not compared: its version is {versions}")
        return
    if again == stored:
        finding.note(RoundCheck.CERTIFICATE, ())
    elif others and _verdicts(again) == _verdicts(stored):
        finding.note(RoundCheck.CERTIFICATE, ())
        finding.remarks.append("certificate: the same verdicts, by other numbers")
    else:
        finding.note(RoundCheck.CERTIFICATE, tuple(_certificate_breaks(stored, again)))
    if again.get("violated"):
        names = ", ".join(map(str, _rows(again.get("violated"))))
        finding.remarks.append(f"its certificate says violated: {names}")


def _certificate_breaks(stored: Mapping[str, object], again: Mapping[str, object]) -> Iterator[str]:
    before, after = _verdicts(stored), _verdicts(again)
    other = [
        name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)
    ]
    for name in other:
        yield f"{name}: {before.get(name, 'no line')} there, {after.get(name, 'no line')} here"
    if not other:
        yield from differences(dict(stored), dict(again))


def _verdicts(certificate: Mapping[str, object]) -> dict[str, str]:
    lines = [row for row in _rows(certificate.get("findings")) if isinstance(row, dict)]
    return {str(row.get("name")): str(row.get("verdict")) for row in lines}


def _rows(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _other_versions(disclosed: Disclosed, version_here: Callable[[str], str]) -> dict[str, str]:
    """What may decide otherwise here than there: name -> "1.15 there, 1.16 here"."""
    snapshot, others = disclosed.snapshot, dict[str, str]()
    # A bundle of a policy that is not known here is refused before.
    there, _, solver_there = snapshot.policy_version.partition(_SOLVED_BY)
    here, _, solver_here = registry.policy(snapshot.policy).version.partition(_SOLVED_BY)
    if here != there:
        others[snapshot.policy] = f"{there} there, {here} here"
    elif solver_here != solver_there:
        others["highspy"] = f"{solver_there} there, {solver_here} here"
    solve = disclosed.decision.solve
    if solve is not None:
        # OR-Tools checks programs; it decides where it is the backend that was chosen.
        for name in SOLVERS if solve.backend == ORTOOLS else SOLVERS[:-1]:
            there, here = disclosed.versions.get(name, ""), version_here(name)
            if there and there != here:
                others[name] = f"{there} there, {here or 'none'} here"
    return others


def _versions_text(others: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {versions}" for name, versions in others.items())
