"""Every address x method x person, as `tests/functional/access_table.py` says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book, Transfer
from scheduling.models import Job, Pool
from scheduling.requests.simulations import SimulationRequest
from scheduling.services.simulations import request_simulation
from tenants.audit import Actor
from tenants.models import ApiToken, IdleOffer, Membership, SharingSetting, User
from tenants.tokens import Scope, create_token
from tests.factories import Cluster, cluster
from tests.functional.access_table import (
    ACTORS,
    AUDITOR_GETS,
    FINANCE_GETS,
    FOREIGN,
    KEPT,
    TABLE,
    Route,
)
from tests.functional.addresses import METHODS, ask, bearer, is_api, routes, said, session
from tests.functional.trades import write_trade

# Stands in every name that is the owner's tenant's alone.
CANARY = "canary"


@dataclass
class Stage:
    """What the addresses are about, and everybody who asks."""

    words: dict[str, str]
    lab: Cluster
    secrets: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def client(self, actor: str, *, api: bool) -> Client:
        """How an actor asks: by session for pages, by token for the API."""
        if actor != "nobody" and (api or actor == "reader"):
            return bearer(self.secrets[actor])
        if actor in self.sessions:
            return session(self.sessions[actor])
        return Client(raise_request_exception=False)

    def sign_in(self, actor: str) -> None:
        """Begin the session that all pages of an actor are asked with."""
        client = Client()
        client.force_login(User.objects.get(username=NAMES[actor]))
        self.sessions[actor] = client.cookies[settings.SESSION_COOKIE_NAME].value

    def simulate(self) -> int:
        """Ask for a simulation as the operator; return its number."""
        actor = Actor(User.objects.get(username=NAMES["operator"]))
        pool_id = self.lab.pool.pk
        wanted = SimulationRequest(policy="fifo", hours=6)
        asked = request_simulation(actor=actor, pool_id=pool_id, request=wanted)
        return asked.pk

    def ask(self, actor: str, method: str, address: str, route: Route) -> Any:
        """Ask, and take back whatever it changed."""
        client = self.client(actor, api=is_api(address))
        return ask(client, method, address, route, self.words)


NAMES = {
    "owner": "canaryada",
    "mate": "canarybea",
    "manager": "canarycleo",
    "neighbour": "ned",
    "outsider": "olga",
    "operator": "otto",
    "finance": "fin",
    "auditor": "aud",
}
SITE_ROLES = {name: User.SiteRole(name) for name in ("operator", "finance", "auditor")}
OTHER_GETS = {"finance": FINANCE_GETS, "auditor": AUDITOR_GETS}
# One's own session, password and tokens, which are everybody's to change; and a front door.
OWN = ("login/", "logout/", "account/", "demo/<slug:role>/", "api/v1/tokens")


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Stage:
    request.getfixturevalue("committed_db")
    lab = cluster({"canary-lab": 3, "south": 5}, visibility="own")
    mine = lab.submit("canary-lab", 4, 40_000, command=["canary-program"])
    lab.submit("south", 1, 40_000)
    lab.round()
    lab.submit("canary-lab", 8, 40_000)
    for _ in range(10):
        lab.round(after_s=900)
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    lab.seal()
    log_transfers(Book.objects.get(slug=lab.pool.book))
    Job.objects.filter(tenant=lab.tenants["canary-lab"]).update(name="canary-job")
    # From here on its jobs are programs, which have logs.
    lab.pool.executor = "local"
    lab.pool.save(update_fields=["executor"])
    elsewhere = cluster({"island": 4}, nodes=1)
    # No round is missed, however long the asking takes: /readyz would say so.
    Pool.objects.update(round_s=86_400)
    role = Membership.Role
    memberships = {
        "owner": (lab.tenants["canary-lab"], role.MEMBER),
        "mate": (lab.tenants["canary-lab"], role.VIEWER),
        "manager": (lab.tenants["canary-lab"], role.MANAGER),
        "neighbour": (lab.tenants["south"], role.MANAGER),
        "outsider": (elsewhere.tenants["island"], role.MANAGER),
        **dict.fromkeys(SITE_ROLES),
    }
    made = Stage({}, lab)
    for actor, membership in memberships.items():
        site_role = SITE_ROLES.get(actor, User.SiteRole.NONE)
        user = User.objects.create(username=NAMES[actor], site_role=site_role)
        if membership is not None:
            Membership.objects.create(user=user, tenant=membership[0], role=membership[1])
        made.secrets[actor] = secret(user, f"{NAMES[actor]}-token", *Scope)
        made.sign_in(actor)
    owner = User.objects.get(username=NAMES["owner"])
    made.secrets["reader"] = secret(owner, "reader", Scope.READ)
    spare = secret(owner, f"{CANARY}-spare", Scope.READ)
    made.words = {
        "slug": "canary-lab",
        "pool": lab.pool.name,
        "job": str(mine.uid),
        "token": str(ApiToken.objects.order_by("-id")[0].uid),
        "transfer": str(Transfer.objects.filter(tenant=lab.tenants["canary-lab"])[0].pk),
        "simulation": str(made.simulate()),
        "round": "1",
        "trade": str(write_trade(lab, "canary-lab", "south").number),
        "window": "1",
        "node": "n0000",
        "gpu_type": "v100",
        "profile": lab.profile("canary-lab", "resnet", v100=1000).name,
        "offer": offer_idle(lab, "canary-lab"),
    }
    assert spare
    return made


def offer_idle(lab: Cluster, slug: str) -> str:
    """Let the tenant lend by offers alone, and offer a GPU; the offer's id."""
    of = {"tenant": lab.tenants[slug], "pool": lab.pool, "gpu_type": lab.gpu_type}
    SharingSetting.objects.create(**of, by_offer=True)
    owner = User.objects.get(username=NAMES["owner"])
    offer = IdleOffer.objects.create(
        **of, gpus=1, floor_price=Decimal(1), made_at=lab.at, made_by=owner
    )
    return str(offer.uid)


def secret(user: User, name: str, *scopes: Scope) -> str:
    """Make a token."""
    return create_token(user=user, name=name, scopes=scopes, days=1, now=timezone.now())[1]


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


class TestEveryAddress:
    def test_gives_everybody_what_the_table_says_and_strangers_nothing(self, stage: Stage) -> None:
        own = {CANARY, *(stage.words[name] for name in ("job", "transfer", "token"))}
        wrong, shown = [], 0
        for address, route in TABLE.items():
            for method, actor in product(METHODS, ACTORS):
                if method not in (*route.methods, "HEAD") and actor not in ("owner", *FOREIGN):
                    continue  # a method that is not there is not there for anybody
                answer = stage.ask(actor, method, address, route)
                allowed = expected(route, method, actor)
                asked = f"{method} /{address} {actor}"
                if answer.status_code not in allowed:
                    wrong.append(f"{asked}: {answer.status_code}, not {sorted(allowed)}")
                shown += actor == "owner" and CANARY in said(answer)
                told = said(answer) if actor in FOREIGN else ""
                # An answer may repeat what the asker wrote: the address, the login's next.
                if any(word in told for word in own) and not echoes(told, stage, route):
                    wrong.append(f"{asked}: tells of the tenant")
        assert not wrong, "\n".join(wrong)
        assert shown > 20, "the owner does not see the canaries that strangers must not"

    @pytest.mark.parametrize("actor", OTHER_GETS)
    def test_lets_the_other_roles_for_the_site_look_and_change_what_is_theirs_alone(
        self, stage: Stage, actor: str
    ) -> None:
        wrong = []
        for address, route in TABLE.items():
            for method in route.methods:
                answer = stage.ask(actor, method, address, route)
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


def echoes(told: str, stage: Stage, route: Route) -> bool:
    """Whether nothing is left once the asker's own words are taken out."""
    for word in sorted(stage.words.values(), key=len, reverse=True):
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
