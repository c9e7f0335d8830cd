"""Cursors: where the next page of a list begins. Signed, so that a made-up one is a 400."""

from __future__ import annotations

import zlib
from typing import Any

from django.core.signing import BadSignature, Signer
from rest_framework.request import Request

from tenants.api.problems import Problem, bad_field

LIMIT, LIMIT_MAX = 50, 200
BIGINT = 2**63


def read_cursor(request: Request, route: str, *, parts: int = 1) -> list[int] | None:
    """Return the key that the request's `cursor` holds, so many numbers; None on the first page.

    Raises:
        Problem: it was not made by this list, or by one of its former versions.
    """
    raw = request.query_params.get("cursor", "")
    if not raw:
        return None
    try:
        key = _signer(route).unsign_object(raw)
    except (BadSignature, ValueError, zlib.error) as error:
        raise _refused() from error
    # The signature says that this site wrote it, not that this version did.
    if not isinstance(key, list) or len(key) != parts or not all(map(_is_number, key)):
        raise _refused()
    return key


def _refused() -> Problem:
    return bad_field("cursor", "is not a cursor of this list", "Use the `next` of a page.")


def _is_number(part: Any) -> bool:
    """Whether it is a number that a column may hold; JSON has True and 1.5, too."""
    return type(part) is int and abs(part) < BIGINT


def make_cursor(route: str, *key: int) -> str:
    """Return the cursor of a page that begins after `key`. Its `route` names its shape, too."""
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
