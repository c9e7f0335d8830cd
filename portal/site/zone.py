"""The time zone of a page's viewer, which the browser names in a cookie."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_vary_headers

from portal.charts.zones import COOKIE, viewed_in, zone_named
from portal.site.language import is_for_programs


class PageZone:
    """Middleware that renders a page in the time zone of its viewer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_for_programs(request.path_info):
            return self._get_response(request)
        with viewed_in(zone_named(request.COOKIES.get(COOKIE, ""))):
            response = self._get_response(request)
        patch_vary_headers(response, ("Cookie",))
        return response
