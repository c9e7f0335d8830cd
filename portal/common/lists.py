"""Code shared by list pages."""

from django.http import Http404, HttpRequest

DIGITS_MAX = 18  # Keys are 64-bit columns.


def key_asked(request: HttpRequest, name: str = "before") -> int | None:
    """Return the key at which the page starts, or None for the first page.

    Raises:
        Http404: it is no key.
    """
    raw = request.GET.get(name, "")
    if not raw:
        return None
    if not raw.isdecimal() or len(raw) > DIGITS_MAX:
        raise Http404
    return int(raw)
