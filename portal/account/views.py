"""Coming and going: login, logout, and whom to sign in as in the demo."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from portal.demo.people import DEMO_PEOPLE
from portal.site.access import demo_only
from tenants.selectors.people import find_active_person
from tenants.services.tenants import DEMO_PASSWORD

login_page = LoginView.as_view(
    template_name="account/login.html",
    redirect_authenticated_user=True,
    extra_context={
        "demo_people": [] if settings.PRODUCTION else sorted(DEMO_PEOPLE.items()),
        "demo_password": "" if settings.PRODUCTION else DEMO_PASSWORD,
    },
)
logout_page = LogoutView.as_view()


@demo_only
@require_POST
def demo_login(request: HttpRequest, role: str) -> HttpResponse:
    """Sign in as one of the demo's people, without a password."""
    person = find_active_person(DEMO_PEOPLE.get(role, ""))
    if person is None:
        raise Http404
    login(request, person, backend="django.contrib.auth.backends.ModelBackend")
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()):
        target = reverse("front")
    return HttpResponseRedirect(target)
