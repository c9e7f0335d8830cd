"""The choice of a language, in the footer of every page."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from tenants.models import User
from tenants.services.accounts import choose_language

YEAR_S = 365 * 86_400


@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Keep the language of this browser, and of the person who is signed in; return to the page."""
    language = request.POST.get("language", "")
    if language not in dict(settings.LANGUAGES):
        raise Http404("no such language")
    if isinstance(request.user, User):
        choose_language(request.user, language)
    back = request.POST.get("next", "")
    is_here = url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure())
    answer = HttpResponseRedirect(back if is_here and back.startswith("/") else "/")
    answer.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=YEAR_S,
        secure=request.is_secure(),
        httponly=True,
        samesite="Lax",
    )
    return answer
