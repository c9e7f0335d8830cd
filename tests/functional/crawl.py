"""Every address that can be looked at, by everybody: no answer may be a failure of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from django.db import transaction
from django.test import Client

from tests.functional.access_table import ASKED_FOR, TABLE
from tests.functional.addresses import fill, said, template_of, words_of

Words = Mapping[str, str]


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
            if "GET" not in route.methods or not words.keys() >= set(words_of(address, route)):
                continue
            path = fill(template_of(address, route), words)
            if path not in seen:
                seen.add(path)
                yield Look(state, address, path)


def failures(client: Callable[[str], Client], look: Look, roles: Iterable[str]) -> Iterator[str]:
    """What of an address is answered with a failure of the server, by role."""
    for role in roles:
        status = asked(client(role), look.path).status_code
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
