"""Provide two pools with clocks years apart, shared by two tenants, with users of every role.

The first pool replays a Friday of 2017 at sixty times wall time; the second one is in wall time.
Their times cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib.auth.hashers import make_password
from django.test import Client

from billing.metering import meter_pool, settle_pool
from billing.models import Book
from scheduling.engine.clock import PoolNow, wall_now
from scheduling.engine.rounds import execute_round
from scheduling.models import Job, Pool, PoolClock
from scheduling.requests.simulations import SimulationRequest
from scheduling.services.simulations import request_simulation
from tenants.audit import Actor
from tenants.models import Membership, User
from tests.factories import Cluster, cluster
from tests.scope import nobody

REPLAYED = datetime(2017, 10, 20, 12, tzinfo=UTC)
SCALE = 60
PASSWORD = "a long enough password"
Role = Membership.Role
# Name -> tenant with role, or site role.
PEOPLE: dict[str, tuple[str, Role] | User.SiteRole] = {
    "vera": ("north", Role.VIEWER),
    "mo": ("north", Role.MEMBER),
    "mag": ("north", Role.MANAGER),
    "finn": User.SiteRole.FINANCE,
    "oda": User.SiteRole.OPERATOR,
    "aud": User.SiteRole.AUDITOR,
}


@dataclass
class TwoClocks:
    """The pools with their tenants north and south."""

    replayed: Cluster
    present: Cluster

    @property
    def labs(self) -> tuple[Cluster, Cluster]:
        """Return both pools, the older one first."""
        return self.replayed, self.present

    def client(self, who: str) -> Client:
        client = Client()
        client.force_login(User.objects.get(username=who))
        return client

    def page(self, who: str, path: str) -> str:
        answer = self.client(who).get(path)
        assert answer.status_code == 200, f"{path} for {who}: {answer.status_code}"
        return str(answer.content.decode())


def two_clocks() -> TwoClocks:
    """Create the pools with running, queued and ended jobs, and settled hours in both books."""
    made = TwoClocks(_lab(REPLAYED, SCALE, "replay"), _lab(wall_now(), 1, "main"))
    for lab, scale in zip(made.labs, (SCALE, 1), strict=True):
        _play(lab, scale)
    # No round becomes late during a test.
    Pool.objects.update(round_s=86_400)
    _people(made)
    return made


def _lab(now: datetime, scale: int, book: str) -> Cluster:
    """Create a pool that started four hours ago, and whose clock now shows `now`."""
    Book.objects.get_or_create(
        slug=book, defaults={"currency": "credit", "clock_domain": Book.ClockDomain.SCALED}
    )
    lab = cluster({"north": 3, "south": 5}, book=book, begin=now - timedelta(hours=4))
    PoolClock.objects.filter(pool=lab.pool).update(
        anchor_pool=now, anchor_wall=wall_now(), scale=scale
    )
    return lab


def _round(lab: Cluster, scale: int, after_s: int = 0) -> None:
    """Run a round at the wall time at which the pool's clock showed the round's time."""
    lab.at += timedelta(seconds=after_s)
    clock = PoolClock.objects.get(pool=lab.pool)
    wall = clock.anchor_wall - (clock.anchor_pool - lab.at) / scale
    with nobody():
        execute_round(lab.pool.pk, now=PoolNow(wall, lab.at, scale, paused=False))


def _play(lab: Cluster, scale: int) -> None:
    """Run rounds: north borrows and completes a job; later more jobs are queued than fit."""
    name = lab.pool.name
    lab.submit("north", 4, 40_000, command=["true"])
    lab.submit("north", 1, 600, command=["true"])
    lab.submit("south", 1, 40_000)
    _round(lab, scale)
    for _ in range(14):
        _round(lab, scale, 900)
    lab.submit("north", 8, 4000, command=["true"])
    lab.submit("south", 8, 4000)
    _round(lab, scale, 600)
    Job.objects.filter(pool=lab.pool, tenant__slug="south", state="pending").update(
        quarantine="It made a round fail."
    )
    for job in Job.objects.filter(pool=lab.pool):
        Job.objects.filter(pk=job.pk).update(name=f"{job.tenant.slug}-{name}-{job.pk}")
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)


def _people(made: TwoClocks) -> None:
    password = make_password(PASSWORD)  # Hashing is slow on purpose, so hash once.
    for name, place in PEOPLE.items():
        site_role = place if isinstance(place, User.SiteRole) else User.SiteRole.NONE
        user = User.objects.create(
            username=name, first_name=name.capitalize(), site_role=site_role, password=password
        )
        if isinstance(place, tuple):
            Membership.objects.create(
                user=user, tenant=made.replayed.tenants[place[0]], role=place[1]
            )
    operator = Actor(User.objects.get(username="oda"))
    for lab in made.labs:
        request_simulation(
            actor=operator,
            pool_id=lab.pool.pk,
            request=SimulationRequest(policy="fifo", hours=6),
        )
