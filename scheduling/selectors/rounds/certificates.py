"""A round's stored certificate, as a viewer may see it.

In a pool that shows tenants only their own rows, the numbers of other tenants are left out, not
only their names. A number such as the value of another tenant's share to the viewer would reveal
that share. Verdicts, counts and totals remain.
"""

from typing import Annotated, Any

import msgspec
from django.utils.translation import gettext as _

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
from scheduling.selectors.speeds.measurements import Speed
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, Hidden, answer_of
from tenants.language import gettext_noop

# The numbers of these properties describe the whole pool, or identify no tenant.
POOLED = frozenset({Property.CAPACITY, Property.GANG, Property.SINGLE_HOLD, Property.PARETO})
# For these properties, even the viewer's own number reveals another tenant's share.
PAIRED = frozenset({Property.ENVY_FREE, Property.EQUAL_THROUGHPUT})
# The value of a job is private to its tenant, whatever the pool's visibility.
PRIVATE = frozenset({Property.INDIVIDUAL_RATIONALITY})
FAILED = gettext_noop("the measurement failed; operators can see the cause")


_AsText = msgspec.Meta(extra_json_schema={"type": "string"})


class CertificateItemView(
    Answer, frozen=True, rename={"name": "property", "in_gpus": "worst_in_gpus"}
):
    """A property of a round: whether it holds, and the numbers that the caller may see.

    For misreports, `checked` of `of` possible reports were tried. The best report multiplies the
    speed on `gpu_type` by `factor`, or on all types but the slowest if `gpu_type` is empty.
    `bound`: the proof that no report gains, if there is one.
    """

    COMPONENT = "CertificateLine"

    name: Annotated[Property, _AsText]
    verdict: Annotated[Verdict, _AsText]
    basis: Annotated[Basis, _AsText]
    checked: int
    count: int
    worst: float | None
    in_gpus: float | None
    total: float | None
    tenant: VisibleTenant | None
    other: VisibleTenant | None
    named: Hidden[tuple[VisibleTenant, ...]]
    hidden: bool
    why: str
    of: int = 0
    gpu_type: str = ""
    factor: float | None = None
    bound: str = ""


class JobTypeView(Answer, frozen=True, rename={"profile": "job_type", "capped": "has_all"}):
    """A tenant's job type, and what each share is worth to it, in GPUs of the slowest type."""

    COMPONENT = "CertificateRow"

    tenant: VisibleTenant
    profile: str
    weight: float
    ideal: float | None
    held: float
    alone: float
    best_other: float | None
    other: VisibleTenant | None
    capped: bool


_NAMES = {"profile": "job_type"} | {
    f"{one}_milli": one for one in ("declared", "measured", "excess")
}


class OverclaimView(Answer, frozen=True, rename=_NAMES):
    """A job type whose declared speed on a GPU type exceeds the measured one times a common factor.

    `excess`: the fraction by which it is above. The spread of the reports cannot explain that much.
    """

    COMPONENT = "CertificateOverclaim"

    tenant: VisibleTenant
    profile: str
    gpu_type: str
    declared_milli: Speed
    measured_milli: Speed
    excess_milli: Speed
    reports: int


class CertificateView(Answer, frozen=True, rename={"findings": "lines"}):
    """A round's certificate; `same_again` is null if the round's bytes are gone."""

    COMPONENT = "CertificateWhole"

    version: int
    failure: str = ""
    same_again: bool | None = None
    findings: tuple[CertificateItemView, ...] = ()
    rows: tuple[JobTypeView, ...] = ()
    rows_hidden: int = 0
    overclaims: tuple[OverclaimView, ...] = ()
    overclaims_hidden: int = 0


def last_overclaimed(pool_id: int, profile_id: int) -> int | None:
    """Return the pool's newest round if its certificate shows an overclaim of a job type, or None.

    Also return None if the job type had no jobs in it, or the policy reads no speeds. A single
    query.
    """
    newest = Round.objects.filter(pool_id=pool_id).order_by("-number")
    row = newest.values_list("number", "certificate").first()
    if row is None:
        return None
    number, certificate = row
    overclaims = (certificate or {}).get("overclaims", ())
    return number if any(one["profile"] == profile_id for one in overclaims) else None


def view_certificate(round_: Round, visibility: Visibility) -> CertificateView | None:
    """Return a round's certificate, or None if the round predates certificates. A single query."""
    if not round_.certificate:
        return None
    try:
        certificate = read(round_.certificate)
    except msgspec.ValidationError:
        version = round_.certificate.get("version", 0)
        text = _("it is of another version, {version}")
        return CertificateView(version, text.format(version=version))
    failure = certificate.failure
    if failure and not visibility.all_jobs:
        failure = _(FAILED)
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
    rows: tuple[JobTypeResult | Overclaim, ...] = (*certificate.rows, *certificate.overclaims)
    mine = {row.profile for row in rows if row.profile and visibility.jobs_of(row.tenant)}
    return dict(Profile.objects.filter(id__in=mine).values_list("id", "name")) if mine else {}


def _overclaim(row: Overclaim, seen: VisibleTenant, names: dict[int, str]) -> OverclaimView:
    return answer_of(OverclaimView, row, tenant=seen, profile=names.get(row.profile, ""))


_LEFT_OUT: dict[str, Any] = {"worst": None, "total": None, "gpu_type": "", "factor": None}


def _finding(row: CertificateItem, visibility: Visibility) -> CertificateItemView:
    seen = visibility.of(row.tenant) if row.tenant is not None else None
    other = visibility.of(row.other) if row.other is not None else None
    hidden = visibility.hides and row.name not in POOLED and (row.name in PAIRED or seen is None)
    if row.name in PRIVATE and row.tenant is not None:
        hidden = hidden or not visibility.jobs_of(row.tenant)
    tenants = row.basis is not Basis.LEASES or row.name not in POOLED
    named = (visibility.of(tenant) for tenant in row.broken) if tenants else ()
    return answer_of(
        CertificateItemView,
        row,
        tenant=None if hidden else seen,
        other=None if hidden else other,
        # The worst value on whole GPUs may belong to another tenant.
        in_gpus=None if visibility.hides else row.in_gpus,
        named=tuple(one for one in named if one is not None),
        hidden=hidden and row.worst is not None,
        **(_LEFT_OUT if hidden else {}),
    )


def _rows(
    certificate: Certificate, names: dict[int, str], visibility: Visibility
) -> tuple[JobTypeView, ...]:
    shown = [
        _row(row, seen, names, visibility)
        for row in certificate.rows
        if (seen := visibility.of(row.tenant))
    ]
    return tuple(sorted(shown, key=lambda row: row.tenant.number))


def _row(
    row: JobTypeResult, seen: VisibleTenant, names: dict[int, str], visibility: Visibility
) -> JobTypeView:
    return answer_of(
        JobTypeView,
        row,
        tenant=seen,
        profile=names.get(row.profile, ""),
        best_other=None if visibility.hides else row.best_other,
        other=None if visibility.hides or row.other is None else visibility.of(row.other),
    )
