"""A live page that fetches itself gets the part that is live, and only when it says something new.

After each round an open page asks for its own address and takes `#live` out of the answer
(docs/look.md, "Live pages"). So the frame around it is left out here, and an answer that would say
the same as the one before is 304. Ages count on in the browser, and the form's token is another one
each time: neither makes an answer new. What is left of a lease does: the next round may renew it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.http.response import HttpResponseBase

from portal.site.etags import is_known

TARGET = "live"
BEGIN = re.compile(rf'<div\s+id="{TARGET}"')
# What templates/base.html writes behind the region.
END = "<!-- live ends -->"
TICKING = re.compile(r"(<time\b[^>]*?) data-ago=\"[^\"]*\"([^>]*>)[^<]*(?=</time>)")
TOKEN = re.compile(r'(?<=name="csrfmiddlewaretoken" value=")\w+(?=")')


class LiveFragment:
    """Stands around the views."""

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
    """The same for what says the same; weak, for it may be compressed."""
    said = TOKEN.sub("", TICKING.sub(r"\1\2", fragment))
    return f'W/"{sha256(said.encode()).hexdigest()[:32]}"'
