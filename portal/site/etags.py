"""ETags: whether a browser already has the response, by If-None-Match of RFC 9110."""

from __future__ import annotations

from django.utils.http import parse_etags


def is_known(etag: str, given: str) -> bool:
    """Return whether `given`, an If-None-Match, has `etag`: weakly, as either may be compressed."""
    return etag.removeprefix("W/") in {one.removeprefix("W/") for one in parse_etags(given)}
