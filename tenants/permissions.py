"""Who may do what: one table from role to actions; nothing else decides it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from tenants.models import Membership, User
from tenants.selectors.access import Access

Role, SiteRole = Membership.Role, User.SiteRole


class Action(StrEnum):
    """What a page asks before it shows or does something."""

    SEE_TENANT = "see_tenant"  # its dashboard and its jobs, by name
    SEE_MONEY = "see_money"  # its ledger and its usage: what was charged, and for how much time
    SEE_POOL = "see_pool"  # nodes, rounds and prices, as far as the pool's visibility goes
    SUBMIT = "submit"  # jobs, on the tenant's quota and credit
    CANCEL = "cancel"  # the tenant's jobs
    SHARE = "share"  # what the tenant's quota lends and borrows, for which prices; its offers
    SEE_SITE = "see_site"  # the operator's console and the audit log
    OPERATE = "operate"  # change tenants, quotas, pools and nodes
    ASK_TRANSFER = "ask_transfer"  # ask that the tenant's credits are given to another one
    KEEP_CREDIT = "keep_credit"  # allowances, credit limits, budgets; decide on transfers


_READ = frozenset({Action.SEE_TENANT, Action.SEE_MONEY, Action.SEE_POOL})
# A role in a tenant counts for that tenant, and for the pools in which it has quota.
TENANT_ACTIONS: dict[str, frozenset[Action]] = {
    Role.VIEWER: _READ,
    Role.MEMBER: _READ | {Action.SUBMIT, Action.CANCEL},
    Role.MANAGER: _READ | {Action.SUBMIT, Action.CANCEL, Action.SHARE, Action.ASK_TRANSFER},
}
# A role for the site counts everywhere.
SITE_ACTIONS: dict[str, frozenset[Action]] = {
    SiteRole.NONE: frozenset(),
    SiteRole.OPERATOR: _READ | {Action.CANCEL, Action.SEE_SITE, Action.OPERATE, Action.KEEP_CREDIT},
    # Who closes the books sees every account, and no job by its name.
    SiteRole.FINANCE: frozenset(
        {Action.SEE_MONEY, Action.SEE_POOL, Action.SEE_SITE, Action.KEEP_CREDIT}
    ),
    SiteRole.AUDITOR: _READ | {Action.SEE_SITE},
}


def may_in_tenant(access: Access, action: Action, tenant_id: int) -> bool:
    """Whether a person may do `action` in a tenant, by their role there or for the site."""
    if action in SITE_ACTIONS.get(access.site_role, frozenset()):
        return True
    return any(
        action in TENANT_ACTIONS.get(membership.role, frozenset())
        for membership in access.memberships
        if membership.tenant_id == tenant_id
    )


def may_ask(access: Access, tenant_id: int) -> bool:
    """Whether a person may ask that a tenant's credits are given away: its managers alone."""
    return may_in_tenant(access, Action.ASK_TRANSFER, tenant_id)


def seen_tenants(access: Access) -> Collection[int] | None:
    """Return the tenants whose jobs and money a person may see; None: all."""
    return None if may_on_site(access.site_role, Action.SEE_TENANT) else access.tenant_ids


def may_in_pool(access: Access, action: Action, pool_tenants: frozenset[int]) -> bool:
    """Whether a person may do `action` in a pool whose tenants are `pool_tenants`."""
    return action in SITE_ACTIONS.get(access.site_role, frozenset()) or any(
        may_in_tenant(access, action, tenant_id) for tenant_id in pool_tenants
    )


def may_on_site(site_role: str, action: Action) -> bool:
    """Whether a role for the site alone allows `action`."""
    return action in SITE_ACTIONS.get(site_role, frozenset())
