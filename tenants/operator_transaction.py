"""Transactions of changes to the site or to a tenant's members, with a permission check."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied

from tenants.audit import Actor
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant, may_on_site
from tenants.scopes import site_scope
from tenants.selectors.access import access_of


@contextmanager
def operation(actor: Actor, action: Action = Action.OPERATE) -> Iterator[None]:
    """Open a transaction of a user whose present role for the site allows `action`.

    Raises:
        PermissionDenied: the role does not allow it (any more).
    """
    with site_scope():
        roles = User.objects.filter(pk=actor.user.pk, is_active=True)
        role = roles.values_list("site_role", flat=True).first()
        if role is None or not may_on_site(role, action):
            raise PermissionDenied
        yield


@contextmanager
def member_change(actor: Actor, tenant: Tenant, *, leaves: bool = False) -> Iterator[None]:
    """Open a transaction of a user who may change a tenant's members at present.

    Changes of the same tenant's members wait for each other. With `leaves`, users need no
    permission, because they only end their own membership.

    Raises:
        PermissionDenied: the user may not do this (any more).
    """
    with site_scope():
        # The lock comes before the check: if two managers demote each other, the second has lost
        # the role when it gets the lock.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if not leaves and not manages_members(actor.user.pk, tenant.pk):
            raise PermissionDenied
        yield


def manages_members(user_id: int, tenant_id: int) -> bool:
    """Return whether an active user may change a tenant's members at present."""
    user = User.objects.filter(pk=user_id, is_active=True).first()
    return user is not None and may_in_tenant(access_of(user), Action.MANAGE_MEMBERS, tenant_id)
