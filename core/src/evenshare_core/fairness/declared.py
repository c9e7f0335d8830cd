"""Comparison of declared and measured speeds of job types, from a round's snapshot.

Rounds use the measured speeds, so an overclaim is shown but violates nothing. The rule is
`evenshare_core.domain.measured_speeds.compare`, as on a job type's page.

Source: docs/adr/0183-virtual-truth.md, docs/adr/0200-what-could-have-been-served.md.
"""

from typing import NamedTuple

from evenshare_core.domain.measured_speeds import compare, used_speedups
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import (
    MAX_NAMED,
    Basis,
    CertificateItem,
    Overclaim,
    Property,
    Verdict,
    figure,
)
from evenshare_core.units import ONE_MILLI


class DeclaredCheck(NamedTuple):
    """The comparison of a round's job types.

    `checked` counts job types with comparable speeds; `overclaims` has the largest first. `unused`
    has the tenants of job types for which the round did not use the measured speeds.
    """

    checked: int
    overclaims: tuple[Overclaim, ...]
    unused: tuple[int, ...]

    @property
    def profiles(self) -> int:
        """The number of job types with an overclaim on any GPU type."""
        return len({row.profile for row in self.overclaims})


def check_declared(snapshot: Snapshot) -> DeclaredCheck:
    """Compare declared with measured speeds of the job types of a round's jobs."""
    profiles = {row.id: row for row in snapshot.profiles}
    checked, unused = 0, []
    overclaims: list[Overclaim] = []
    for one in snapshot.measured:
        declared, measured = dict(one.declared), dict(one.measured)
        speeds = compare(declared, measured)
        if not speeds:
            continue
        checked += 1
        profile = profiles[one.id]
        if dict(profile.speedups) != used_speedups(declared, measured):
            unused.append(profile.tenant)
        overclaims += [
            Overclaim(
                profile.tenant, one.id, row.gpu_type, row.declared_milli, row.measured_milli,
                row.excess_milli, row.tolerance_milli, measured[row.gpu_type].reports,
            )
            for row in speeds
            if row.is_overclaim
        ]  # fmt: skip # a table
    overclaims.sort(key=lambda row: (-row.excess_milli, row.profile, row.gpu_type))
    return DeclaredCheck(checked, tuple(overclaims), tuple(unused))


def declared_item(check: DeclaredCheck) -> CertificateItem:
    """Return the certificate's line: noted with the largest overclaim, if there is one.

    The line is violated only if the round did not use the measured speeds, because only then can an
    overclaim gain anything.
    """
    name, basis = Property.MEASURED_SPEEDS, Basis.SPEEDS
    if not check.checked:
        why = "of no job type two GPU types that it runs on were measured"
        return CertificateItem(name, Verdict.NOT_APPLICABLE, basis, why=why)
    if check.unused:
        broken = tuple(sorted(set(check.unused)))[:MAX_NAMED]
        return CertificateItem(
            name, Verdict.VIOLATED, basis, check.checked, len(check.unused), broken
        )
    if not check.overclaims:
        return CertificateItem(name, Verdict.HOLDS, basis, check.checked)
    first = check.overclaims[0]
    return CertificateItem(
        name=name,
        verdict=Verdict.NOTED,
        basis=basis,
        checked=check.checked,
        count=check.profiles,
        broken=tuple(sorted({row.tenant for row in check.overclaims}))[:MAX_NAMED],
        worst=figure(first.excess_milli / ONE_MILLI),
        tenant=first.tenant,
        tolerance=figure(first.tolerance_milli / ONE_MILLI),
    )
