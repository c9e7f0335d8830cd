"""Login, logout, the demo's sign-in buttons, and the user's account."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from portal.account.views.passwords import check_present, verified_person
from portal.account.views.provider import OFFERED, is_connected, provider_name
from portal.common.access import access, demo_only, signed_in
from portal.common.forms import Field
from portal.demo.people import DEMO_PEOPLE
from portal.site.request_id import request_id_of
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.lockout import WINDOW, is_locked
from tenants.models import Membership, User
from tenants.scopes import site_scope
from tenants.selectors.people import find_active_person, invitations_for, token_count
from tenants.services.accounts import (
    NewPassword,
    change_password,
    check_new_password,
)
from tenants.services.tenants import DEMO_PASSWORD

# Name, label, autocomplete token, hint.
PasswordRow: TypeAlias = tuple[str, str, str, str]
HINT = gettext_noop("At least 12 characters, and not a common password.")
PASSWORDS: tuple[PasswordRow, ...] = (
    ("old_password", gettext_noop("Current password"), "current-password", ""),
    ("new_password", gettext_noop("New password"), "new-password", HINT),
    ("new_password_again", gettext_noop("Repeat the new password"), "new-password", ""),
)

# The roles of the demo's people.
ROLE_TEXTS = {
    "researcher": gettext_lazy("researcher"),
    "manager": gettext_lazy("manager"),
    "operator": gettext_lazy("operator"),
}


class LoginPage(LoginView):
    """Django's login page, which also shows the waiting time after too many guesses."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the name of the site's OpenID Connect provider, empty without one."""
        return super().get_context_data(**kwargs) | {"provider": provider_name()}

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again; 429 if the user is locked, even with the right password."""
        name = form.data.get("username", "")
        if not name or not is_locked(name, self.request):
            return super().form_invalid(form)
        context = self.get_context_data(form=form)
        context["locked_minutes"] = int(WINDOW.total_seconds()) // 60
        answer = self.render_to_response(context, status=429)
        answer["Retry-After"] = str(int(WINDOW.total_seconds()))
        return answer


login_page = LoginPage.as_view(
    template_name="account/login.html",
    redirect_authenticated_user=True,
    extra_context={
        "locked_minutes": 0,
        "demo_people": [
            (role, name, ROLE_TEXTS[role])
            for role, name in sorted(DEMO_PEOPLE.items())
            if not settings.PRODUCTION
        ],
        "demo_password": "" if settings.PRODUCTION else DEMO_PASSWORD,
    },
)
logout_page = LogoutView.as_view()


@demo_only
@require_POST
def demo_login(request: HttpRequest, role: str) -> HttpResponse:
    person = find_active_person(DEMO_PEOPLE.get(role, ""))
    if person is None:
        raise Http404
    login(request, person, backend="django.contrib.auth.backends.ModelBackend")
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()):
        target = reverse("front")
    return HttpResponseRedirect(target)


@sensitive_post_parameters()
@signed_in
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: HttpRequest) -> HttpResponseBase:
    """Show the user's account, with a form for a new password."""
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            person = _changed(request, user)
        except InvalidInputError as error:
            errors = error.by_field
        else:
            # This session continues; all others started with the old password and have ended.
            update_session_auth_hash(request, person)
            messages.success(request, _("Password changed. All other sessions have ended."))
            return redirect("account")
    with site_scope():
        tokens = token_count(user)
        invitations = invitations_for(user, timezone.now())
    who = access(request)
    context = {
        "person": user,
        "memberships": [(one, Membership.Role(one.role).label) for one in who.memberships],
        "tokens": tokens,
        "invitations": invitations,
        "is_refused": bool(errors),
        "provider": provider_name(),
        "is_connected": is_connected(user),
        "offered": request.session.get(OFFERED, {}).get("username", ""),
        "fields": password_fields(PASSWORDS, errors) if user.has_usable_password() else [],
    }
    return render(request, "account/account.html", context, status=422 if errors else 200)


def password_fields(rows: Iterable[PasswordRow], errors: Mapping[str, str]) -> list[Field]:
    """Return the inputs of passwords in the page's language."""
    return [
        Field(name, _(label), kind=kind, hint=_(hint) if hint else "", error=errors.get(name, ""))
        for name, label, kind, hint in rows
    ]


def _changed(request: HttpRequest, user: User) -> User:
    """Change the password to the form's new password; return the updated user.

    Raises:
        InvalidInputError: with the errors by field of the form.
    """
    old = request.POST.get("old_password", "")
    wanted = NewPassword(
        request.POST.get("new_password", ""),
        request.POST.get("new_password_again", ""),
        drop_tokens="drop_tokens" in request.POST,
    )
    check_present(old)
    check_new_password(user, wanted)
    verified = verified_person(request, user, old)
    actor = Actor(verified, request_id_of(request))
    return change_password(actor=actor, verified=verified, request=wanted)
