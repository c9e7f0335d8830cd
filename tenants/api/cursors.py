"""Cursors: where the next page of a list begins. Signed, so that a made-up one is a 400."""

from __future__ import annotations

from typing import Any

from django.core.signing import BadSignature, Signer
from rest_framework.request import Request

from tenants.api.problems import bad_field

LIMIT, LIMIT_MAX = 50, 200


def read_cursor(request: Request, route: str) -> list[Any] | None:
    """Return the key that the request's `cursor` holds; None on the first page.

    Raises:
        Problem: it was not made by this list.
    """
    raw = request.query_params.get("cursor", "")
    if not raw:
        return None
    try:
        key = _signer(route).unsign_object(raw)
    except (BadSignature, ValueError, UnicodeError) as error:
        raise bad_field("cursor", "is not one of this list", "Use the `next` of a page.") from error
    return key if isinstance(key, list) else [key]


def make_cursor(route: str, *key: int | str) -> str:
    """Return the cursor of a page that begins after `key`."""
    return _signer(route).sign_object(list(key))


def read_limit(request: Request) -> int:
    """Return how many rows a page shall have, `LIMIT` unless it says, `LIMIT_MAX` at most.

    Raises:
        Problem: it is no whole number from 1 to `LIMIT_MAX`.
    """
    raw = request.query_params.get("limit", str(LIMIT))
    is_number = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(LIMIT_MAX))
    if not is_number or not 1 <= int(raw) <= LIMIT_MAX:
        raise bad_field("limit", f"must be from 1 to {LIMIT_MAX}")
    return int(raw)


def _signer(route: str) -> Signer:
    return Signer(salt=f"evenshare.cursor.{route}")
