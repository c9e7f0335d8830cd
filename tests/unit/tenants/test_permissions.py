"""Test permissions against a second table: every role and action, in own and other tenants."""

from __future__ import annotations

import pytest

from tenants.models import Membership, User
from tenants.permissions import Action, may_in_pool, may_in_tenant, may_on_site
from tenants.selectors.access import Access, MembershipFacts

HERE, THERE, NOWHERE = 1, 2, 3
# For each role in a tenant, the actions allowed there, and in pools in which that tenant has quota.
IN_TENANT = {
    "viewer": "see_tenant see_money see_pool",
    "member": "see_tenant see_money see_pool submit cancel",
    "manager": "see_tenant see_money see_pool submit cancel share ask_transfer ask_quota"
    " manage_members",
    "retired": "",
}
# For each site role, the actions allowed everywhere.
ON_SITE = {
    "": "",
    "operator": "see_tenant see_money see_pool cancel see_site operate keep_credit manage_members",
    "finance": "see_money see_pool see_site keep_credit",
    "auditor": "see_tenant see_money see_pool see_site",
    "retired": "",
}


def member(role: str, site_role: str = "", tenant: int = HERE) -> Access:
    return Access(1, "ada", site_role, (MembershipFacts(tenant, "here", "Here", role),))


def test_tables_cover_every_role_and_action() -> None:
    assert {*IN_TENANT} == {*Membership.Role.values, "retired"}
    assert {*ON_SITE} == {*User.SiteRole.values, "retired"}
    named = {name for row in (*IN_TENANT.values(), *ON_SITE.values()) for name in row.split()}
    assert named == {action.value for action in Action}


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("site_role", ON_SITE)
@pytest.mark.parametrize("role", IN_TENANT)
def test_permissions_follow_roles(role: str, site_role: str, action: Action) -> None:
    by_site = action in ON_SITE[site_role].split()
    by_both = by_site or action in IN_TENANT[role].split()
    access = member(role, site_role)
    assert may_on_site(site_role, action) is by_site
    assert may_in_tenant(access, action, HERE) is by_both
    assert may_in_tenant(access, action, THERE) is by_site
    assert may_in_pool(access, action, frozenset({THERE, HERE})) is by_both
    assert may_in_pool(access, action, frozenset({THERE, NOWHERE})) is by_site
    assert may_in_pool(access, action, frozenset()) is by_site


@pytest.mark.parametrize("action", Action)
def test_role_applies_only_to_its_tenant(action: Action) -> None:
    places = (*member("viewer").memberships, *member("manager", tenant=THERE).memberships)
    access = Access(1, "ada", "", places)
    assert may_in_tenant(access, action, HERE) is (action in IN_TENANT["viewer"].split())
    assert may_in_tenant(access, action, THERE) is (action in IN_TENANT["manager"].split())


@pytest.mark.parametrize("action", Action)
def test_anonymous_access_has_no_permissions(action: Action) -> None:
    assert not may_in_tenant(Access(), action, HERE)
    assert not may_in_pool(Access(), action, frozenset({HERE}))
