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
    CertificateItem,
    JobTypeResult,
    Property,
    Verdict,
    read,
)
from scheduling.models import Profile, Round
from scheduling.selectors.visibility import Visibility, VisibleTenant

# Numbers of these are of the pool as a whole, or name nobody.
POOLED = frozenset({Property.CAPACITY, Property.GANG, Property.SINGLE_HOLD, Property.PARETO})
# Of these even the own number tells something of another's share.
PAIRED = frozenset({Property.ENVY_FREE, Property.EQUAL_THROUGHPUT})
# What a job is worth is its tenant's own affair, whatever the pool shows of tenants.
PRIVATE = frozenset({Property.INDIVIDUAL_RATIONALITY})
FAILED = "the measurement failed; the operator can read why"


@dataclass(frozen=True, slots=True)
class CertificateItemView:
    """A line as `fairness.certificate.CertificateItem`; `hidden`: not for the viewer."""

    name: Property
    verdict: Verdict
    basis: Basis
    checked: int
    count: int
    worst: float | None
    tenant: VisibleTenant | None
    other: VisibleTenant | None
    in_gpus: float | None
    total: float | None
    named: tuple[VisibleTenant, ...]
    hidden: bool
    why: str


@dataclass(frozen=True, slots=True)
class JobTypeView:
    """As `fairness.certificate.JobTypeResult`; `profile` is the job type's name, or ""."""

    tenant: VisibleTenant
    profile: str
    weight: float
    held: float
    alone: float
    ideal: float | None
    best_other: float | None
    other: VisibleTenant | None
    capped: bool


@dataclass(frozen=True, slots=True)
class CertificateView:
    """A certificate; `failure` says why there is none, and is for operators in full."""

    version: int
    findings: tuple[CertificateItemView, ...]
    rows: tuple[JobTypeView, ...]
    rows_hidden: int
    failure: str = ""


def view_certificate(round_: Round, visibility: Visibility) -> CertificateView | None:
    """Return a round's certificate; None for rounds of before there were any. One query."""
    if not round_.certificate:
        return None
    try:
        certificate = read(round_.certificate)
    except msgspec.ValidationError:
        version = round_.certificate.get("version", 0)
        return CertificateView(version, (), (), 0, f"it is of another version, {version}")
    failure = certificate.failure
    if failure and not visibility.all_jobs:
        failure = FAILED
    rows = _rows(certificate, visibility)
    return CertificateView(
        version=certificate.version,
        findings=tuple(_finding(row, visibility) for row in certificate.findings),
        rows=rows,
        rows_hidden=len(certificate.rows) + certificate.left_out - len(rows),
        failure=failure,
    )


def _finding(row: CertificateItem, visibility: Visibility) -> CertificateItemView:
    seen = visibility.of(row.tenant) if row.tenant is not None else None
    other = visibility.of(row.other) if row.other is not None else None
    hidden = visibility.hides and row.name not in POOLED and (row.name in PAIRED or seen is None)
    if row.name in PRIVATE and row.tenant is not None:
        hidden = hidden or not visibility.jobs_of(row.tenant)
    tenants = row.basis is not Basis.LEASES or row.name not in POOLED
    named = (visibility.of(tenant) for tenant in row.broken) if tenants else ()
    return CertificateItemView(
        name=row.name,
        verdict=row.verdict,
        basis=row.basis,
        checked=row.checked,
        count=row.count,
        worst=None if hidden else row.worst,
        tenant=None if hidden else seen,
        other=None if hidden else other,
        # The worst on whole GPUs may be another tenant's.
        in_gpus=None if visibility.hides else row.in_gpus,
        total=None if hidden else row.total,
        named=tuple(one for one in named if one is not None),
        hidden=hidden and row.worst is not None,
        why=row.why,
    )


def _rows(certificate: Certificate, visibility: Visibility) -> tuple[JobTypeView, ...]:
    """Rows of the tenants in sight, in their order; their job types by name where they may be."""
    mine = [
        row.profile for row in certificate.rows if row.profile and visibility.jobs_of(row.tenant)
    ]
    names = dict(Profile.objects.filter(id__in=mine).values_list("id", "name")) if mine else {}
    shown = [
        _row(row, seen, names, visibility)
        for row in certificate.rows
        if (seen := visibility.of(row.tenant))
    ]
    return tuple(sorted(shown, key=lambda row: row.tenant.number))


def _row(
    row: JobTypeResult, seen: VisibleTenant, names: dict[int, str], visibility: Visibility
) -> JobTypeView:
    return JobTypeView(
        tenant=seen,
        profile=names.get(row.profile, ""),
        weight=row.weight,
        held=row.held,
        alone=row.alone,
        ideal=row.ideal,
        best_other=None if visibility.hides else row.best_other,
        other=None if visibility.hides or row.other is None else visibility.of(row.other),
        capped=row.capped,
    )
