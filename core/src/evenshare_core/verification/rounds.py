"""One round recomputed by whoever may read its bundle.

1. the bundle's SHA-256 is the one in the round's record;
2. the record names the leaf hash of the record before;
3. the disclosed snapshot, decided again, gives the disclosed decision, byte for byte;
4. and its certificate;
5. the snapshot follows from the round before;
6. what was decided was carried out, or for a reason that the records show;
7. the reader's own rows stand under the pseudonyms that its key gives.

Source: docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from evenshare_core.chain.records import RoundRecord, record_bytes, record_hash
from evenshare_core.disclosure.bundle import BundleError, Disclosed, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.verification.carried_out import (
    held_gpus,
    superseded_breaks,
    superseded_gaps,
)
from evenshare_core.verification.certificates import REFUSED, check_certificate
from evenshare_core.verification.differences import differences
from evenshare_core.verification.following import breaks
from evenshare_core.verification.names import (
    OwnNames,
    absent_jobs,
    absent_tenants,
    name_breaks,
    own_numbers,
)
from evenshare_core.verification.plans import plan_breaks, plan_remarks
from evenshare_core.verification.verdict import Gap, Problem, ProofVerdict, Unproven, combined

# Whose versions may change what a policy with a program answers.
ORTOOLS = "ortools"
SOLVERS = ("highspy", "numpy", ORTOOLS)
# Policies with a program have its solver in their version: "4 highs 1.15.1".
_SOLVED_BY = " highs "
NOBODY = OwnNames({}, {})
PLAN_ALONE = "its decision was not recomputed, only its plan checked"
NO_KEY = "no key of the reader's was answered for its day, so no row was compared with own jobs"


class RoundCheck(StrEnum):
    """What is looked at in a round. Names are part of the command's JSON."""

    BYTES = "bytes"  # the bundle is what the record commits to
    RECORD = "record"  # the record is of the round, and names the record before
    DAMAGE = "damage"  # the portal itself says that its bytes are damaged
    DECISION = "decision"
    PLAN = "plan"  # where another version decided: the plan is one
    CERTIFICATE = "certificate"
    FOLLOWS = "follows"  # the snapshot follows from the round before
    CARRIED = "carried"  # what was not carried out has a reason that the records show
    NAMES = "names"  # the reader's rows stand under its pseudonyms


class OwnClaim(NamedTuple):
    """A tenant of the reader's in a round, by GPU type; GPUs after it, rho before it.

    `own` and `borrowed` were decided; `held` of them were carried out.
    """

    tenant: str
    gpu_type: str
    rho: float | None
    own: int
    borrowed: int
    held: int


class RoundFigures(NamedTuple):
    """What was recomputed of a round, in numbers. Prices: micro-credits per GPU-hour, by type."""

    claims: tuple[OwnClaim, ...]
    prices: tuple[tuple[str, int], ...]
    grants: int
    renewals: int
    ends: int
    waiting: int
    not_carried_out: int


@dataclass(slots=True)
class RoundFinding:
    """What came of a round: what was recomputed, what is wrong, what was not proven.

    `disclosed`: what its bundle says, to follow the next round from; None where it is not readable.
    `absent`: tenants of the reader's that should be in it and are not.
    """

    round: int
    at_us: int
    recomputed: list[RoundCheck] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: RoundFigures | None = None
    disclosed: Disclosed | None = None
    absent: list[str] = field(default_factory=list)

    @property
    def lacks_certificate(self) -> bool:
        """Whether it could be read, and its certificate was not recomputed."""
        return self.figures is not None and RoundCheck.CERTIFICATE not in self.recomputed

    @property
    def is_decided(self) -> bool:
        """Whether its decision was recomputed, byte for byte."""
        return RoundCheck.DECISION in self.recomputed

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; something may be not proven."""
        return not self.problems

    def verdict(self, accepted: Collection[str] = ()) -> ProofVerdict:
        """Return the round's result; `accepted`: gaps that count for nothing."""
        return combined(len(self.recomputed), len(self.problems), self.unproven, accepted)

    def leave(self, gap: Gap, text: str) -> None:
        """Record that something was not proven."""
        self.unproven.append(Unproven(gap, text))

    def note(self, check: RoundCheck, broken: Iterator[str] | tuple[str, ...]) -> None:
        """Record that a check was made, with what is wrong by it; or that it cannot be made."""
        self.recomputed.append(check)
        try:
            self.problems += [Problem(check, text) for text in broken]
        except REFUSED as error:
            text = f"cannot be recomputed: {type(error).__name__}: {error}"
            self.problems.append(Problem(check, text))


def verify_record(
    bundle: bytes | None, record: RoundRecord, record_before: RoundRecord | None
) -> RoundFinding:
    """Return what came of a round's record and of its bundle's hash; nothing is decided again.

    `bundle`: its bytes, None where they are not at hand; `record_before`: None where that is not.
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
        return finding
    here = sha256_hex(bundle)
    differs = () if here == record.bundle else (_other_bytes(record.bundle, here),)
    finding.note(RoundCheck.BYTES, differs)
    try:
        finding.disclosed = read_bundle(bundle)
    except BundleError as error:
        if error.is_unknown:
            finding.leave(Gap.VERSION, f"its bundle cannot be read here: {error}")
        else:
            finding.problems.append(Problem(RoundCheck.BYTES, f"is no bundle: {error}"))
    else:
        finding.note(RoundCheck.RECORD, _described(record, finding.disclosed))
    return finding


def verify_round(
    bundle: bytes | None,
    record: RoundRecord,
    record_before: RoundRecord | None,
    before: Disclosed | None,
    own: OwnNames = NOBODY,
    *,
    own_before: OwnNames = NOBODY,
    read_after: Callable[[], Disclosed | None] = lambda: None,
    newest_certificate: int = 0,
    version_here: Callable[[str], str] = lambda _: "",
) -> RoundFinding:
    """Return what came of a round.

    `bundle`: its bytes, None where they are no longer kept; `record_before` and `before` of the
    round before, None where they are not at hand (of the first round: there is none); `own_before`:
    the reader's pseudonyms of its day; `read_after`: reads the round after, None if it is not at
    hand. `newest_certificate`: the newest version among certificates of rounds before.
    `version_here`: of an installed package, "" where it is not known.
    """
    finding = verify_record(bundle, record, record_before)
    disclosed = finding.disclosed
    if bundle is None and not record.damage:
        finding.leave(Gap.BUNDLE, "its bundle was not answered, its record alone is under the head")
    if disclosed is None:
        return finding
    others = _decide(finding, disclosed, version_here)
    certified = check_certificate(disclosed, others, newest_certificate)
    if certified.broken is not None:
        finding.note(RoundCheck.CERTIFICATE, certified.broken)
    finding.remarks += certified.remarks
    finding.unproven += certified.unproven
    if before is not None:
        finding.note(RoundCheck.FOLLOWS, _following(before, disclosed))
    elif record.previous:
        finding.leave(Gap.BEFORE, "not compared with the round before, which is not at hand")
    if disclosed.superseded:
        finding.note(RoundCheck.CARRIED, superseded_breaks(disclosed))
        for text in superseded_gaps(disclosed, read_after()):
            finding.leave(Gap.SUPERSEDED, text)
    if own.tenants:
        _own(finding, disclosed, before, own, own_before)
    else:
        finding.leave(Gap.NAMES, NO_KEY)
    finding.figures = figures(disclosed, own)
    return finding


def _own(
    finding: RoundFinding,
    disclosed: Disclosed,
    before: Disclosed | None,
    own: OwnNames,
    own_before: OwnNames,
) -> None:
    """Look for the reader's rows, and say which are not there."""
    finding.note(RoundCheck.NAMES, name_breaks(disclosed, own))
    finding.absent = absent_tenants(disclosed, own, before, own_before)
    if finding.absent:
        absent_text = ", ".join(finding.absent)
        finding.leave(
            Gap.NAMES, f"own tenants are not in it, but have jobs or had quota: {absent_text}"
        )
    absent = absent_jobs(disclosed, own, before.at_us) if before is not None else []
    if absent:
        finding.remarks.append(f"own jobs that are not in it: {', '.join(absent[:10])}")


def figures(disclosed: Disclosed, own: OwnNames) -> RoundFigures:
    """Return a round in numbers, as far as it is the reader's."""
    numbers, decision = own_numbers(disclosed, own), disclosed.decision
    less = held_gpus(disclosed)
    return RoundFigures(
        claims=tuple(
            OwnClaim(
                numbers[row.tenant],
                row.gpu_type,
                row.rho_before,
                row.own,
                row.borrowed,
                row.own + row.borrowed + less.get((row.tenant, row.gpu_type), 0),
            )
            for row in decision.shares
            if row.tenant in numbers
        ),
        prices=tuple((row.gpu_type, row.price_micro) for row in decision.prices),
        grants=len(decision.grants),
        renewals=len(decision.renewals),
        ends=len(decision.ends),
        waiting=sum(len(row.jobs) for row in decision.skips),
        not_carried_out=len(disclosed.superseded),
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
) -> dict[str, str]:
    """Decide again; by another version, look at the plan. Return what has another version."""
    snapshot, stored = disclosed.snapshot, disclosed.decision
    others = _other_versions(disclosed, version_here)
    again: Decision | None = None
    try:
        again = decide_round(snapshot)
    except REFUSED as error:
        if not others:
            text = f"the snapshot cannot be decided: {type(error).__name__}: {error}"
            finding.note(RoundCheck.DECISION, (text,))
            return others
    if again is not None and canonical_bytes(again) == canonical_bytes(stored):
        finding.note(RoundCheck.DECISION, ())
    elif again is not None and not others:
        finding.note(RoundCheck.DECISION, differences(stored, again))
    else:
        same_policy = snapshot.policy not in others
        ours = again if same_policy else None
        finding.note(RoundCheck.PLAN, plan_breaks(snapshot, stored, ours))
        texts = [f"{PLAN_ALONE}: {_versions_text(others)}", *plan_remarks(stored, ours)]
        finding.leave(Gap.VERSION, "; ".join(texts))
    return others


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
