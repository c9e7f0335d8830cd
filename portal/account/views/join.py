"""An invitation's link: a signed-in person joins, a new person first creates an account."""

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods

from portal.account.views.account import HINT, PasswordRow, password_fields
from portal.common.forms import request_inputs, text, typed_request
from portal.site.request_id import request_id_of
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import Membership, User
from tenants.requests import NewcomerRequest
from tenants.scopes import site_scope
from tenants.services.accounts import NewPassword
from tenants.services.invitations import (
    InvitationGoneError,
    accept_as_newcomer,
    accept_invitation,
    check_invitation,
)

LONGEST = 100
PASSWORDS: tuple[PasswordRow, ...] = (
    ("new_password", gettext_noop("Password"), "new-password", HINT),
    ("new_password_again", gettext_noop("Repeat the password"), "new-password", ""),
)


@sensitive_variables("secret")
@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest) -> HttpResponseBase:
    """Show an invitation, and let the visitor accept it."""
    secret = (request.POST.get("invitation") or request.GET.get("invitation", ""))[:LONGEST]
    user = request.user if isinstance(request.user, User) else None
    errors: dict[str, str] = {}
    try:
        if request.method == "POST":
            try:
                membership = _accepted(request, user, secret)
            except InvalidInputError as error:
                errors = error.by_field
            else:
                messages.success(
                    request,
                    _("You are now a {role} of {tenant}.").format(
                        role=_(membership.role), tenant=membership.tenant
                    ),
                )
                return redirect("dashboard", membership.tenant.slug)
        with site_scope():
            invitation = check_invitation(secret, timezone.now())
    except InvitationGoneError:
        return _gone(request)
    here = f"{reverse('join')}?{urlencode({'invitation': secret})}"
    names = ("username", "first_name", "last_name")
    context = {
        "invitation": invitation,
        "secret": secret,
        "person": user,
        "is_for_other": invitation.user is not None and invitation.user != user,
        "login_url": f"{settings.LOGIN_URL}?{urlencode({'next': here})}",
        "trouble": " ".join(errors.values()) if user else "",
        "fields": request_inputs(NewcomerRequest, names, request.POST, errors),
        "passwords": password_fields(PASSWORDS, errors),
    }
    return render(request, "account/join.html", context, status=422 if errors else 200)


def _accepted(request: HttpRequest, user: User | None, secret: str) -> Membership:
    now, request_id = timezone.now(), request_id_of(request)
    if user is not None:
        key: str | UUID = secret or _uid(request)
        return accept_invitation(actor=Actor(user, request_id), key=key, now=now)
    membership = accept_as_newcomer(
        request=typed_request(NewcomerRequest, request.POST),
        password=NewPassword(
            request.POST.get("new_password", ""), request.POST.get("new_password_again", "")
        ),
        secret=secret,
        now=now,
        request_id=request_id,
    )
    login(request, membership.user, backend="django.contrib.auth.backends.ModelBackend")
    return membership


def _uid(request: HttpRequest) -> UUID:
    try:
        return UUID(text(request.POST, "id"))
    except ValueError:
        raise InvitationGoneError from None


def _gone(request: HttpRequest) -> HttpResponse:
    return render(request, "account/join.html", {"invitation": None}, status=404)
