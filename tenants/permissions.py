"""Permissions: the only table of the actions that each role allows."""

from collections.abc import Collection
from enum import StrEnum

from tenants.models import Membership, User
from tenants.selectors.access import Access

Role, SiteRole = Membership.Role, User.SiteRole


class Action(StrEnum):
    """An action that code checks before it shows or changes something."""

    SEE_TENANT = "see_tenant"  # its dashboard and its jobs, by name
    SEE_MONEY = "see_money"  # its ledger and its usage: charges and GPU-time
    SEE_POOL = "see_pool"  # nodes, rounds and prices, as far as the pool's visibility allows
    SUBMIT = "submit"  # jobs, on the tenant's quota and credit
    CANCEL = "cancel"  # the tenant's jobs
    # the lending and borrowing of the tenant's quota, its price limits and its offers
    SHARE = "share"
    ASK_QUOTA = "ask_quota"  # request another quota for the tenant
    SEE_SITE = "see_site"  # the operator's console and the audit log
    OPERATE = "operate"  # change tenants, quotas, pools and nodes
    MANAGE_MEMBERS = "manage_members"  # invite and remove people of the tenant, set their roles
    ASK_TRANSFER = "ask_transfer"  # request a transfer of the tenant's credits to another tenant
    KEEP_CREDIT = "keep_credit"  # allowances, credit limits, budgets; decide on transfers


_READ = frozenset({Action.SEE_TENANT, Action.SEE_MONEY, Action.SEE_POOL})
# A role in a tenant applies to that tenant, and to the pools in which it has quota.
TENANT_ACTIONS: dict[str, frozenset[Action]] = {
    Role.VIEWER: _READ,
    Role.MEMBER: _READ | {Action.SUBMIT, Action.CANCEL},
    Role.MANAGER: _READ
    | {
        Action.SUBMIT,
        Action.CANCEL,
        Action.SHARE,
        Action.ASK_QUOTA,
        Action.MANAGE_MEMBERS,
        Action.ASK_TRANSFER,
    },
}
# A role for the site applies everywhere.
SITE_ACTIONS: dict[str, frozenset[Action]] = {
    SiteRole.NONE: frozenset(),
    SiteRole.OPERATOR: _READ
    | {
        Action.CANCEL,
        Action.SEE_SITE,
        Action.OPERATE,
        Action.KEEP_CREDIT,
        Action.MANAGE_MEMBERS,
    },
    # Finance users see every account, but no job by its name.
    SiteRole.FINANCE: frozenset(
        {Action.SEE_MONEY, Action.SEE_POOL, Action.SEE_SITE, Action.KEEP_CREDIT}
    ),
    SiteRole.AUDITOR: _READ | {Action.SEE_SITE},
}


def may_in_tenant(access: Access, action: Action, tenant_id: int) -> bool:
    """Return whether a person may do `action` in a tenant, by their role there or for the site."""
    if action in SITE_ACTIONS.get(access.site_role, frozenset()):
        return True
    return any(
        action in TENANT_ACTIONS.get(membership.role, frozenset())
        for membership in access.memberships
        if membership.tenant_id == tenant_id
    )


def may_ask(access: Access, tenant_id: int) -> bool:
    """Return whether a person may request transfers of a tenant's credits: only its managers."""
    return may_in_tenant(access, Action.ASK_TRANSFER, tenant_id)


def seen_tenants(access: Access) -> Collection[int] | None:
    """Return the tenants whose jobs and money a person may see, or None for all."""
    return None if may_on_site(access.site_role, Action.SEE_TENANT) else access.tenant_ids


def may_in_pool(access: Access, action: Action, pool_tenants: frozenset[int]) -> bool:
    """Return whether a person may do `action` in a pool; `pool_tenants` are its tenants."""
    return action in SITE_ACTIONS.get(access.site_role, frozenset()) or any(
        may_in_tenant(access, action, tenant_id) for tenant_id in pool_tenants
    )


def may_on_site(site_role: str, action: Action) -> bool:
    """Return whether a role for the site allows `action`, without a role in a tenant."""
    return action in SITE_ACTIONS.get(site_role, frozenset())
