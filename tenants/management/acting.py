"""Commands that act for a user."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError

from tenants.audit import Actor
from tenants.models import User


@contextmanager
def acting_as(username: str | None, *, refused: str = "is not an operator") -> Iterator[Actor]:
    """Provide the actor for a user; `refused`: the error's text if the role forbids the change."""
    if not username:
        raise CommandError("name an operator with --user NAME, for the audit log")
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"there is no user {username}")
    try:
        yield Actor(user)
    except PermissionDenied as error:
        raise CommandError(f"{username} {refused}") from error
