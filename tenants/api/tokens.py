"""Tokens: made with a password, listed and dropped by their person."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import authenticate
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api import schemas
from tenants.api.base import ApiView, actor_of
from tenants.api.problems import Problem, bad_field, fields_only, not_there
from tenants.api.times import time_text
from tenants.lockout import WINDOW, is_locked
from tenants.models import ApiToken, User
from tenants.refusals import record_refusal
from tenants.tokens import (
    DAYS,
    DAYS_MAX,
    PER_PERSON,
    SCOPES_USUAL,
    Scope,
    TokenBearer,
    TooManyTokensError,
    create_token,
    drop_token,
    scope_is_open,
    token_exists,
)

FIELDS = ("username", "password", "name", "scopes", "days")


class TokenList(ApiView):
    """All tokens of a person."""

    scopes: ClassVar[dict[str, str]] = {"GET": ""}

    def get_authenticators(self) -> list[Any]:
        """A password speaks for itself: no session, no token, no CSRF."""
        posts = getattr(self.request, "method", "") == "POST"
        return [] if posts else list(super().get_authenticators())

    def get_permissions(self) -> list[Any]:
        """Anybody may try a password."""
        posts = getattr(self.request, "method", "") == "POST"
        return [AllowAny()] if posts else list(super().get_permissions())

    @extend_schema(request=schemas.TokenAsk, responses={201: schemas.TokenMade}, auth=[])
    def post(self, request: Request) -> Response:
        """Make a token by password. It is shown this once."""
        body = fields_only(request.data, FIELDS)
        name, scopes, days = _name(body), _scopes(body), _days(body)
        user = _person(request, body)
        for scope in scopes:
            if not scope_is_open(user, scope):
                why = f"The scope {scope.value} is for operators."
                asked = ", ".join(one.value for one in scopes)
                record_refusal(actor_of(user), _subject(request), why, {"scopes": asked})
                raise Problem(403, "role", why)
        try:
            token, secret = create_token(
                user=user, name=name, scopes=scopes, days=days, now=timezone.now()
            )
        except TooManyTokensError as error:
            detail = f"You have {PER_PERSON} tokens; drop one first."
            raise Problem(409, "too_many_tokens", detail) from error
        return Response({**_json(token), "token": secret}, status=201)

    @extend_schema(responses={200: schemas.TokenPage})
    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """List your tokens, newest first, without their secrets."""
        tokens = ApiToken.objects.filter(user=self.person).order_by("-id")[: PER_PERSON * 2]
        return Response({"results": [_json(token) for token in tokens], "next": None})


class TokenOne(ApiView):
    """One token."""

    scopes: ClassVar[dict[str, str]] = {"DELETE": ""}

    @extend_schema(responses={204: None})
    def delete(self, request: Request, uid: UUID) -> Response:
        """Drop a token: itself, or with `jobs:write` (or a session) any of yours."""
        used = request.auth
        if (
            isinstance(used, TokenBearer)
            and used.token.uid != uid
            and Scope.JOBS_WRITE.value not in used.token.scopes
        ):
            why = "The token may drop itself alone."
            record_refusal(actor_of(self.person), _subject(request), why)
            raise Problem(403, "scope", why)
        if not drop_token(user=self.person, uid=uid):
            if token_exists(uid):
                why = "The token is another person's."
                record_refusal(actor_of(self.person), _subject(request), why)
            raise not_there()
        return Response(status=204)


def _subject(request: Request) -> str:
    return f"{request.method} {request.path}"


def _person(request: Request, body: dict[str, Any]) -> User:
    """Check username and password; nothing tells which of them was wrong."""
    for field in ("username", "password"):
        value = body.get(field)
        if not isinstance(value, str) or not 1 <= len(value) <= 1024:
            raise bad_field(field, "is required and must be a text")
    django_request = request._request  # noqa: SLF001 - the backend reads its address
    user = authenticate(django_request, username=body["username"], password=body["password"])
    if isinstance(user, User):
        return user
    if is_locked(body["username"], django_request):
        minutes = int(WINDOW.total_seconds()) // 60
        detail = f"Too many wrong passwords: try again in {minutes} minutes."
        raise Problem(429, "locked_out", detail, retry_after_s=int(WINDOW.total_seconds()))
    raise Problem(401, "bad_credentials", "Username and password do not match.")


def _name(body: dict[str, Any]) -> str:
    name = body.get("name", "token")
    if not isinstance(name, str) or not 1 <= len(name) <= 63 or not name.isprintable():
        raise bad_field("name", "must be 1 to 63 printable characters")
    return name


def _scopes(body: dict[str, Any]) -> list[Scope]:
    wanted = body.get("scopes", [scope.value for scope in SCOPES_USUAL])
    known = {scope.value for scope in Scope}
    if not isinstance(wanted, list) or not wanted or len(wanted) > len(known):
        raise bad_field("scopes", "must be a list", f"Of: {', '.join(sorted(known))}.")
    for index, scope in enumerate(wanted):
        if not isinstance(scope, str) or scope not in known:
            hint = f"Known: {', '.join(sorted(known))}."
            raise bad_field(f"scopes[{index}]", "is not a scope", hint)
    return [Scope(scope) for scope in wanted]


def _days(body: dict[str, Any]) -> int:
    days = body.get("days", DAYS)
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= DAYS_MAX:
        raise bad_field("days", f"must be a whole number from 1 to {DAYS_MAX}")
    return days


def _json(token: ApiToken) -> dict[str, Any]:
    return {
        "id": str(token.uid),
        "name": token.name,
        "scopes": token.scopes,
        "created_at": time_text(token.created_at),
        "expires_at": time_text(token.expires_at),
        "used_at": time_text(token.used_at),
    }
