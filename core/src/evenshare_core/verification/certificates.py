"""Comparison of a round's certificate with the recomputed one.

Every round is certified when it is decided, so a missing certificate is wrong. A certificate's
version is that of its newest line, so it may differ from round to round. The recomputed certificate
gives the expected version.

A certificate of an older version comes from a portal that did not measure the newer lines yet. But
if an earlier round already has such lines, an older certificate was substituted to avoid the
comparison.
"""

from collections.abc import Iterator, Mapping

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.disclosure.shapes import disclosed_certificate
from evenshare_core.domain.invariants import InvariantViolation
from evenshare_core.fairness.certificate import VERSION, plain
from evenshare_core.policies.base import certify_round
from evenshare_core.verification.differences import differences
from evenshare_core.verification.verdict import Gap, PartFinding, Unproven

# Errors for snapshots that no policy can decide; a snapshot of another version may raise any of
# them.
REFUSED = (
    InvariantViolation, LookupError, ValueError, ArithmeticError, TypeError, AttributeError,
)  # fmt: skip # a table
NONE = "none is in it; every round is certified when it is decided"
NOT_RECOMPUTED = "certificate not recomputed"


def certificate_version(disclosed: Disclosed) -> int:
    """Return the stored version of a round's certificate; 0 if there is none."""
    version = (disclosed.certificate or {}).get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 0


def check_certificate(disclosed: Disclosed, others: Mapping[str, str], newest: int) -> PartFinding:
    """Certify a round again and compare.

    `others` has the packages and policies with another version here, by name. `newest` is the
    newest version among the certificates of earlier rounds; 0 if unknown.
    """
    stored = disclosed.certificate
    if stored is None:
        return PartFinding((NONE,))
    try:
        again = disclosed_certificate(plain(certify_round(disclosed.snapshot, disclosed.decision)))
    except REFUSED as error:
        text = f"it cannot be certified here: {type(error).__name__}: {error}"
        if others:
            return _unproven(Gap.VERSION, text)
        return PartFinding((text,))
    if stored.get("version") != again["version"]:
        return _other_version(disclosed, int(again["version"]), others, newest)
    return _compared(stored, again, others)


def _compared(
    stored: Mapping[str, object], again: Mapping[str, object], others: Mapping[str, str]
) -> PartFinding:
    violated = ", ".join(map(str, _rows(again.get("violated"))))
    remarks = (f"its certificate says violated: {violated}",) if violated else ()
    if again == stored:
        return PartFinding((), remarks)
    if others and _verdicts(again) == _verdicts(stored):
        text = "certificate: the same verdicts, by other numbers, which were not recomputed"
        return PartFinding((), remarks, (Unproven(Gap.VERSION, text),))
    return PartFinding(tuple(_certificate_breaks(stored, again)), remarks)


def _other_version(
    disclosed: Disclosed, due: int, others: Mapping[str, str], newest: int
) -> PartFinding:
    there = certificate_version(disclosed)
    if not there:
        return PartFinding(("its version is no number",))
    versions = f"its version is {there} there, {due} here"
    # Another version of a policy may give other lines, and another solver may fail.
    may_differ = disclosed.snapshot.policy in others or (others and _has_failed(disclosed))
    if there < min(due, newest) and not may_differ:
        text = f"its version is {there}; {due} is due, and a round before it has {newest}"
        return PartFinding((text,))
    if due < there <= VERSION and not others:
        return PartFinding((f"{versions}, by the lines that it has",))
    return _unproven(Gap.CERTIFICATE, versions)


def _unproven(gap: Gap, text: str) -> PartFinding:
    return PartFinding(None, (), (Unproven(gap, f"{NOT_RECOMPUTED}: {text}"),))


def _has_failed(disclosed: Disclosed) -> bool:
    return bool((disclosed.certificate or {}).get("failure"))


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
