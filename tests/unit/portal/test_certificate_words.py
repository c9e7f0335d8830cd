"""A certificate's lines in words."""

from __future__ import annotations

from evenshare_core.fairness.certificate import Basis, Property, Verdict
from portal.rounds.text.certificate import _envy
from scheduling.selectors.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def seen(name: str) -> VisibleTenant:
    return VisibleTenant(id=1, number=1, name=name, initials=name[:2], swatch=0)


def closest(tenant: str, other: str) -> str:
    return _envy(
        CertificateItemView(
            name=Property.ENVY_FREE, verdict=Verdict.HOLDS, basis=Basis.IDEALS, checked=6, count=0,
            worst=0.0, tenant=seen(tenant), other=seen(other), in_gpus=None, total=None, named=(),
            hidden=False, why="",
        )
    )  # fmt: skip


class TestTheClosestPair:
    def test_of_two_tenants(self) -> None:
        assert closest("red", "blue") == "Closest of 6 pairs: red would do the same with blue's."

    def test_of_one_tenants_job_types_is_told_as_such(self) -> None:
        told = "Closest of 6 pairs: red would do the same with that of another of its job types."
        assert closest("red", "red") == told
