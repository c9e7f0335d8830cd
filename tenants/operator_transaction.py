"""The transaction of a change in the console, with a permission check."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied

from tenants.audit import Actor
from tenants.models import User
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope


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
