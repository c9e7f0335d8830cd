"""Authentication of the API: a token's bearer, or a browser's session with its CSRF token."""

from typing import Any

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from tenants.api.problems import Problem
from tenants.models import User
from tenants.tokens import TokenBearer, find_token


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer es_...`."""

    def authenticate(self, request: Request) -> tuple[User, TokenBearer] | None:
        """Return the token's person and bearer, or None without the header.

        Raises:
            AuthenticationFailed: the token is unknown or expired, or its person is not active.
        """
        kind, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        bearer = find_token(secret.strip())
        if bearer is None:
            raise AuthenticationFailed("The token is unknown or expired.", "bad_token")
        return bearer.user, bearer

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        """Return the challenge of a 401."""
        return 'Bearer realm="evenshare"'


class BrowserAuthentication(SessionAuthentication):
    """The portal's own pages; writes need the CSRF token."""


class SignedIn(BasePermission):
    """A signed-in person, with a token of the view's scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the request may reach the view, which checks the role.

        Raises:
            Problem: the token lacks the scope.
        """
        if not isinstance(request.user, User):
            return False
        wanted = view.scope_of(request.method)
        if isinstance(request.auth, TokenBearer) and wanted not in ("", *request.auth.token.scopes):
            raise Problem("scope", f"The token lacks the scope {wanted}.")
        return True
