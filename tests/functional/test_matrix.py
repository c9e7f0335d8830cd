"""Test every URL x method x requester against the statuses of `tests/functional/access_table.py`.

The test has turns (`tests/functional/turns.py`). The first turn sends every method of the table as
the owner and as one or two others. Every other method is tried in one of the turns by one
requester.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

import pytest

from tests.functional.access_table import (
    ACTORS,
    AUDITOR_GETS,
    FINANCE_GETS,
    FOREIGN,
    KEPT,
    TABLE,
    Route,
)
from tests.functional.addresses import METHODS, routes, said
from tests.functional.matrix_stage import CANARY, Stage
from tests.functional.turns import TURNS, dealt

OTHER_GETS = {"finance": FINANCE_GETS, "auditor": AUDITOR_GETS}
# A user's own session, password and tokens, which each user may change, and the demo's front page.
OWN = (
    *("login/", "logout/", "account/", "demo/<slug:role>/", "language/"),
    *("api/v1/tokens", "t/<slug:slug>/jobs/filters/", "t/<slug:slug>/jobs/columns/"),
)
ANYBODY = ("owner", *FOREIGN)
IN_TURN = tuple(actor for actor in ACTORS if actor != "owner")


class TestTable:
    def test_matches_the_registered_routes(self) -> None:
        assert set(TABLE) == set(routes())

    def test_covers_every_openapi_operation(self) -> None:
        from portal.site.api import document

        for path, operations in document()["paths"].items():
            row = TABLE[re.sub(r"\{(\w+)\}", _converted, path.removeprefix("/"))]
            assert {method.upper() for method in operations} == set(row.methods), path


def _converted(found: re.Match[str]) -> str:
    kinds = {"number": "int", "path": "path", "username": "str"}
    kinds |= dict.fromkeys(("uid", "offer", "sweep"), "uuid")
    return f"<{kinds.get(found[1], 'slug')}:{found[1]}>"


Ask = tuple[str, Route, str, str]


def asked(turn: int) -> Iterator[Ask]:
    """Yield the requests of a turn.

    Over all turns, every requester sends all requests of the table.

    Only the owner or a stranger tries methods that a URL does not have, because they fail for every
    user.
    """
    for row, (address, route) in enumerate(TABLE.items()):
        for column, method in enumerate(METHODS):
            actors: Sequence[str]
            if method in route.methods:
                actors = (*(("owner",) if turn == 0 else ()), *dealt(IN_TURN, row, turn))
            elif method == "HEAD":
                actors = dealt(ANYBODY, row, turn)
            else:
                actors = ANYBODY[row % len(ANYBODY) :][: (row + column + turn) % TURNS == 0]
            yield from ((address, route, method, actor) for actor in actors)


def asked_in_all() -> list[Ask]:
    """Return the requests of all turns."""
    return [ask for turn in range(TURNS) for ask in asked(turn)]


def answered_wrongly(matrix: Stage, asks: Iterable[Ask]) -> Iterator[str]:
    """Yield answers with a wrong status, or with the tenant's data for a stranger."""
    own = {CANARY, *(matrix.words[name] for name in ("job", "transfer", "token"))}
    for address, route, method, actor in asks:
        answer = matrix.ask(actor, method, address, route)
        allowed = expected(route, method, actor)
        ask = f"{method} /{address} {actor}"
        if answer.status_code not in allowed:
            yield f"{ask}: {answer.status_code}, not {sorted(allowed)}"
        told = said(answer) if actor in FOREIGN else ""
        # An answer may repeat the request: the URL, or the login's `next`.
        if any(word in told for word in own) and not echoes(told, matrix, route):
            yield f"{ask}: tells of the tenant"


class TestAccess:
    @pytest.mark.parametrize("turn", range(TURNS))
    def test_every_role_receives_the_status_of_the_table(self, matrix: Stage, turn: int) -> None:
        wrong = list(answered_wrongly(matrix, asked(turn)))
        assert not wrong, "\n".join(wrong)

    @pytest.mark.soak
    def test_unsupported_methods_are_rejected(self, matrix: Stage) -> None:
        asks = [
            (address, route, method, actor)
            for address, route in TABLE.items()
            for method in METHODS
            for actor in (ACTORS if method == "HEAD" else ANYBODY)
            if method not in route.methods
        ]
        assert not list(answered_wrongly(matrix, asks))

    def test_owner_sees_the_canaries_hidden_from_strangers(self, matrix: Stage) -> None:
        looks = [(address, route) for address, route in TABLE.items() if "GET" in route.methods]
        # Few URLs show them; stop when there are enough.
        shown = (CANARY in said(matrix.ask("owner", "GET", *look)) for look in looks)
        assert list(islice(filter(None, shown), 20)) == [True] * 20

    def test_turns_cover_every_role_and_method(self) -> None:
        everything = [(address, method, actor) for address, _, method, actor in asked_in_all()]
        assert len(everything) == len(set(everything))
        for address, route in TABLE.items():
            for method in METHODS:
                actors = {
                    who for where, how, who in everything if (where, how) == (address, method)
                }
                if method in route.methods:
                    assert actors == set(ACTORS)
                else:
                    assert actors <= set(ANYBODY)
                    assert len(actors) == (len(ANYBODY) if method == "HEAD" else 1)
        # Each requester tries each missing method at some URL.
        absent = {(how, who) for where, how, who in everything if how not in TABLE[where].methods}
        assert absent >= set(product(METHODS, ANYBODY))

    @pytest.mark.parametrize("turn", range(TURNS))
    @pytest.mark.parametrize("actor", OTHER_GETS)
    def test_limits_changes_by_finance_and_auditors(
        self, matrix: Stage, actor: str, turn: int
    ) -> None:
        wrong = []
        for address, route in dealt(tuple(TABLE.items()), 0, turn):
            for method in route.methods:
                answer = matrix.ask(actor, method, address, route)
                asked = f"{method} /{address}: {answer.status_code}"
                if method == "GET":
                    expects = OTHER_GETS[actor].get(address, route.methods["GET"].operator)
                    if answer.status_code != expects:
                        wrong.append(f"{asked}, not {expects}")
                elif address in KEPT and actor == "finance":
                    if answer.status_code != route.methods[method].operator:
                        wrong.append(f"{asked}, not as to an operator")
                elif not address.startswith(OWN) and answer.status_code not in (400, 403, 404):
                    wrong.append(f"{asked}, not refused")
        assert not wrong, "\n".join(wrong)


def echoes(told: str, matrix: Stage, route: Route) -> bool:
    """Return whether the answer has no private value except those of the request itself."""
    for word in sorted(matrix.words.values(), key=len, reverse=True):
        told = told.replace(word, "")
    if isinstance(route.body, dict) and "username" in route.body:
        told = told.replace(route.body["username"], "")
    return CANARY not in told


def expected(route: Route, method: str, actor: str) -> set[int]:
    """Return the statuses that the table allows."""
    row = route.methods.get(method)
    if method == "HEAD":
        row = route.methods.get("GET")
    if row is not None:
        return {getattr(row, actor)}
    # A missing method must reveal nothing: it is refused, or redirected to the log-in.
    refused = set(route.others)
    if any(getattr(known, actor) == 404 for known in route.methods.values()):
        refused.add(404)  # a hidden URL returns 404 for any method
    if actor in ("nobody", "reader"):
        refused |= {302, 401}
    if method == "OPTIONS":
        refused |= {200, 302}
    return refused
