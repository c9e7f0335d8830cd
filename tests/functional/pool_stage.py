"""Provide a small pool with a past, and all kinds of requesters for its pages."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.metering import meter_pool, settle_pool
from scheduling.models import Round
from tenants.models import Membership, Tenant, User
from tests.factories import Cluster, cluster
from tests.functional.visitors import signed_in

PEOPLE = ("owner", "mate", "neighbour", "stranger", "operator", "nobody")
PASSWORD_FREE = "!"


@dataclass
class Stage:
    """Tenants alpha (the owner's), beta (the neighbour's) and gamma, with 8 GPUs on two nodes."""

    lab: Cluster

    @property
    def pool(self) -> str:
        return self.lab.pool.name

    def tenant(self, slug: str) -> Tenant:
        return self.lab.tenants[slug]

    def client(self, who: str | None) -> Client:
        return Client() if who is None else signed_in(User.objects.get(username=who))

    def get(self, who: str | None, path: str) -> Any:
        return self.client(who).get(path)

    def page(self, who: str, path: str) -> str:
        answer = self.get(who, path)
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        return str(answer.content.decode())

    def reads(self, who: str, path: str) -> int:
        """Return the number of a page's reading queries, except those for scopes and visits."""
        client = self.client(who)
        client.get(path)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return sum(" FROM " in " ".join(query["sql"].split()) for query in queries.captured_queries)

    def see(self, visibility: str) -> None:
        self.lab.pool.visibility = visibility
        self.lab.pool.save(update_fields=["visibility"])

    def url(self, rest: str = "") -> str:
        return f"/pools/{self.pool}/{rest}"


def stage(**pool_fields: Any) -> Stage:
    """Create a pool after two rounds: alpha borrows, beta runs a small job, gamma's gang waits."""
    lab = cluster({"alpha": 3, "beta": 4, "gamma": 1}, nodes=2, gpus=4, **pool_fields)
    lab.submit("alpha", 4, 40_000)
    lab.submit("beta", 1, 40_000)
    lab.round()
    lab.submit("gamma", 8, 100)
    lab.submit("alpha", 1, 40_000)
    lab.round(after_s=10)
    _people(lab)
    return Stage(lab)


def settled_stage() -> Stage:
    """Return the stage 2.5 hours later, metered and settled."""
    there = stage()
    for _ in range(10):
        there.lab.round(after_s=900)
    meter_pool(there.lab.pool.pk)
    settle_pool(there.lab.pool.pk)
    return there


def _people(lab: Cluster) -> None:
    elsewhere = cluster({"delta": 4}, nodes=1).tenants["delta"]
    memberships = {
        "owner": (lab.tenants["alpha"], Membership.Role.MEMBER),
        "mate": (lab.tenants["alpha"], Membership.Role.VIEWER),
        "neighbour": (lab.tenants["beta"], Membership.Role.MANAGER),
        "stranger": (elsewhere, Membership.Role.MEMBER),
    }
    for name in PEOPLE:
        site_role = User.SiteRole.OPERATOR if name == "operator" else User.SiteRole.NONE
        user = User.objects.create(username=name, site_role=site_role, password=PASSWORD_FREE)
        if name in memberships:
            tenant, role = memberships[name]
            Membership.objects.create(user=user, tenant=tenant, role=role)


def last_round(there: Stage) -> Round:
    found = Round.objects.filter(pool=there.lab.pool).order_by("-number").first()
    assert found is not None
    return found


class _Headline(HTMLParser):
    """Collects the text of the h1 without the notes of its numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ""
        self._inside = False
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = self._inside or tag == "h1"
        if tag == "span" and (self._depth or "popover" in dict(attrs)):
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "h1":
            self._inside = False
        if tag == "span" and self._depth:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._inside and not self._depth:
            self.words += data


def headline(page: str) -> str:
    parser = _Headline()
    parser.feed(page)
    return " ".join(parser.words.split())
