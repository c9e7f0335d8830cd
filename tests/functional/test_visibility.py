"""Test which tenants of a pool are visible, for every visibility and every kind of viewer."""

from __future__ import annotations

from itertools import product

import pytest

from scheduling.models import Pool
from scheduling.selectors.visibility import MARKS, Visibility, VisibleTenant, read_visibility
from tenants.models import Quota, Tenant
from tenants.selectors.access import Access, MembershipFacts
from tests.factories import BEGIN, Cluster, cluster

SETTINGS = ("full", "pseudonyms", "own")
SITE_ROLES = ("", "finance", "auditor", "operator")


@pytest.fixture
def lab(db: None) -> Cluster:  # noqa: ARG001 - the fixture is what is wanted of it
    """Return a pool whose tenants 1 to 3 got quota in the order b, a, c; d has none.

    b and c have the same mark.
    """
    made = cluster({"b": 2, "a": 2, "c": 2, "d": 0})
    Tenant.objects.filter(slug="c").update(initials="B", swatch=MARKS)
    Tenant.objects.filter(slug="b").update(initials="B", swatch=0)
    Tenant.objects.filter(slug="a").update(initials="A", swatch=MARKS + 5)
    # A later quota of the first tenant does not change the order.
    later = BEGIN.replace(year=2031)
    Quota.objects.filter(tenant=made.tenants["b"]).update(valid_until=later)
    Quota.objects.create(
        tenant=made.tenants["b"],
        pool=made.pool,
        gpu_type=made.gpu_type,
        gpus=1,
        valid_from=later,
    )
    return made


def seen(lab: Cluster, setting: str, own: str, site_role: str) -> Visibility:
    Pool.objects.filter(pk=lab.pool.pk).update(visibility=setting)
    places = tuple(MembershipFacts(lab.tenants[slug].pk, slug, slug, "viewer") for slug in own)
    return read_visibility(lab.pool.pk, Access(1, "ada", site_role, places))


def drawn(lab: Cluster, visibility: Visibility) -> list[VisibleTenant]:
    """Return tenants whose id is their number, so that expected rows can be written by hand."""
    order = {lab.tenants[slug].pk: place for place, slug in enumerate("bac", start=1)}
    assert [*visibility.known] == [row.id for row in visibility.known.values()]
    return [
        VisibleTenant(order[row.id], *(getattr(row, name) for name in FIELDS))
        for row in visibility.known.values()
    ]


FIELDS = ("number", "name", "initials", "swatch", "slug", "you")


class TestVisibility:
    @pytest.mark.parametrize(("setting", "site_role"), [*product(SETTINGS, SITE_ROLES)])
    def test_gives_names_pseudonyms_or_own_rows(
        self, lab: Cluster, setting: str, site_role: str
    ) -> None:
        visibility = seen(lab, setting, "a", site_role)
        names = bool(site_role) or setting == "full"
        others = "bc" if site_role == "operator" else ""
        b = VisibleTenant(1, 1, "b", "B", 0, "b" if others else "")
        a = VisibleTenant(2, 2, "a", "A", 5, "a", you=True)
        c = VisibleTenant(3, 3, "c", "03", 0, "c" if others else "")
        if names:
            assert drawn(lab, visibility) == [b, a, c]
        elif setting == "pseudonyms":
            assert drawn(lab, visibility) == [
                VisibleTenant(1, 1, "tenant 1", "01", 0),
                a,
                VisibleTenant(3, 3, "tenant 3", "03", 2),
            ]
        else:
            assert drawn(lab, visibility) == [a]
        assert visibility.hides is (not names and setting == "own")
        assert visibility.disguises is (not names and setting == "pseudonyms")

    @pytest.mark.parametrize("site_role", SITE_ROLES)
    def test_jobs_are_limited_to_own_tenants_except_for_operators(
        self, lab: Cluster, site_role: str
    ) -> None:
        visibility = seen(lab, "full", "ac", site_role)
        known = {slug for slug, tenant in lab.tenants.items() if visibility.jobs_of(tenant.pk)}
        assert known == (set("abcd") if site_role == "operator" else set("ac"))

    def test_single_lookup_matches_lookup_of_all(self, lab: Cluster) -> None:
        visibility = seen(lab, "own", "a", "")
        assert visibility.of(lab.tenants["a"].pk) == visibility.known[lab.tenants["a"].pk]
        assert visibility.of(lab.tenants["b"].pk) is None

    def test_excludes_tenants_of_other_pools(self, lab: Cluster) -> None:
        elsewhere = cluster({"far": 1})
        visibility = seen(elsewhere, "full", "", "operator")
        assert [row.name for row in visibility.known.values()] == ["far"]
        assert "far" not in [row.name for row in seen(lab, "full", "", "operator").known.values()]


def test_default_visibility_shows_nothing() -> None:
    for setting in SETTINGS:
        nobody = Visibility(setting)
        assert (nobody.own, nobody.known, nobody.of(1)) == (frozenset(), {}, None)
        assert nobody.jobs_of(1) is False
        assert (nobody.hides, nobody.disguises) == (setting == "own", setting == "pseudonyms")


@pytest.mark.django_db
def test_pseudonyms_of_large_pool_reuse_marks() -> None:
    lab = cluster({f"t{index:02d}": 1 for index in range(MARKS + 4)})
    Pool.objects.filter(pk=lab.pool.pk).update(visibility="pseudonyms")
    first = lab.tenants["t00"]
    access = Access(1, "ada", "", (MembershipFacts(first.pk, "t00", "t00", "viewer"),))
    rows = [*read_visibility(lab.pool.pk, access).known.values()]
    assert [row.number for row in rows] == list(range(1, MARKS + 5))
    # Number 1 sees itself with mark 0. The others have the other 15 marks, by number.
    assert [row.swatch for row in rows[1:]] == [1 + (n - 1) % 15 for n in range(2, MARKS + 5)]


@pytest.mark.django_db
def test_pseudonyms_share_marks_if_own_tenants_use_all() -> None:
    lab = cluster({f"t{index:02d}": 1 for index in range(MARKS + 2)})
    Pool.objects.filter(pk=lab.pool.pk).update(visibility="pseudonyms")
    own = [tenant for slug, tenant in lab.tenants.items() if slug < f"t{MARKS:02d}"]
    places = tuple(MembershipFacts(row.pk, row.slug, row.name, "viewer") for row in own)
    rows = [*read_visibility(lab.pool.pk, Access(1, "ada", "", places)).known.values()]
    assert [row.swatch for row in rows] == [*range(MARKS), 0, 1]
