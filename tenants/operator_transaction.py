"""What every change of the console shares: who may make it, and one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied

from tenants.audit import Actor
from tenants.models import User
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope


@contextmanager
def operation(actor: Actor, action: Action = Action.OPERATE) -> Iterator[None]:
    """One transaction of somebody who may do `action` on the site, by the role that they have now.

    Raises:
        PermissionDenied: they may not (any more).
    """
    with site_scope():
        roles = User.objects.filter(pk=actor.user.pk, is_active=True)
        role = roles.values_list("site_role", flat=True).first()
        if role is None or not may_on_site(role, action):
            raise PermissionDenied
        yield
