"""Provide a site on which a tenant has rows of every kind, and requesters of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.test import Client
from django.utils import timezone

from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book, Transfer
from scheduling.engine.executors.local_files import jobs_root
from scheduling.models import Job, Message, Pool, Subscription
from scheduling.requests.simulations import SimulationRequest
from scheduling.services.simulations import request_simulation
from scheduling.services.sweeps import submit_sweep
from tenants.audit import Actor
from tenants.models import ApiToken, IdleOffer, Membership, SharingSetting, User
from tenants.tokens import Scope, create_token
from tests.factories import Cluster, cluster
from tests.functional.access_table import Route
from tests.functional.addresses import ask, bearer, is_api, session
from tests.functional.tenant_rows import request_quota
from tests.functional.trades import write_trade
from tests.functional.visitors import invite_guest

# A part of every name that is private to the owner's tenant.
CANARY = "canary"


@dataclass
class Stage:
    """The objects that URLs name, and all requesters."""

    words: dict[str, str]
    lab: Cluster
    secrets: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def client(self, actor: str, *, api: bool) -> Client:
        """Return an actor's client: with a session for pages, with a token for the API."""
        if actor != "nobody" and (api or actor == "reader"):
            return bearer(self.secrets[actor])
        if actor in self.sessions:
            return session(self.sessions[actor])
        return Client(raise_request_exception=False)

    def sign_in(self, actor: str) -> None:
        client = Client()
        client.force_login(User.objects.get(username=NAMES[actor]))
        self.sessions[actor] = client.cookies[settings.SESSION_COOKIE_NAME].value

    def simulate(self) -> int:
        """Request a simulation as the operator; return its number."""
        actor = Actor(User.objects.get(username=NAMES["operator"]))
        pool_id = self.lab.pool.pk
        wanted = SimulationRequest(policy="fifo", hours=6)
        asked = request_simulation(actor=actor, pool_id=pool_id, request=wanted)
        return asked.pk

    def ask(self, actor: str, method: str, address: str, route: Route) -> Any:
        """Send a request and roll back its changes."""
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


def matrix_stage() -> Stage:
    """Create the site: two pools, three tenants, and all requesters."""
    lab = busy_lab()
    elsewhere = cluster({"island": 4}, nodes=1)
    # No round becomes late during the test, which /readyz would report.
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
    secret(owner, f"{CANARY}-spare", Scope.READ)
    made.words = words_of(made)
    return made


def busy_lab() -> Cluster:
    """Create a pool of two tenants with rows of every kind."""
    lab = cluster({"canary-lab": 3, "south": 5}, visibility="own")
    lab.submit("canary-lab", 4, 40_000, command=["canary-program"])
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
    # From here on the pool's jobs are programs, which have logs.
    lab.pool.executor = "local"
    lab.pool.save(update_fields=["executor"])
    return lab


def subscription_of(made: Stage) -> dict[str, str]:
    """Subscribe the owner to messages; return the ids of the subscription and of a message."""
    owner = User.objects.get(username=NAMES["owner"])
    tenant, now = made.lab.tenants["canary-lab"], timezone.now()
    row = Subscription.objects.create(
        person=owner, tenant=tenant, channel="webhook", address="https://canary.example/canary",
        kinds=["job_ended"],
    )  # fmt: skip
    message = Message.objects.create(
        subscription=row, tenant=tenant, kind="test", event="test", at=now, due_at=now, state="sent"
    )
    return {"subscription": str(row.uid), "message": str(message.uid)}


def words_of(made: Stage) -> dict[str, str]:
    """Return values for placeholders of URLs: the tenant's objects, and those of its pool."""
    lab = made.lab
    tenant = lab.tenants["canary-lab"]
    job = Job.objects.filter(tenant=tenant).order_by("id")[0]
    manager, operator = (User.objects.get(username=NAMES[name]) for name in ("manager", "operator"))
    results = jobs_root() / str(job.pk) / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "output.txt").write_text("canary-output")
    return {
        "slug": "canary-lab",
        "pool": lab.pool.name,
        "job": str(job.uid),
        "sweep": sweep(lab, "canary-lab"),
        "token": str(ApiToken.objects.order_by("-id")[0].uid),
        **subscription_of(made),
        "transfer": str(Transfer.objects.filter(tenant=tenant)[0].pk),
        "simulation": str(made.simulate()),
        "round": "1",
        "trade": str(write_trade(lab, "canary-lab", "south").number),
        "window": "1",
        "node": "n0000",
        "gpu_type": "v100",
        "profile": lab.profile("canary-lab", "resnet", v100=1000).name,
        "offer": offer_idle(lab, "canary-lab"),
        "viewer": NAMES["mate"],
        "invitation": invite_guest(tenant, manager, CANARY),
        "quota_request": request_quota(lab, manager, operator, CANARY),
    }


def sweep(lab: Cluster, slug: str) -> str:
    """Submit a sweep of the tenant; return its id."""
    spec = {
        "pool": lab.pool.name, "gpus": 1, "name": "canary-sweep", "command": ["canary-program"],
        "array": "0-1%1",
    }  # fmt: skip
    made = submit_sweep(tenant=lab.tenants[slug], user=None, spec=spec, now=lambda _: lab.now())
    return str(made.row.uid)


def offer_idle(lab: Cluster, slug: str) -> str:
    """Allow the tenant to lend only by offers, and offer a GPU; return the offer's id."""
    of = {"tenant": lab.tenants[slug], "pool": lab.pool, "gpu_type": lab.gpu_type}
    SharingSetting.objects.create(**of, by_offer=True)
    owner = User.objects.get(username=NAMES["owner"])
    offer = IdleOffer.objects.create(
        **of, gpus=1, floor_price=Decimal(1), made_at=lab.at, made_by=owner
    )
    return str(offer.uid)


def secret(user: User, name: str, *scopes: Scope) -> str:
    return create_token(user=user, name=name, scopes=scopes, days=1, now=timezone.now())[1]
