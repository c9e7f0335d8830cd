"""Pages and JSON are sent compressed, to whoever takes it.

Compressed text tells a listener its length, and so, over many tries, a secret beside words of the
listener's choosing (BREACH). The one secret in a page is the form's token, which Django masks anew
for each answer, and Django's compression adds up to 100 random bytes. A new API token is shown in
one answer, to a form with that token and the password in it, which nobody can have repeated.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class Packed(GZipMiddleware):
    """Django's, but for resources that are edited by what was seen.

    Compressing weakens an ETag, and If-Match takes no weak one (docs/adr/0112).
    """

    def process_response(self, request: HttpRequest, response: Any) -> HttpResponseBase:
        """Compress an answer, unless its ETag is a strong one."""
        if response.get("ETag", "").startswith('"'):
            packed: HttpResponseBase = response
        else:
            packed = super().process_response(request, response)
        return packed
