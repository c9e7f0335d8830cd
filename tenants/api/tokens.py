"""Tokens: made with a password, listed and revoked by their owner."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import authenticate
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.answers import Answer, plain
from tenants.api import schemas
from tenants.api.base import ApiView, Who, actor_of
from tenants.api.operate import refusal
from tenants.api.problems import Problem, bad_field, fields_only, not_there
from tenants.api.resources import Listed, Page, described
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request, request_fields
from tenants.lockout import WINDOW, is_locked
from tenants.models import ApiToken, User
from tenants.refusals import record_refusal
from tenants.services.tokens import ScopeRefusedError, TokenRequest, make_token, revoke_token
from tenants.tokens import PER_PERSON, Scope, TokenBearer, TooManyTokensError

PROOF = ("username", "password")
FIELDS = (*PROOF, *request_fields(TokenRequest))


class TokenRow(Answer, frozen=True):
    """A token without its secret."""

    id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None


class TokenMade(TokenRow, frozen=True):
    """A new token with its secret."""

    token: str


class TokenList(Listed):
    """List your tokens, newest first, without their secrets."""

    address = "tokens"
    operation = "tokens_retrieve"
    who = Who.ANYBODY_SIGNED_IN
    row = TokenRow
    about = "A person's tokens."
    shows = ("ApiToken.name", "ApiToken.uid")
    scopes: ClassVar[dict[str, str]] = {"GET": ""}

    def get_authenticators(self) -> list[Any]:
        """Return no authenticators for POST: the password needs no session, token or CSRF token."""
        posts = getattr(self.request, "method", "") == "POST"
        return [] if posts else list(super().get_authenticators())

    def get_permissions(self) -> list[Any]:
        """Allow anonymous POST, which checks a password."""
        posts = getattr(self.request, "method", "") == "POST"
        return [AllowAny()] if posts else list(super().get_permissions())

    @extend_schema(auth=[])
    @described("tokens_create", schemas.TokenAsk, TokenMade, 201)
    def post(self, request: Request) -> Response:
        """Make a token by password. Its secret is shown only in this response."""
        body = fields_only(request.data, FIELDS)
        try:
            asked_for = read_request(
                TokenRequest, {name: body[name] for name in body if name not in PROOF}
            )
            token, secret = make_token(
                actor=actor_of(_person(request, body)),
                request=asked_for,
                asked=_subject(request),
                now=timezone.now(),
            )
        except InvalidInputError as error:
            raise refusal(error) from None
        except ScopeRefusedError as error:
            raise Problem("role", str(error)) from None
        except TooManyTokensError as error:
            raise Problem("too_many_tokens", str(error)) from None
        return Response({**plain(_row(token)), "token": secret}, status=201)

    def page(self) -> Page:
        tokens = ApiToken.objects.filter(user=self.person).order_by("-id")[: PER_PERSON * 2]
        return Page(map(_row, tokens))


class TokenOne(ApiView):
    address = "tokens/<uuid:uid>"
    scopes: ClassVar[dict[str, str]] = {"DELETE": ""}

    @described("tokens_destroy", None, None, 204)
    def delete(self, request: Request, uid: UUID) -> Response:
        """Revoke a token.

        A token can revoke itself; with `jobs:write` or a session you can revoke any of yours.
        """
        used = request.auth
        if (
            isinstance(used, TokenBearer)
            and used.token.uid != uid
            and Scope.JOBS_WRITE.value not in used.token.scopes
        ):
            why = "The token may only revoke itself."
            record_refusal(actor_of(self.person), _subject(request), why)
            raise Problem("scope", why)
        if not revoke_token(actor=actor_of(self.person), uid=uid, asked=_subject(request)):
            raise not_there()
        return Response(status=204)


def _subject(request: Request) -> str:
    return f"{request.method} {request.path}"


def _person(request: Request, body: dict[str, Any]) -> User:
    """Check username and password; the error does not reveal which of them was wrong."""
    for field in ("username", "password"):
        value = body.get(field)
        if not isinstance(value, str) or not 1 <= len(value) <= 1024:
            raise bad_field(field, "is required and must be a string")
    django_request = request._request  # noqa: SLF001 - the backend reads its address
    user = authenticate(django_request, username=body["username"], password=body["password"])
    if isinstance(user, User):
        return user
    if is_locked(body["username"], django_request):
        raise Problem("locked_out", retry_after_s=int(WINDOW.total_seconds()))
    raise Problem("bad_credentials")


def _row(token: ApiToken) -> TokenRow:
    times = (token.created_at, token.expires_at, token.used_at)
    return TokenRow(token.uid, token.name, tuple(token.scopes), *times)
