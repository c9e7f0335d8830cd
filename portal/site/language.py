"""The language of a page: the one that a person chose, else the one that the browser prefers."""

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers

# Answers for programs are in English, and so is what they store.
PROGRAMS = ("/api/", "/metrics", "/healthz", "/readyz")
# The pages about the API.
DOCS = "/api/v1/docs"


class PageLanguage:
    """Middleware that renders a page in the language of its reader."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if len(settings.LANGUAGES) == 1:
            raise MiddlewareNotUsed
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_for_programs(request.path_info):
            return self._get_response(request)
        language = language_of(request)
        with translation.override(language):
            response = self._get_response(request)
        response.headers["Content-Language"] = language
        patch_vary_headers(response, ("Accept-Language", "Cookie"))
        return response


def is_for_programs(path: str) -> bool:
    """Return whether a path answers programs."""
    return path.startswith(PROGRAMS) and path != DOCS and not path.startswith(f"{DOCS}/")


def language_of(request: HttpRequest) -> str:
    """Return the language of a reader, one of `LANGUAGES`."""
    chosen = getattr(request.user, "language", "")
    if chosen in dict(settings.LANGUAGES):
        return str(chosen)
    return translation.get_language_from_request(request)
