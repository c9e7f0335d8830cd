"""Whether a browser has what it would get: ETags, compared as RFC 9110 says of If-None-Match."""

from __future__ import annotations

from django.utils.http import parse_etags


def is_known(etag: str, given: str) -> bool:
    """Whether `given`, an If-None-Match, names `etag`: weakly, for either may be compressed."""
    return etag.removeprefix("W/") in {one.removeprefix("W/") for one in parse_etags(given)}
