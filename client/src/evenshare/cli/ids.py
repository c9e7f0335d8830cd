"""Ids, of which people type the first characters, and the tenant that they may leave out."""

from __future__ import annotations

import re

from evenshare.errors import UsageError

from .api import Transport

PREFIX = re.compile(r"[0-9a-f-]{8,36}")


def find_id(client: Transport, text: str, path: str, noun: str) -> str:
    """Return the id of the object, in the list at `path`, whose id starts with `text`.

    A full id is returned unchanged, and so is any text with `--explain`.
    """
    wanted = text.lower()
    if not PREFIX.fullmatch(wanted):
        raise UsageError(f"{text!r} is not a {noun} id or its first 8 or more characters")
    if len(wanted) == 36 or client.explain is not None:
        return wanted
    ids = (str(row["id"]) for row in client.pages(path, None))
    matches = [one for one in ids if one.startswith(wanted)]
    if not matches:
        raise UsageError(f"{text} matches no {noun} id")
    if len(matches) > 1:
        raise UsageError(f"{text} begins {len(matches)} {noun}s' ids: give more characters")
    return matches[0]


def only_tenant(client: Transport) -> str:
    """Return your only tenant. Raises UsageError if you have several, or none."""
    quotas = client.get("/quotas/use")["results"]
    tenants = sorted({str(row["tenant"]) for row in quotas})
    if len(tenants) != 1:
        raise UsageError(f"--tenant: {' or '.join(tenants) or 'you have none'}")
    return tenants[0]
