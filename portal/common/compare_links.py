"""The address of the page that compares jobs."""

from collections.abc import Iterable
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

COMPARED_MAX = 20


def compare_url(uids: Iterable[UUID], *, name: str = "compare", **more: str) -> str:
    """Return the page that compares jobs, of which at most `COMPARED_MAX` are shown."""
    query = [("job", str(uid)) for uid in uids]
    return f"{reverse(name)}?{urlencode([*query, *more.items()])}"
