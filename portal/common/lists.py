"""What pages of lists share."""

from __future__ import annotations

from django.http import Http404, HttpRequest

DIGITS_MAX = 18  # of a key, which a column has


def key_asked(request: HttpRequest, name: str = "before") -> int | None:
    """Return the key of the address at which a page begins; None: it is the first one.

    Raises:
        Http404: it is no key.
    """
    raw = request.GET.get(name, "")
    if not raw:
        return None
    if not raw.isdecimal() or len(raw) > DIGITS_MAX:
        raise Http404
    return int(raw)
