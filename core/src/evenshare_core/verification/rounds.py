"""Verification of one round by a reader of its bundle.

1. The bundle's SHA-256 is the one in the round's record.
2. The record contains the leaf hash of the previous record.
3. The disclosed snapshot, decided again, gives the disclosed decision, byte for byte.
4. It also gives the disclosed certificate.
5. The snapshot follows from the previous round.
6. The decision was applied, or the records show the reason why not.
7. The reader's own rows have the pseudonyms that its key gives.

Source: docs/verify.md.
"""

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
from evenshare_core.verification.verdict import Gap, ProofProblem, ProofVerdict, Unproven, combined

# Packages whose versions may change the result of a policy with a program.
ORTOOLS = "ortools"
SOLVERS = ("highspy", "numpy", ORTOOLS)
# Policies with a program include its solvers in their version: "6 highs 1.15.1 glop 9.15.6755".
_SOLVED_BY, _AND_BY = " highs ", " glop "
NOBODY = OwnNames({}, {})
PLAN_ALONE = "its decision was not recomputed; only its plan was checked"
NO_KEY = "the portal gave no key of yours for its day, so no row was compared with your jobs"


class RoundCheck(StrEnum):
    """The checks of a round. Names are part of the command's JSON."""

    BYTES = "bytes"  # the bundle matches the record's hash
    RECORD = "record"  # the record is of the round, and contains the hash of the previous record
    DAMAGE = "damage"  # the portal does not report damage to the round
    DECISION = "decision"
    PLAN = "plan"  # the plan is valid, if another version made the decision
    CERTIFICATE = "certificate"
    FOLLOWS = "follows"  # the snapshot follows from the previous round
    CARRIED = "carried"  # parts that were not applied have a reason that the records show
    NAMES = "names"  # the reader's rows have its pseudonyms


class OwnClaim(NamedTuple):
    """Figures of one of the reader's tenants in a round, by GPU type; `rho` is before the round.

    `own` and `borrowed` are the decided GPUs; `held` has the GPUs after the decision was applied.
    """

    tenant: str
    gpu_type: str
    rho: float | None
    own: int
    borrowed: int
    held: int


class RoundFigures(NamedTuple):
    """The figures of a recomputed round. Prices are in micro-credits per GPU-hour, by type."""

    claims: tuple[OwnClaim, ...]
    prices: tuple[tuple[str, int], ...]
    grants: int
    renewals: int
    ends: int
    waiting: int
    not_carried_out: int


@dataclass(slots=True)
class RoundFinding:
    """The result of verifying a round: checks made, violations, and gaps.

    `disclosed` is its decoded bundle, with which the next round is compared; None if it cannot be
    read. `absent` has the reader's tenants that the round should contain but does not.
    """

    round: int
    at_us: int
    recomputed: list[RoundCheck] = field(default_factory=list)
    problems: list[ProofProblem] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: RoundFigures | None = None
    disclosed: Disclosed | None = None
    absent: list[str] = field(default_factory=list)

    @property
    def lacks_certificate(self) -> bool:
        """Whether the round could be read, but its certificate was not recomputed."""
        return self.figures is not None and RoundCheck.CERTIFICATE not in self.recomputed

    @property
    def is_decided(self) -> bool:
        """Whether its decision was recomputed, byte for byte."""
        return RoundCheck.DECISION in self.recomputed

    @property
    def ok(self) -> bool:
        """Whether there is no violation; there may be gaps."""
        return not self.problems

    def verdict(self, accepted: Collection[str] = ()) -> ProofVerdict:
        """Return the round's result; `accepted` gaps are ignored."""
        return combined(len(self.recomputed), len(self.problems), self.unproven, accepted)

    def leave(self, gap: Gap, text: str) -> None:
        self.unproven.append(Unproven(gap, text))

    def note(self, check: RoundCheck, broken: Iterator[str] | tuple[str, ...]) -> None:
        """Record a check and its violations; an error that prevents it counts as a violation."""
        self.recomputed.append(check)
        try:
            self.problems += [ProofProblem(check, text) for text in broken]
        except REFUSED as error:
            text = f"cannot be recomputed: {type(error).__name__}: {error}"
            self.problems.append(ProofProblem(check, text))


def verify_record(
    bundle: bytes | None, record: RoundRecord, record_before: RoundRecord | None
) -> RoundFinding:
    """Verify a round's record and its bundle's hash, without deciding again.

    `bundle` has the bundle's bytes. `bundle` and `record_before` are None if they are not
    available.
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
            finding.problems.append(ProofProblem(RoundCheck.BYTES, f"is no bundle: {error}"))
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
    """Verify a round.

    - `bundle`: its bytes; None if they are no longer kept.
    - `record_before`, `before`: the round before; None if not available, or for the first
      round.
    - `own`, `own_before`: the reader's pseudonyms on the days of both rounds.
    - `read_after`: returns the round after; None if it is not available.
    - `newest_certificate`: the newest version among the certificates of earlier rounds.
    - `version_here`: returns the version of an installed package, "" if unknown.
    """
    finding = verify_record(bundle, record, record_before)
    disclosed = finding.disclosed
    if bundle is None and not record.damage:
        finding.leave(
            Gap.BUNDLE, "the portal did not give its bundle; only its record is under the head"
        )
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
        finding.leave(Gap.BEFORE, "not compared with the previous round, which is missing here")
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
    """Check the reader's rows, and record missing ones."""
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
    """Return the figures of a round, with those of the reader's tenants."""
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
    # A generator, so that `note` records an error as a violation.
    yield from breaks(before, disclosed)


def _decide(
    finding: RoundFinding, disclosed: Disclosed, version_here: Callable[[str], str]
) -> dict[str, str]:
    """Decide the round again, and return the versions that differ from those of the portal.

    If versions differ, and the decision too, check only the plan.
    """
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
    """Return the versions that may decide differently: name: "1.15 there, 1.16 here"."""
    snapshot, others = disclosed.snapshot, dict[str, str]()
    # Bundles of an unknown policy were rejected earlier.
    policy = registry.policy(snapshot.policy)
    solve = disclosed.decision.solve
    # A round that OR-Tools did not solve does not depend on its version.
    solvers = SOLVERS if solve is not None and solve.backend == ORTOOLS else SOLVERS[:-1]
    there, solvers_there = _parts(snapshot.policy_version)
    here, solvers_here = _parts(policy.version)
    is_same = here == there or policy.decides_again(snapshot)
    if not is_same:
        others[snapshot.policy] = f"{there} there, {here} here"
    for name in solvers if is_same else ():
        if solvers_here.get(name) != solvers_there.get(name):
            versions = (solvers_there.get(name) or "none", solvers_here.get(name) or "none")
            others[name] = "{} there, {} here".format(*versions)
    if solve is not None:
        for name in solvers:
            there, here = disclosed.versions.get(name, ""), version_here(name)
            if there and there != here:
                others[name] = f"{there} there, {here or 'none'} here"
    return others


def _parts(policy_version: str) -> tuple[str, dict[str, str]]:
    """Return a policy's own version, and the versions of its solvers by package."""
    own, _, solvers = policy_version.partition(_SOLVED_BY)
    highs, _, glop = solvers.partition(",")[0].partition(_AND_BY)  # `gavel` had "5 highs 1.15.1, 2"
    return own, {"highspy": highs, ORTOOLS: glop}


def _versions_text(others: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {versions}" for name, versions in others.items())
