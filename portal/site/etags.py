"""ETags: whether a browser already has the response, by If-None-Match of RFC 9110."""

from django.utils.http import parse_etags


def is_known(etag: str, given: str) -> bool:
    """Return whether `given`, an If-None-Match, contains `etag`. The comparison is weak (RFC 9110).

    Compression may have made either of them weak.
    """
    return etag.removeprefix("W/") in {one.removeprefix("W/") for one in parse_etags(given)}
