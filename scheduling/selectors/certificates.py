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
    Overclaim,
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
    of: int = 0
    gpu_type: str = ""
    factor: float | None = None
    bound: str = ""


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
class OverclaimView:
    """As `fairness.certificate.Overclaim`; `profile` is the job type's name, or ""."""

    tenant: VisibleTenant
    profile: str
    gpu_type: str
    declared_milli: int
    measured_milli: int
    excess_milli: int
    reports: int


@dataclass(frozen=True, slots=True)
class CertificateView:
    """A certificate; `failure` says why there is none, and is for operators in full.

    `overclaims`: the largest first; those of tenants out of sight and beyond the limit are counted.
    """

    version: int
    findings: tuple[CertificateItemView, ...]
    rows: tuple[JobTypeView, ...]
    rows_hidden: int
    failure: str = ""
    overclaims: tuple[OverclaimView, ...] = ()
    overclaims_hidden: int = 0


def last_overclaimed(pool_id: int, profile_id: int) -> int | None:
    """Return the pool's newest round, if its certificate shows an overclaim of a job type.

    One query. None: it shows none, as where the job type had no jobs, or the policy reads no
    speeds.
    """
    newest = Round.objects.filter(pool_id=pool_id).order_by("-number")
    row = newest.values_list("number", "certificate").first()
    if row is None:
        return None
    number, certificate = row
    overclaims = (certificate or {}).get("overclaims", ())
    return number if any(one["profile"] == profile_id for one in overclaims) else None


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
    names = _job_type_names(certificate, visibility)
    rows = _rows(certificate, names, visibility)
    overclaims = tuple(
        _overclaim(row, seen, names)
        for row in certificate.overclaims
        if (seen := visibility.of(row.tenant))
    )
    all_overclaims = len(certificate.overclaims) + certificate.overclaims_left_out
    return CertificateView(
        version=certificate.version,
        findings=tuple(_finding(row, visibility) for row in certificate.findings),
        rows=rows,
        rows_hidden=len(certificate.rows) + certificate.left_out - len(rows),
        failure=failure,
        overclaims=overclaims,
        overclaims_hidden=all_overclaims - len(overclaims),
    )


def _job_type_names(certificate: Certificate, visibility: Visibility) -> dict[int, str]:
    """The names of job types that the viewer may know, by id."""
    rows: tuple[JobTypeResult | Overclaim, ...] = (*certificate.rows, *certificate.overclaims)
    mine = {row.profile for row in rows if row.profile and visibility.jobs_of(row.tenant)}
    return dict(Profile.objects.filter(id__in=mine).values_list("id", "name")) if mine else {}


def _overclaim(row: Overclaim, seen: VisibleTenant, names: dict[int, str]) -> OverclaimView:
    return OverclaimView(
        tenant=seen,
        profile=names.get(row.profile, ""),
        gpu_type=row.gpu_type,
        declared_milli=row.declared_milli,
        measured_milli=row.measured_milli,
        excess_milli=row.excess_milli,
        reports=row.reports,
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
        of=row.of,
        gpu_type="" if hidden else row.gpu_type,
        factor=None if hidden else row.factor,
        bound=row.bound,
    )


def _rows(
    certificate: Certificate, names: dict[int, str], visibility: Visibility
) -> tuple[JobTypeView, ...]:
    """Rows of the tenants in sight, in their order; their job types by name where they may be."""
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
