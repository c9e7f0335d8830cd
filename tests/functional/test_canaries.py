"""Test that no URL shows another tenant's data; two tenants each have rows of every kind."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from django.db import transaction

from scheduling.models import Job, Pool, Profile, Simulation
from tenants import scopes
from tenants.models import ApiToken, IdleOffer, Membership, PriceLimit, Quota, SharingSetting, User
from tests.factories import Cluster
from tests.functional.access_table import ASKED_FOR, TABLE, Route
from tests.functional.addresses import UNSAFE, bearer, is_api, said, send, session, words_of
from tests.functional.canaries import (
    NOT_ITS_OWN,
    OWNED,
    SHARED,
    canaries,
    own_tables,
    strange_ids,
    strange_incomes,
    text_fields,
    texts,
    values,
)
from tests.functional.two_tenants import Pair, Side

# Only for clients on the same machine and holders of its token; it has totals over all tenants.
OF_THE_SITE = ("metrics",)
LOOKS = tuple(
    (address, route)
    for address, route in (*TABLE.items(), *ASKED_FOR)
    if "GET" in route.methods and address not in OF_THE_SITE
)
# Numbers and names of every pool, and transfers of both tenants.
EVERYBODYS = {"round", "gpu_type", "lent", "lent_too"}
PARTS_OF_POOLS = {"simulation", "trade", "window", "node"}
NOTHING = {
    "slug": "nobody-lab",
    "pool": "no-pool",
    "job": "00000000-0000-4000-8000-000000000000",
    "sweep": "00000000-0000-4000-8000-000000000000",
    "subscription": "00000000-0000-4000-8000-000000000000",
    "message": "00000000-0000-4000-8000-000000000000",
    "token": "00000000-0000-4000-8000-000000000000",
    "transfer": "00000000-0000-4000-8000-000000000000",
    "simulation": "987654",
    "trade": "987654",
    "window": "987654",
    "node": "no-node",
    "profile": "no-net",
    "offer": "00000000-0000-4000-8000-000000000000",
    "quota_request": "00000000-0000-4000-8000-000000000000",
    "username": "nobody",
    "viewer": "nobody",
    "invitation": "00000000-0000-4000-8000-000000000000",
}


@pytest.fixture(autouse=True)
def _no_second_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch row level security off, because these tests check the filters."""
    monkeypatch.setattr(scopes, "_array", lambda _: scopes.SITE)


def ask(asker: Side, method: str, address: str, route: Route, words: Mapping[str, str]) -> Any:
    """Send a request with a session for pages, with a token for the API."""
    client = bearer(asker.secret) if is_api(address) else session(asker.session)
    return send(client, method, address, route, words)


def own_words(
    side: Side, address: str, route: Route, labs: Sequence[Cluster]
) -> list[dict[str, str]]:
    """Return a tenant's values for a URL's placeholders, for each of `labs` if the URL has a pool.

    Simulations, windows and named nodes belong to the pool that only this tenant has.
    """
    named = set(words_of(address, route))
    if named & PARTS_OF_POOLS:
        labs = [side.alone]
    elif not named & {"pool", "round"}:
        labs = labs[:1]
    return [side.words_in(lab) for lab in labs]


# Examples of the API are recorded answers, whose values may occur here too.
EXAMPLES = frozenset({"api/v1/schema", "api/v1/docs/<slug:resource>"})


class TestCanaryStage:
    def test_every_table_is_classified_as_owned_or_shared(self) -> None:
        assert own_tables() == {*OWNED, *SHARED}

    def test_every_owned_table_has_canaries_of_both_tenants(self, pair: Pair) -> None:
        missing = []
        for side, model in product((pair.one, pair.two), OWNED):
            if not values(model, side, "pk"):
                missing.append(f"{model.__name__}: no row of {side.word}")
            for column in text_fields(model):
                name = f"{model.__name__}.{column}"
                found = {text for value in values(model, side, column) for text in texts(value)}
                if name not in NOT_ITS_OWN and side.word not in " ".join(found).lower():
                    missing.append(f"{name}: no text of {side.word}")
        assert not missing, "\n".join(missing)


class TestUrls:
    def test_every_url_declares_its_tenant_fields(self) -> None:
        unsaid = [address for address, route in LOOKS if route.shows is None]
        assert not unsaid, f"say with `showing` which fields of a tenant these show: {unsaid}"

    @pytest.mark.parametrize(
        ("visibility", "turn"), [("own", 0), ("own", 1), ("pseudonyms", 0), ("full", 1)]
    )
    def test_show_own_values_and_nothing_of_the_other_tenant(
        self, pair: Pair, visibility: str, turn: int
    ) -> None:
        """Each tenant requests every second URL, in the other turn the other URLs."""
        Pool.objects.update(visibility=visibility)
        wrong = [
            line
            for place, (me, other) in enumerate(pair.sides)
            for line in looked(pair, (me, other), LOOKS[(place + turn) % 2 :: 2], visibility)
        ]
        assert not wrong, "\n".join(wrong)

    def test_objects_of_the_other_tenant_look_missing(self, pair: Pair) -> None:
        """Objects of the other tenant, by id, name or parent, are neither shown nor changed."""
        me, other = pair.one, pair.two
        hidden, state, tried, wrong = strange_ids(me, other), state_of(other), 0, []
        for (address, route), asker in product((*TABLE.items(), *ASKED_FOR), (me, pair.operator)):
            (words,) = own_words(me, address, route, me.pools[:1])
            for strange in strangers(address, route, is_operator=asker is not me):
                for method in route.methods:
                    tried += 1
                    mixed = Mixed(asker, method, address, route, words, other, strange)
                    wrong += mixed.complaints(hidden if asker is me else (), state)
        assert not wrong, "\n".join(wrong)
        assert tried > 100


def looked(
    pair: Pair, sides: tuple[Side, Side], urls: Sequence[tuple[str, Route]], visibility: str
) -> list[str]:
    """Return the faults in the answers of the first of two sides at these URLs.

    Its own pool is requested once, because visibility does not change that pool.
    """
    me, other = sides
    hidden, own, wrong = strange_ids(me, other), canaries(me), []
    labs = me.pools[:-1]
    if visibility == Pool.Visibility.OWN:
        labs, incomes = me.pools, strange_incomes(me, other)
        assert incomes, "nothing is earned of a third"
        hidden |= incomes
    for address, route in urls:
        row, unseen = route.methods["GET"], set(route.shows or ())
        for words in own_words(me, address, route, labs):
            answer = ask(me, "GET", address, route, words)
            asked = f"GET /{address} {route.query} {me.word} {words['pool']}"
            if answer.status_code != row.manager:
                wrong.append(f"{asked}: {answer.status_code}, not {row.manager}")
            text = "" if address in EXAMPLES else said(answer)
            found = leaks(text, other, hidden, visibility)
            wrong += [f"{asked}: tells {one}" for one in found]
            if row.manager != 200 and row.operator == 200 and unseen:
                answer = ask(pair.operator, "GET", address, route, words)
            unseen -= shown(said(answer), own, unseen)
        if visibility == Pool.Visibility.OWN:
            wrong += [f"/{address}: {me.word} does not see {name}" for name in sorted(unseen)]
    return wrong


def shown(text: str, own: Mapping[str, set[str]], fields: Collection[str]) -> set[str]:
    """Return the fields that have a value in an answer."""
    read = html.unescape(text)
    return {name for name in fields if any(value in read for value in own[name])}


def leaks(text: str, other: Side, hidden: Collection[str], visibility: str) -> list[str]:
    """Return the private values of the other tenant in an answer."""
    read = html.unescape(text)
    found = [value for value in sorted(hidden) if value in read]
    if other.word in read.lower():
        at = read.lower().index(other.word)
        found.append(repr(read[max(0, at - 60) : at + 60]))
    if visibility != Pool.Visibility.FULL:
        found += [name for name in (other.name, other.initials) if name in read]
    return found


def strangers(address: str, route: Route, *, is_operator: bool) -> Iterator[set[str]]:
    """Return the sets of placeholders for the other tenant's values: each one, and all together.

    Operators may see both tenants' objects, but not an object of one as part of the other.
    """
    named = set(words_of(address, route)) - EVERYBODYS
    if is_operator:
        parts = named & PARTS_OF_POOLS if "pool" in named else set()
        yield from ({name} for name in sorted(parts))
        return
    yield from ({name} for name in sorted(named))
    if len(named) > 1:
        yield named


@dataclass(frozen=True)
class Mixed:
    """A request in which some values are those of the other tenant."""

    asker: Side
    method: str
    address: str
    route: Route
    words: Mapping[str, str]
    other: Side
    strange: Collection[str]

    @property
    def theirs(self) -> dict[str, str]:
        """Return its values of the other tenant."""
        known = self.other.words_in(self.other.alone)
        return {name: known[name] for name in self.strange}

    def ask(self, words: Mapping[str, str]) -> tuple[Any, list[Any]]:
        """Return the answer, and the other tenant's state after it; roll back all changes."""
        with transaction.atomic():
            answer = ask(self.asker, self.method, self.address, self.route, {**self.words, **words})
            state = state_of(self.other) if self.method in UNSAFE else []
            transaction.set_rollback(True)
        return answer, state

    def complaints(self, hidden: Collection[str], state: list[Any]) -> list[str]:
        """Return the answer's faults; `hidden` is empty if the requester may see both tenants."""
        answer, after = self.ask(self.theirs)
        nothing, _ = self.ask({name: NOTHING[name] for name in self.strange})
        about = f"{self.method} /{self.address} {self.route.query} as {self.asker.word}"
        asked = f"{about} with the other's {sorted(self.strange)}"
        wrong = []
        if answer.status_code != nothing.status_code:
            wrong.append(f"{asked}: {answer.status_code}; of nothing: {nothing.status_code}")
        if after not in ([], state):
            wrong.append(f"{asked}: changes what is the other's")
        # An answer may repeat the values that the request contained.
        text = said(answer) if hidden else ""
        for word in sorted(self.theirs.values(), key=len, reverse=True):
            text = text.replace(word, "")
        found = leaks(text, self.other, hidden, Pool.Visibility.FULL)
        return wrong + [f"{asked}: tells {one}" for one in found]


def state_of(side: Side) -> list[Any]:
    """Return the part of a tenant's state that requests can change."""
    rows = (
        Job.objects.filter(tenant=side.tenant).values_list("id", "state", "version", "quarantine"),
        Profile.objects.filter(tenant=side.tenant).values_list("id", "name", "speedups"),
        Quota.objects.filter(tenant=side.tenant).values_list("id", "gpus", "valid_until"),
        SharingSetting.objects.filter(tenant=side.tenant).values_list("id", "mode", "by_offer"),
        PriceLimit.objects.filter(tenant=side.tenant).values_list("id", "max_price"),
        IdleOffer.objects.filter(tenant=side.tenant).values_list("id", "revoked_at"),
        Membership.objects.filter(tenant=side.tenant).values_list("id", "user_id", "role"),
        User.objects.filter(memberships__tenant=side.tenant).values_list("id", "is_active"),
        ApiToken.objects.filter(user__memberships__tenant=side.tenant).values_list("id", "name"),
        Simulation.objects.filter(pool=side.alone.pool).values_list("id", "state"),
        side.alone.pool.windows.values_list("id", "ends_at"),
        side.alone.pool.nodes.values_list("id", "state"),
    )
    return [list(one.order_by("id")) for one in rows]
