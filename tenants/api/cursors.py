"""The cursors that mark the start of a list's next page.

They are signed, so a forged cursor gets a 400.
"""

import zlib
from typing import Any

from django.core.signing import BadSignature, Signer
from rest_framework.request import Request

from tenants.api.problems import Problem, bad_field

LIMIT, LIMIT_MAX = 50, 200
BIGINT = 2**63


def read_cursor(request: Request, route: str, *, parts: int = 1) -> list[int] | None:
    """Return the key of `parts` numbers in the request's `cursor`, or None on the first page.

    Raises:
        Problem: the cursor is from another list, or from an earlier version of this list.
    """
    raw = request.query_params.get("cursor", "")
    if not raw:
        return None
    try:
        key = _signer(route).unsign_object(raw)
    except (BadSignature, ValueError, zlib.error) as error:
        raise _refused() from error
    # The signature proves that this site wrote the cursor, but not that this version did.
    if not isinstance(key, list) or len(key) != parts or not all(map(_is_number, key)):
        raise _refused()
    return key


def _refused() -> Problem:
    return bad_field("cursor", "is not a cursor of this list", "Use the `next` of a page.")


def _is_number(part: Any) -> bool:
    """Return whether a value is a number that fits a column; JSON also has True and 1.5."""
    return type(part) is int and abs(part) < BIGINT


def make_cursor(route: str, *key: int) -> str:
    """Return the cursor of a page that starts after `key`.

    `route` identifies the list and the format of its keys.
    """
    return _signer(route).sign_object(list(key))


def read_limit(request: Request) -> int:
    """Return the number of rows of a page, by default `LIMIT`.

    Raises:
        Problem: it is not a whole number from 1 to `LIMIT_MAX`.
    """
    raw = request.query_params.get("limit", str(LIMIT))
    is_number = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(LIMIT_MAX))
    if not is_number or not 1 <= int(raw) <= LIMIT_MAX:
        raise bad_field("limit", f"must be from 1 to {LIMIT_MAX}")
    return int(raw)


def _signer(route: str) -> Signer:
    return Signer(salt=f"evenshare.cursor.{route}")
