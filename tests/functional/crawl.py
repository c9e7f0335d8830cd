"""The URLs of the access table in each state of a site, and requests that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from django.db import transaction
from django.test import Client

from tests.functional.access_table import ASKED_FOR, TABLE
from tests.functional.addresses import fill, said, template_of, words_of

Words = Mapping[str, str]
# This probe answers 503 by design if rounds stop.
NO_PAGES = frozenset({"readyz"})


class Look(NamedTuple):
    """A URL in one state of the site: its pattern, and the path to request."""

    state: str
    address: str
    path: str


def looks(states: Mapping[str, Words]) -> Iterator[Look]:
    """Yield all URLs of the access table, with each state's values for their placeholders.

    URLs for which a state lacks a value are left out. A repeated path, such as a list of the whole
    site, is requested once.
    """
    seen: set[str] = set()
    for state, words in states.items():
        for address, route in (*TABLE.items(), *ASKED_FOR):
            if (
                "GET" not in route.methods
                or address in NO_PAGES
                or not words.keys() >= set(words_of(address, route))
            ):
                continue
            path = fill(template_of(address, route), words)
            if path not in seen:
                seen.add(path)
                yield Look(state, address, path)


def asked(client: Client, path: str) -> Any:
    """Return the complete answer, even if it is a server error; roll back its changes."""
    client.raise_request_exception = False
    with transaction.atomic():
        answer = client.get(path)
        said(answer)
        transaction.set_rollback(True)
    return answer
