"""Compression of pages and JSON, if the client accepts it.

The length of compressed text can reveal a secret next to text of an attacker's choosing, over many
tries (BREACH). The only secret in a page is the form's token. Django masks it differently in each
response, and its compression adds up to 100 random bytes. A new API token is in one response only,
to a form with the form's token and the password, which an attacker cannot repeat.
"""

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class Packed(GZipMiddleware):
    """Django's middleware for compression, except for responses with a strong ETag.

    Compression weakens an ETag, and If-Match accepts no weak one (docs/adr/0112).
    """

    def process_response(self, request: HttpRequest, response: Any) -> HttpResponseBase:
        """Compress a response, unless its ETag is strong."""
        if response.get("ETag", "").startswith('"'):
            packed: HttpResponseBase = response
        else:
            packed = super().process_response(request, response)
        return packed
