"""The present password, or a recent sign-in, required for changes that outlast the session."""

from django.contrib.auth import authenticate
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from tenants.input.errors import invalid
from tenants.lockout import LOCKED_TEXT, is_locked
from tenants.models import User
from tenants.services.accounts import PASSWORD_MAX

# The session's value with the time of the last sign-in at the OpenID Connect provider.
SIGNED_IN_AT = "openid_at"
# Seconds for which that sign-in counts as a password.
RECENT_S = 900


def check_present(password: str) -> None:
    """Refuse text that cannot be a password, before it is hashed.

    Raises:
        InvalidInputError: for the field `old_password`.
    """
    if not 1 <= len(password) <= PASSWORD_MAX:
        raise invalid("old_password", _("Enter your current password."))


def verified_person(request: HttpRequest, user: User, password: str) -> User:
    """Check the user's password; return the user.

    Wrong guesses count as they do at login: too many lock the user for a while. A user without a
    password must have signed in at the provider recently.

    Raises:
        InvalidInputError: for the field `old_password`.
    """
    if not user.has_usable_password():
        if not signed_in_recently(request):
            raise invalid("old_password", _("Log in again first."))
        return user
    verified = authenticate(request, username=user.get_username(), password=password)
    if isinstance(verified, User) and verified.pk == user.pk:
        return verified
    if is_locked(user.get_username(), request):
        raise invalid("old_password", LOCKED_TEXT)
    raise invalid("old_password", _("This is not your current password."))


def signed_in_recently(request: HttpRequest) -> bool:
    """Return whether the provider has proven the user within `RECENT_S`."""
    at = request.session.get(SIGNED_IN_AT, 0)
    return bool(timezone.now().timestamp() - at < RECENT_S)
