"""Interactive jobs: the button that opens one, and the questions of the proxy of sessions."""

from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from portal.common.access import access, signed_in
from portal.jobs.views.jobs import job_or_404
from scheduling.engine.clock import wall_now
from scheduling.services.sessions import (
    enter_session,
    find_target,
    may_open,
    open_session,
    session_job,
)
from tenants.input.errors import InvalidInputError
from tenants.models import User

# The prefix keeps other hosts of the domain from setting it.
COOKIE = "__Host-evenshare-session"


@signed_in
@require_POST
def open_page(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Redirect to the session's own origin, with a code that works once."""
    job = job_or_404(request, uid)
    if not may_open(access(request), job):
        raise PermissionDenied
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` checked it
    url = None
    try:
        url = open_session(job=job, user=request.user, now=wall_now()).url
    except InvalidInputError as error:
        text = _("{name} cannot be opened. {reason}")
        messages.error(request, text.format(name=job.name, reason=error.errors[0].reason))
    else:
        if url is None:
            text = _("{name} is not ready yet. Try again in a moment.")
            messages.info(request, text.format(name=job.name))
    return redirect(url or reverse("job", args=[job.uid]))


@never_cache
@require_safe
def enter(request: HttpRequest) -> HttpResponseBase:
    """Exchange a code for the cookie of a session's origin, where the proxy serves this view.

    Raises:
        Http404: the request is for the portal's own origin.
    """
    host = _session_host(request)
    if session_job(host) is None:
        raise Http404
    token = enter_session(host=host, code=request.GET.get("code", ""), now=wall_now())
    if token is None:
        return _closed(request, host)
    answer = HttpResponseRedirect("/")
    answer.set_cookie(COOKIE, token, secure=True, httponly=True, samesite="Lax", path="/")
    answer["Referrer-Policy"] = "no-referrer"
    return answer


@never_cache
@require_safe
def authorize(request: HttpRequest) -> HttpResponseBase:
    """Return the address of a session's server to the proxy, if this request may reach it.

    Raises:
        Http404: the request is for the portal's own origin.
    """
    host = _session_host(request)
    if session_job(host) is None:
        raise Http404
    if not _is_of_origin(request, host):
        return HttpResponse(_("Other sites may not use this session."), status=403)
    target = find_target(host=host, token=request.COOKIES.get(COOKIE, ""))
    if target is None:
        return _closed(request, host)
    answer = HttpResponse(status=200)
    answer["X-Evenshare-Upstream"] = target.address
    answer["Authorization"] = target.authorization
    return answer


def _session_host(request: HttpRequest) -> str:
    """Return the host that the browser asked for: the proxy overwrites this header."""
    return str(request.headers.get("X-Forwarded-Host", ""))


def _is_of_origin(request: HttpRequest, host: str) -> bool:
    """Return whether a page of the session made the request, or a person opened its address.

    All sessions are of one site, so browsers send the cookie also with requests of other sessions.
    WebSockets always have an origin.
    """
    origin = request.headers.get("Origin")
    if origin is not None and (
        urlsplit(origin).scheme != "https" or urlsplit(origin).netloc.lower() != host.lower()
    ):
        return False
    if request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        return True
    return _opens_page(request) and request.headers.get("Sec-Fetch-Dest") == "document"


def _opens_page(request: HttpRequest) -> bool:
    method = request.headers.get("X-Forwarded-Method", "GET")
    return method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"


def _closed(request: HttpRequest, host: str) -> HttpResponse:
    """Lead a person to the job's page, whose button opens the session; refuse other requests."""
    if _opens_page(request):
        page = reverse("job", args=[session_job(host)])
        return HttpResponseRedirect(f"{settings.SITE_URL}{page}")
    return HttpResponse(_("Open the session from its job's page."), status=401)
