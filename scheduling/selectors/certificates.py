"""A round's stored certificate as one viewer may see it.

Where a pool shows tenants only their own rows, numbers of others are not there, not even without
a name: what would another's share do for me tells of that share. Verdicts and counts remain, as
totals do.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from evenshare_core.fairness.certificate import (
    Basis,
    Certificate,
    Finding,
    Property,
    Row,
    Verdict,
    read,
)
from scheduling.models import Profile, Round
from scheduling.selectors.visibility import Seen, Sight

# Numbers of these are of the pool as a whole, or name nobody.
POOLED = frozenset({Property.CAPACITY, Property.GANG, Property.SINGLE_HOLD, Property.PARETO})
# Of these even the own number tells something of another's share.
PAIRED = frozenset({Property.ENVY_FREE, Property.EQUAL_THROUGHPUT})
FAILED = "the measurement failed; the operator can read why"


@dataclass(frozen=True, slots=True)
class FindingSeen:
    """A line as `fairness.certificate.Finding`; `hidden`: its numbers are not for the viewer."""

    name: Property
    verdict: Verdict
    basis: Basis
    checked: int
    count: int
    worst: float | None
    seen: Seen | None
    other: Seen | None
    in_gpus: float | None
    total: float | None
    named: tuple[Seen, ...]
    hidden: bool
    why: str


@dataclass(frozen=True, slots=True)
class RowSeen:
    """One job type of a tenant, as `fairness.certificate.Row`; `profile` is its name, or ""."""

    seen: Seen
    profile: str
    weight: float
    held: float
    alone: float
    ideal: float | None
    best_other: float | None
    other: Seen | None
    capped: bool


@dataclass(frozen=True, slots=True)
class CertificateSeen:
    """A certificate; `failure` says why there is none, and is for operators in full."""

    version: int
    findings: tuple[FindingSeen, ...]
    rows: tuple[RowSeen, ...]
    rows_hidden: int
    failure: str = ""


def certificate_seen(round_: Round, sight: Sight) -> CertificateSeen | None:
    """Return a round's certificate; None for rounds of before there were any. One query."""
    if not round_.certificate:
        return None
    try:
        found = read(round_.certificate)
    except msgspec.ValidationError:
        version = round_.certificate.get("version", 0)
        return CertificateSeen(version, (), (), 0, f"it is of another version, {version}")
    failure = found.failure
    if failure and not sight.all_jobs:
        failure = FAILED
    rows = _rows(found, sight)
    return CertificateSeen(
        version=found.version,
        findings=tuple(_finding(row, sight) for row in found.findings),
        rows=rows,
        rows_hidden=len(found.rows) + found.left_out - len(rows),
        failure=failure,
    )


def _finding(row: Finding, sight: Sight) -> FindingSeen:
    seen = sight.of(row.tenant) if row.tenant is not None else None
    other = sight.of(row.other) if row.other is not None else None
    hidden = sight.hides and row.name not in POOLED and (row.name in PAIRED or seen is None)
    tenants = row.basis is not Basis.LEASES or row.name not in POOLED
    named = (sight.of(tenant) for tenant in row.broken) if tenants else ()
    return FindingSeen(
        name=row.name,
        verdict=row.verdict,
        basis=row.basis,
        checked=row.checked,
        count=row.count,
        worst=None if hidden else row.worst,
        seen=None if hidden else seen,
        other=None if hidden else other,
        # The worst on whole GPUs may be another tenant's.
        in_gpus=None if sight.hides else row.in_gpus,
        total=None if hidden else row.total,
        named=tuple(one for one in named if one is not None),
        hidden=hidden and row.worst is not None,
        why=row.why,
    )


def _rows(found: Certificate, sight: Sight) -> tuple[RowSeen, ...]:
    """Rows of the tenants in sight, in their order; their job types by name where they may be."""
    mine = [row.profile for row in found.rows if row.profile and sight.jobs_of(row.tenant)]
    names = dict(Profile.objects.filter(id__in=mine).values_list("id", "name")) if mine else {}
    shown = [_row(row, seen, names, sight) for row in found.rows if (seen := sight.of(row.tenant))]
    return tuple(sorted(shown, key=lambda row: row.seen.number))


def _row(row: Row, seen: Seen, names: dict[int, str], sight: Sight) -> RowSeen:
    return RowSeen(
        seen=seen,
        profile=names.get(row.profile, ""),
        weight=row.weight,
        held=row.held,
        alone=row.alone,
        ideal=row.ideal,
        best_other=None if sight.hides else row.best_other,
        other=None if sight.hides or row.other is None else sight.of(row.other),
        capped=row.capped,
    )
