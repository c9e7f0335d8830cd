"""The user's API tokens: create, list and revoke. A secret is shown once."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from portal.account.views.passwords import check_present, signed_in_recently, verified_person
from portal.account.views.provider import provider_name
from portal.charts.figures import thousands
from portal.common.access import signed_in
from portal.common.forms import Field, whole
from portal.site.request_id import request_id_of
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError, invalid
from tenants.input.requests import read_request
from tenants.models import ApiToken, User
from tenants.scopes import site_scope
from tenants.selectors.people import tokens_of
from tenants.services.tokens import (
    ScopeRefusedError,
    TokenRequest,
    has_revoked,
    make_token,
    revoke_token,
)
from tenants.tokens import (
    DAYS,
    DAYS_MAX,
    SCOPES_USUAL,
    Scope,
    TooManyTokensError,
    scope_is_open,
)

SHOWN_MOST = 200  # Characters of an invalid input that the form shows again.
SCOPE_TEXTS = {
    Scope.READ: gettext_noop("read pools, queues, quotas, prices, rounds and usage"),
    Scope.JOBS_READ: gettext_noop("read jobs, why they are queued, and their logs"),
    Scope.JOBS_WRITE: gettext_noop("submit and cancel jobs, and revoke tokens"),
    Scope.CREDIT_WRITE: gettext_noop("request transfers of credits to other tenants"),
    Scope.MEMBERS_WRITE: gettext_noop(
        "invite and remove members of your tenants, and set their roles"
    ),
    Scope.OPERATE: gettext_noop("change pools, quotas, nodes, tenants and credit"),
}


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """The new token's fields as typed."""

    name: str = ""
    days: str = str(DAYS)
    scopes: tuple[str, ...] = SCOPES_USUAL


@sensitive_post_parameters()
@signed_in
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def token_list(request: HttpRequest) -> HttpResponseBase:
    """Show the viewer's tokens, and a form for a new one."""
    user = _person(request)
    draft, errors = TokenDraft(), {}
    made: ApiToken | None = None
    secret = ""
    if request.method == "POST":
        draft = _draft(request)
        try:
            made, secret = _made(request, user, draft)
        except InvalidInputError as error:
            errors = error.by_field
        else:
            draft = TokenDraft()
    with site_scope():
        tokens = tokens_of(user)
    context = {
        "tokens": tokens,
        "made": made,
        "secret": secret,
        "root": request.build_absolute_uri("/").rstrip("/"),
        "is_refused": bool(errors),
        "fields": _fields(draft, errors),
        "password": _password_field(errors) if user.has_usable_password() else None,
        "provider": provider_name(),
        "is_recent": signed_in_recently(request),
        "scopes": [
            (scope.value, _(text), scope.value in draft.scopes)
            for scope, text in SCOPE_TEXTS.items()
            if scope_is_open(user, scope)
        ],
        "scopes_error": errors.get("scopes", ""),
    }
    return render(request, "account/tokens.html", context, status=422 if errors else 200)


@signed_in
@never_cache
@require_POST
def revoke(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Revoke one of the viewer's tokens: the next request with it is refused."""
    actor = Actor(_person(request), request_id_of(request))
    if revoke_token(actor=actor, uid=uid, asked=_asked(request)):
        messages.success(request, _("Token revoked: it is refused from now on."))
    elif has_revoked(actor=actor, uid=uid):
        # For example after a double click, or from an old page in another tab.
        messages.info(request, _("This token was already revoked. Nothing was changed."))
    else:
        raise Http404
    return redirect("tokens")


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def _draft(request: HttpRequest) -> TokenDraft:
    post = request.POST
    return TokenDraft(
        post.get("name", "").strip(),
        post.get("days", "").strip(),
        tuple(post.getlist("scopes")[: len(Scope) + 1]),
    )


def _asked(request: HttpRequest) -> str:
    """Return the method and path, which are recorded if the request is refused."""
    return f"{request.method} {request.path}"


def _made(request: HttpRequest, user: User, draft: TokenDraft) -> tuple[ApiToken, str]:
    """Create the token that the form requests.

    Raises:
        InvalidInputError: with the errors by field of the form.
    """
    days = whole(draft.days)
    typed = {
        "name": draft.name,
        "scopes": draft.scopes,
        "days": draft.days if days is None else days,
    }
    asked_for = read_request(TokenRequest, typed)
    password = request.POST.get("old_password", "")
    if user.has_usable_password():
        check_present(password)
    actor = Actor(verified_person(request, user, password), request_id_of(request))
    try:
        return make_token(actor=actor, request=asked_for, asked=_asked(request), now=timezone.now())
    except ScopeRefusedError as error:
        raise invalid("scopes", str(error)) from None
    except TooManyTokensError as error:
        raise invalid("name", str(error)) from None


def _password_field(errors: dict[str, str]) -> Field:
    return Field(
        "old_password",
        _("Current password"),
        kind="current-password",
        hint=_("Required, because a token may outlive this session."),
        error=errors.get("old_password", ""),
    )


def _fields(draft: TokenDraft, errors: dict[str, str]) -> list[Field]:
    return [
        Field(
            "name",
            _("Name"),
            value=draft.name[:SHOWN_MOST],
            hint=_("Where you use it, such as laptop or CI."),
            error=errors.get("name", ""),
            required=True,
        ),
        Field(
            "days",
            _("Valid for"),
            value=draft.days[:SHOWN_MOST],
            kind="number",
            unit=_("days"),
            hint=_("At most {count}.").format(count=thousands(DAYS_MAX)),
            error=errors.get("days", ""),
            required=True,
        ),
    ]
