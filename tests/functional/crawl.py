"""Every address that can be looked at, by everybody: no answer may be a failure of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.test import Client

from tests.functional.access_table import ASKED_FOR, TABLE
from tests.functional.addresses import fill, is_api, said, template_of, words_of

Words = Mapping[str, str]
# It answers 503 when rounds stop, which is what it is for.
NO_PAGES = frozenset({"readyz"})


class Look(NamedTuple):
    """One address of one state, by its pattern and as it is asked for."""

    state: str
    address: str
    path: str


def looks(states: Mapping[str, Words]) -> Iterator[Look]:
    """All addresses of the access table, filled with the words of each state.

    What a state has no word for is left out, and so is an address that another state asked for
    already: lists of the whole site are looked at once.
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
    """How somebody asks, by their role."""

    def __call__(self, role: str, *, api: bool) -> Client: ...


def failures(client: Clients, look: Look, roles: Iterable[str]) -> Iterator[str]:
    """What of an address is answered with a failure of the server, by role."""
    for role in roles:
        status = asked(client(role, api=is_api(look.address)), look.path).status_code
        if status >= 500:
            yield f"{status} {look.path} ({look.state}, {role})"


def asked(client: Client, path: str) -> Any:
    """The answer, read to its end; whatever it noted is taken back. A failure is an answer, too."""
    client.raise_request_exception = False
    with transaction.atomic():
        answer = client.get(path)
        said(answer)
        transaction.set_rollback(True)
    return answer
