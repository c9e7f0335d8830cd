"""Live pages fetch only their live region, and only if it has changed.

After each round an open page requests its own URL and takes `#live` from the response
(docs/look.md, "Live pages"). So this middleware omits the frame around the region, and returns 304
if the region is unchanged. Ages, which the browser counts on, and the form's token do not count as
changes. The time left of a lease does: the next round may renew it.
"""

import re
from collections.abc import Callable
from hashlib import sha256

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.http.response import HttpResponseBase

from portal.site.etags import is_known

TARGET = "live"
BEGIN = re.compile(rf'<div\s+id="{TARGET}"')
# templates/base.html writes this after the region.
END = "<!-- live ends -->"
TICKING = re.compile(r"(<time\b[^>]*?) data-ago=\"[^\"]*\"([^>]*>)[^<]*(?=</time>)")
TOKEN = re.compile(r'(?<=name="csrfmiddlewaretoken" value=")\w+(?=")')


class LiveFragment:
    """The middleware that cuts live regions out of pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        asked = request.method == "GET" and request.headers.get("HX-Target") == TARGET
        if not asked or response.status_code != 200 or not isinstance(response, HttpResponse):
            return response
        page = response.content.decode()
        begin, end = BEGIN.search(page), page.find(END)
        if begin is None or end < 0:
            return response
        fragment = page[begin.start() : end]
        etag = etag_of_fragment(fragment)
        if is_known(etag, request.headers.get("If-None-Match", "")):
            response = HttpResponseNotModified()
        else:
            response.content = fragment.encode()
        response["ETag"] = etag
        return response


def etag_of_fragment(fragment: str) -> str:
    """Return a hash of the region without ages and token; weak, because it may be compressed."""
    said = TOKEN.sub("", TICKING.sub(r"\1\2", fragment))
    return f'W/"{sha256(said.encode()).hexdigest()[:32]}"'
