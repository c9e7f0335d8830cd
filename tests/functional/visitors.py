"""Provide requesters: owner, team-mate, outsider, operator, auditor, and one not signed in."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduling.engine.clock import wall_now
from scheduling.models import Job, PoolClock
from tenants.audit import Actor
from tenants.models import Membership, Tenant, User
from tenants.requests import InvitationRequest
from tenants.services.invitations import invite
from tests.factories import Cluster, cluster

Role = Membership.Role


@dataclass
class Town:
    """Two tenants that share a pool, a third with another pool, and a client for each."""

    cluster: Cluster
    elsewhere: Cluster
    owner: Client
    mate: Client
    neighbour: Client
    outsider: Client
    operator: Client
    nobody: Client

    @property
    def tenant(self) -> Tenant:
        """The tenant of the owner and the team-mate."""
        return self.cluster.tenants["north"]

    def submit(self, gpus: int = 1, duration_s: int = 3600, tenant: str = "north") -> Job:
        return self.cluster.submit(tenant, gpus, duration_s)

    def play(self, rounds: int = 1, *, every_s: int = 10) -> None:
        """Run rounds, and set the pool's clock to the last one."""
        for _ in range(rounds):
            self.cluster.round(after_s=every_s)
        PoolClock.objects.filter(pool=self.cluster.pool).update(
            anchor_pool=self.cluster.at, anchor_wall=wall_now()
        )


def town() -> Town:
    """Create the tenants and the people, without jobs."""
    here = cluster({"north": 4, "south": 4})
    elsewhere = cluster({"island": 4})
    north, south, island = here.tenants["north"], here.tenants["south"], elsewhere.tenants["island"]
    return Town(
        cluster=here,
        elsewhere=elsewhere,
        owner=visitor("ada", north, Role.MEMBER),
        mate=visitor("bea", north, Role.VIEWER),
        neighbour=visitor("cem", south, Role.MANAGER),
        outsider=visitor("dag", island, Role.MANAGER),
        operator=visitor("eve", site_role=User.SiteRole.OPERATOR),
        nobody=Client(),
    )


def visitor(
    name: str,
    tenant: Tenant | None = None,
    role: Role = Role.MEMBER,
    site_role: User.SiteRole = User.SiteRole.NONE,
) -> Client:
    """Return a client that is signed in as a new person."""
    user = User.objects.create(username=name, site_role=site_role)
    if tenant is not None:
        Membership.objects.create(user=user, tenant=tenant, role=role)
    return signed_in(user)


def signed_in(user: User) -> Client:
    """Return a client with a session, written directly because `force_login` writes three times."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = str(session.session_key)
    return client


def invite_guest(tenant: Tenant, manager: User, word: str) -> str:
    """Invite the holder of a link; return the invitation's id."""
    request = InvitationRequest(role="viewer", note=f"{word}-guest")
    made, _ = invite(actor=Actor(manager), tenant=tenant, request=request, now=timezone.now())
    return str(made.uid)


def reads(client: Client, path: str) -> list[str]:
    """Return the reading queries of a page that is requested again, except those for scopes."""
    assert client.get(path).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        client.get(path)
    found = [query["sql"].lstrip() for query in queries]
    return [
        sql for sql in found if sql.startswith(("SELECT", "WITH")) and "evenshare.scope" not in sql
    ]
