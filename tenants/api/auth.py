"""Who asks the API: a bearer of a token, or a browser's session with its CSRF token."""

from __future__ import annotations

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
        """Return the person behind a token; None without the header.

        Raises:
            AuthenticationFailed: the token is unknown, expired, or its person is not active.
        """
        kind, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        bearer = find_token(secret.strip())
        if bearer is None:
            raise AuthenticationFailed("The token is unknown or expired.", "bad_token")
        return bearer.user, bearer

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        """What a 401 asks for."""
        return 'Bearer realm="evenshare"'


class BrowserAuthentication(SessionAuthentication):
    """The portal's own pages; writes need the CSRF token."""


class SignedIn(BasePermission):
    """Somebody, with a token of the scope that the view's method wants."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the request may go on to the view, which decides by role.

        Raises:
            Problem: the token has not the scope.
        """
        if not isinstance(request.user, User):
            return False
        wanted = view.scope_of(request.method)
        if isinstance(request.auth, TokenBearer) and wanted not in ("", *request.auth.token.scopes):
            raise Problem("scope", f"The token lacks the scope {wanted}.")
        return True
