"""The present password, required again for changes that outlast the session."""

from django.contrib.auth import authenticate
from django.http import HttpRequest
from django.utils.translation import gettext as _

from tenants.input.errors import invalid
from tenants.lockout import LOCKED_TEXT, is_locked
from tenants.models import User
from tenants.services.accounts import PASSWORD_MAX


def check_present(password: str) -> None:
    """Refuse text that cannot be a password, before it is hashed.

    Raises:
        InvalidInputError: for the field `old_password`.
    """
    if not 1 <= len(password) <= PASSWORD_MAX:
        raise invalid("old_password", _("Enter your current password."))


def verified_person(request: HttpRequest, user: User, password: str) -> User:
    """Check the user's password; return the user.

    Wrong guesses count as they do at login: too many lock the user for a while.

    Raises:
        InvalidInputError: for the field `old_password`.
    """
    verified = authenticate(request, username=user.get_username(), password=password)
    if isinstance(verified, User) and verified.pk == user.pk:
        return verified
    if is_locked(user.get_username(), request):
        raise invalid("old_password", LOCKED_TEXT)
    raise invalid("old_password", _("This is not your current password."))
