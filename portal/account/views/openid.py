"""Sign-in at the site's OpenID Connect provider, and the connection of an account with it."""

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
)
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from portal.account.views.passwords import SIGNED_IN_AT
from portal.account.views.provider import OFFERED, ProviderError, provider_name
from portal.common.access import signed_in
from portal.site.request_id import request_id_of
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.services.identities import ProvenIdentity, connect, disconnect, sign_in

BACKEND = "django.contrib.auth.backends.ModelBackend"
# The session's value with the page to return to.
NEXT = "openid_next"
View = Callable[[HttpRequest], HttpResponseBase]


def _with_provider(view: View) -> View:
    """Answer 404 if the site has no provider."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponseBase:
        if not settings.OIDC_ISSUER:
            raise Http404
        return view(request)

    return guarded


@_with_provider
@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    from portal.account.views.provider_client import redirect_to_provider  # noqa: PLC0415 - takes 25 MB

    request.session[NEXT] = request.GET.get("next", "")
    try:
        return redirect_to_provider(request)
    except ProviderError:
        messages.error(
            request, _("{name} does not answer. Try again.").format(name=provider_name())
        )
        return _back(request)


@_with_provider
@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in the person with the identity that the provider proves.

    A person who is signed in already confirms the connection on the page of the account, because a
    link of another site could lead here.
    """
    from portal.account.views.provider_client import proven_identity  # noqa: PLC0415 - as above

    try:
        proven = proven_identity(request)
        if not isinstance(request.user, User):
            _enter(request, proven)
        elif request.user.identity == proven.identity:
            request.session[SIGNED_IN_AT] = timezone.now().timestamp()
        else:
            request.session[OFFERED] = asdict(proven)
            return redirect("account")
    except ProviderError:
        text = _("The sign-in with {name} failed. Try again.").format(name=provider_name())
        messages.error(request, text)
    except InvalidInputError as error:
        messages.error(request, " ".join(error.by_field.values()))
    return _back(request)


@_with_provider
@signed_in
@never_cache
@require_POST
def change(request: HttpRequest) -> HttpResponse:
    """Connect the account with the identity that the provider has proven, or disconnect it."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    actor = Actor(request.user, request_id_of(request))
    offered = request.session.pop(OFFERED, None)
    try:
        if request.POST.get("do") == "disconnect":
            disconnect(actor=actor)
            messages.success(request, _("Disconnected. Log in with your password from now on."))
        elif offered is not None:
            connect(actor=actor, proven=ProvenIdentity(**offered))
            messages.success(request, _("Connected with {name}.").format(name=provider_name()))
    except InvalidInputError as error:
        messages.error(request, " ".join(error.by_field.values()))
    return redirect("account")


def _enter(request: HttpRequest, proven: ProvenIdentity) -> None:
    user = sign_in(proven, links_names=settings.OIDC_LINKS_NAMES, request_id=request_id_of(request))
    # The session ends as usual, not when the attempt would have.
    request.session.set_expiry(None)
    login(request, user, backend=BACKEND)
    request.session[SIGNED_IN_AT] = timezone.now().timestamp()


def _back(request: HttpRequest) -> HttpResponse:
    """Return to the page from which the person came to sign in, or to the login page."""
    target = request.session.get(NEXT, "")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()):
        target = reverse("front")
    if not request.user.is_authenticated:
        return HttpResponseRedirect(f"{settings.LOGIN_URL}?{urlencode({'next': target})}")
    request.session.pop(NEXT, None)
    return HttpResponseRedirect(target)
