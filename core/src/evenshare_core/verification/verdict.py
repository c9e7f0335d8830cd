"""The results of a verification: proven, wrong or not proven. No other module combines them.

Data that was withheld, is unknown here or was not recomputed is not proven. Each such gap has a
name, and a sentence with the next step. A reader may accept gaps by name, which are then ignored.

Source: docs/verify.md, docs/adr/0220-not-proven-is-a-result.md.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class ProofVerdict(StrEnum):
    """The result of a check, of a round or of a whole run. Names are part of the command's JSON."""

    PROVEN = "proven"
    WRONG = "wrong"
    NOT_PROVEN = "not_proven"


class Gap(StrEnum):
    """The reason for a gap. Names are part of the command's JSON and of `--accept`."""

    BUNDLE = "bundle"  # the portal did not send the bundle of a round
    OWN_ROWS = "own-rows"  # the portal sent only own rows instead of the bundle
    NAMES = "names"  # the reader's key or rows are missing
    VERSION = "version"  # the decision is by another version, or by a policy that is not known here
    CERTIFICATE = "certificate"  # the certificate was not recomputed
    BEFORE = "before"  # the previous round is not available
    # a part of a decision was not applied, and the records do not show why
    SUPERSEDED = "superseded"
    HEAD = "head"  # no proof connects the head and the pin
    ROWS = "rows"  # rows of a statement are missing
    LIMIT = "limit"  # a round or statement was not recomputed within the limit of CPU time
    ROUNDS = "rounds"  # rows of a statement were not compared with their rounds


class ProofProblem(NamedTuple):
    """A violation found in a head or a round, and the check that found it."""

    check: StrEnum
    text: str


class Unproven(NamedTuple):
    """A part that was not proven; `text` describes it, without a full stop."""

    gap: Gap
    text: str


class PartFinding(NamedTuple):
    """The result of verifying a part of a round, such as its certificate.

    `broken` has the violations; None if the part was not recomputed or is not there.
    """

    broken: tuple[str, ...] | None
    remarks: tuple[str, ...] = ()
    unproven: tuple[Unproven, ...] = ()


OVER_LIMIT = "its recomputation was stopped at the limit of CPU time"
_INSTALL = "install the portal's version of evenshare-core"
TO_DO: Mapping[Gap, str] = MappingProxyType(
    {
        Gap.BUNDLE: "ask the operator how long bundles are kept, or verify later rounds",
        Gap.OWN_ROWS: "ask the operator whether the pool discloses own rows only",
        Gap.NAMES: "ask the operator why they are missing; another login may have the key",
        Gap.VERSION: _INSTALL,
        Gap.CERTIFICATE: _INSTALL,
        Gap.BEFORE: "begin with an earlier round whose bundle is kept",
        Gap.SUPERSEDED: "ask the operator what became of it; the round's page shows it",
        Gap.HEAD: "verify again from the portal, which has the proof",
        Gap.ROWS: "verify the rounds of this time, which show what the tenant held",
        Gap.LIMIT: "give it more time: --limit SECONDS",
        Gap.ROUNDS: "verify a later time, or check only the arithmetic: --without-rounds",
    }
)
EXIT_CODES: Mapping[ProofVerdict, int] = MappingProxyType(
    {ProofVerdict.PROVEN: 0, ProofVerdict.WRONG: 3, ProofVerdict.NOT_PROVEN: 5}
)


def combined(
    proven: int, wrong: int, unproven: Iterable[Unproven], accepted: Collection[str] = ()
) -> ProofVerdict:
    """Return the result of checks, from the numbers of proofs and violations, and the gaps.

    `accepted` has the names of gaps that the reader ignores. A run without any proof or accepted
    gap is not proven.
    """
    if wrong:
        return ProofVerdict.WRONG
    gaps = list(unproven)
    if open_gaps(gaps, accepted) or not (proven or gaps):
        return ProofVerdict.NOT_PROVEN
    return ProofVerdict.PROVEN


def open_gaps(unproven: Iterable[Unproven], accepted: Collection[str]) -> list[Unproven]:
    """Return the unproven parts without the accepted gaps."""
    return [row for row in unproven if row.gap not in accepted]
