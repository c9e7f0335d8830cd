"""Send GET to every URL with every role; no answer may be a server error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.test import Client

from tests.functional.access_table import ASKED_FOR, TABLE
from tests.functional.addresses import fill, is_api, said, template_of, words_of

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


class Clients(Protocol):
    """A function that returns the client of a role."""

    def __call__(self, role: str, *, api: bool) -> Client: ...


def failures(client: Clients, look: Look, roles: Iterable[str]) -> Iterator[str]:
    """Yield the server errors of a URL, by role."""
    for role in roles:
        status = asked(client(role, api=is_api(look.address)), look.path).status_code
        if status >= 500:
            yield f"{status} {look.path} ({look.state}, {role})"


def asked(client: Client, path: str) -> Any:
    """Return the complete answer, even if it is a server error; roll back its changes."""
    client.raise_request_exception = False
    with transaction.atomic():
        answer = client.get(path)
        said(answer)
        transaction.set_rollback(True)
    return answer
