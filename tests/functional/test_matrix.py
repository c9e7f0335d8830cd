"""Every address x method x person, as `tests/functional/access_table.py` says.

In turns (`tests/functional/turns.py`): the first one asks with every method of the table as the
owner and as every stranger, and as one of the others; with every other method as somebody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
# One's own session, password and tokens, which are everybody's to change; and a front door.
OWN = ("login/", "logout/", "account/", "demo/<slug:role>/", "api/v1/tokens")
ALWAYS = ("owner", *FOREIGN)
IN_TURN = tuple(actor for actor in ACTORS if actor not in ALWAYS)


class TestTheTable:
    def test_has_a_row_for_every_address_and_no_other(self) -> None:
        assert set(TABLE) == set(routes())

    def test_has_a_row_for_every_operation_of_the_schema(self) -> None:
        from portal.site.api import document

        for path, operations in document()["paths"].items():
            row = TABLE[re.sub(r"\{(\w+)\}", _converted, path.removeprefix("/"))]
            assert {method.upper() for method in operations} == set(row.methods), path


def _converted(found: re.Match[str]) -> str:
    kinds = {"uid": "uuid", "offer": "uuid", "number": "int"}
    return f"<{kinds.get(found[1], 'slug')}:{found[1]}>"


def asked(turn: int) -> Iterator[tuple[str, Route, str, str]]:
    """Who asks with which method in a turn; over all of them everybody with all.

    A method that is not there is not there for anybody: the owner and strangers try it.
    """
    for row, (address, route) in enumerate(TABLE.items()):
        for column, method in enumerate(METHODS):
            actors: Sequence[str]
            if method in route.methods:
                actors = (*(ALWAYS if turn == 0 else ()), *dealt(IN_TURN, row, turn))
            else:
                actors = dealt(ACTORS if method == "HEAD" else ALWAYS, row + column, turn)
            yield from ((address, route, method, actor) for actor in actors)


class TestEveryAddress:
    @pytest.mark.parametrize("turn", range(TURNS))
    def test_gives_everybody_what_the_table_says_and_strangers_nothing(
        self, matrix: Stage, turn: int
    ) -> None:
        own = {CANARY, *(matrix.words[name] for name in ("job", "transfer", "token"))}
        wrong, shown = [], 0
        for address, route, method, actor in asked(turn):
            answer = matrix.ask(actor, method, address, route)
            allowed = expected(route, method, actor)
            ask = f"{method} /{address} {actor}"
            if answer.status_code not in allowed:
                wrong.append(f"{ask}: {answer.status_code}, not {sorted(allowed)}")
            shown += actor == "owner" and CANARY in said(answer)
            told = said(answer) if actor in FOREIGN else ""
            # An answer may repeat what the asker wrote: the address, the login's next.
            if any(word in told for word in own) and not echoes(told, matrix, route):
                wrong.append(f"{ask}: tells of the tenant")
        assert not wrong, "\n".join(wrong)
        assert shown > 20 or turn > 0, "the owner does not see the canaries that strangers must not"

    def test_is_asked_by_everybody_with_every_method_in_one_turn_or_another(self) -> None:
        everything = [
            (address, method, actor)
            for turn in range(TURNS)
            for address, _, method, actor in asked(turn)
        ]
        assert len(everything) == len(set(everything))
        for address, route in TABLE.items():
            for method in METHODS:
                actors = ACTORS if method in (*route.methods, "HEAD") else ALWAYS
                assert {(address, method, actor) for actor in actors} <= set(everything)

    @pytest.mark.parametrize("actor", OTHER_GETS)
    def test_lets_the_other_roles_for_the_site_look_and_change_what_is_theirs_alone(
        self, matrix: Stage, actor: str
    ) -> None:
        wrong = []
        for address, route in TABLE.items():
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
    """Whether nothing is left once the asker's own words are taken out."""
    for word in sorted(matrix.words.values(), key=len, reverse=True):
        told = told.replace(word, "")
    if isinstance(route.body, dict) and "username" in route.body:
        told = told.replace(route.body["username"], "")
    return CANARY not in told


def expected(route: Route, method: str, actor: str) -> set[int]:
    """Statuses that the table allows."""
    row = route.methods.get(method)
    if method == "HEAD":
        row = route.methods.get("GET")
    if row is not None:
        return {getattr(row, actor)}
    # Asking with a method that is not there tells nothing: refused, or sent to sign in first.
    refused = set(route.others)
    if any(getattr(known, actor) == 404 for known in route.methods.values()):
        refused.add(404)  # what is not there for somebody is so with any method
    if actor in ("nobody", "reader"):
        refused |= {302, 401}
    if method == "OPTIONS":
        refused |= {200, 302}
    return refused
