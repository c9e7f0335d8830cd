"""Provide pools, tenants and jobs in rare states, for a crawl of all URLs.

A state is a set of values for placeholders of URLs (`tests/functional/access_table.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.test import Client

from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book, Transfer
from scheduling.engine.clock import wall_now
from scheduling.models import Job, LeaseSlot, Node, Pool, PoolClock, Round, VirtualWork
from scheduling.services.jobs import cancel_job
from tenants.models import Membership, Quota, Tenant, User
from tenants.services.tenants import create_tenant
from tenants.tokens import Scope, create_token
from tests.factories import BEGIN, Cluster, cluster
from tests.functional.addresses import bearer, session

TENANT_ROLES = ("owner", "viewer", "manager")
SITE_ROLES = ("operator", "finance", "auditor")
# All requesters: people of the tenant, of another tenant, of the site, and a user who is not signed
# in.
ROLES = (*TENANT_ROLES, "neighbour", *SITE_ROLES, "nobody")
# The tenant to which all states belong, and the tenant with which it shares its pools.
OWN, OTHER = "odd-lab", "other-lab"
PRINTABLE = '<b>&amp;{{ 7|add:7 }}" ß漢字'
LONG_SLUG = "l" + "-o" * 31
STRANGE = '<b>&amp;{{ 7|add:7 }}"\u202e\u0301ß漢字\U0001f9ea' + "ﷺ" * 100
DAY_S = 86_400
Words = dict[str, str]


@dataclass
class OddStage:
    """States by name, and the requesters."""

    states: dict[str, Words] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def client(self, role: str, *, api: bool) -> Client:
        """Return a role's client: with a token for the API, else with a session."""
        if role == "nobody":
            return Client(raise_request_exception=False)
        return bearer(self.secrets[role]) if api else session(self.sessions[role])


def odd_stage() -> OddStage:
    """Create all states; needs a separate database, because rounds commit."""
    there = people_alone()
    _pools_without(there)
    add_pools_that_lost(there)
    for is_settled in (False, True):
        add_jobs(there, is_settled=is_settled)
    for policy in ("market", "unisched", "oef"):
        add_policy(there, policy)
    _tenants(there)
    # No round becomes late during the test.
    Pool.objects.update(round_s=DAY_S)
    return there


def people_alone() -> OddStage:
    """Create the two tenants and all requesters, without a state."""
    there = OddStage()
    own, other = (_tenant(slug) for slug in (OWN, OTHER))
    _people(there, own, other)
    return there


def _tenant(slug: str, name: str = "") -> Tenant:
    Book.objects.get_or_create(
        slug="main", defaults={"currency": "credit", "clock_domain": Book.ClockDomain.REAL}
    )
    return create_tenant(slug=slug, name=name or slug, initials="OD", swatch=1, book="main")


def _people(there: OddStage, own: Tenant, other: Tenant) -> None:
    role = Membership.Role
    memberships = {
        "owner": (own, role.MEMBER), "viewer": (own, role.VIEWER), "manager": (own, role.MANAGER),
        "neighbour": (other, role.MANAGER),
    }  # fmt: skip
    for name in ROLES[:-1]:
        site_role = User.SiteRole(name) if name in SITE_ROLES else User.SiteRole.NONE
        user = User.objects.create(username=name, first_name=STRANGE[:20], site_role=site_role)
        if name in memberships:
            tenant, membership = memberships[name]
            Membership.objects.create(user=user, tenant=tenant, role=membership)
        client = Client()
        client.force_login(user)
        there.sessions[name] = client.cookies[settings.SESSION_COOKIE_NAME].value
        there.secrets[name] = create_token(
            user=user, name=STRANGE[:60], scopes=Scope, days=1, now=wall_now()
        )[1]


def _lab(quotas: dict[str, int], **fields: Any) -> Cluster:
    lab = cluster({}, **fields)
    for slug, gpus in quotas.items():
        lab.tenants[slug] = Tenant.objects.get(slug=slug)
        Quota.objects.create(
            tenant=lab.tenants[slug], pool=lab.pool, gpu_type=lab.gpu_type, gpus=gpus,
            valid_from=BEGIN,
        )  # fmt: skip
    return lab


def _words(lab: Cluster, **more: object) -> Words:
    last = Round.objects.filter(pool=lab.pool).order_by("-number").first()
    node = Node.objects.filter(pool=lab.pool).first()
    return {
        "slug": OWN, "pool": lab.pool.name, "round": str(last.number if last else 1),
        "node": node.name if node else "n0000", "gpu_type": lab.gpu_type.name,
        "username": "owner", "trade": "1", "simulation": "1", "profile": "no-such",
        **{name: str(value) for name, value in more.items()},
    }  # fmt: skip


def _pools_without(there: OddStage) -> None:
    there.states["no nodes, no tenants, no round"] = _words(_lab({}, nodes=0))
    there.states["no round"] = _words(_lab({OWN: 4, OTHER: 4}))
    waiting = _lab({OWN: 4}, nodes=0)
    waiting.round()
    there.states["no nodes, a round"] = _words(waiting)
    bare = _lab({OWN: 0})
    job = bare.submit(OWN, 1, 60)
    bare.rounds(2, every_s=60)
    there.states["a quota of 0"] = _words(bare, job=job.uid)
    past = _lab({OWN: 4})
    Quota.objects.filter(pool=past.pool).update(valid_until=BEGIN.replace(day=2))
    past.at = BEGIN.replace(day=3)
    past.round()
    there.states["a quota that is over"] = _words(past)


LOST = ("nodes removed", "nodes back", "nodes lost", "a type removed", "paused")


def add_pools_that_lost(there: OddStage, states: Sequence[str] = LOST) -> None:
    """Create pools whose nodes or types have changed."""
    for state in states:
        lab = _lab({OWN: 4, OTHER: 4})
        lab.add_type("k80", nodes=1, gpus=4, quotas={OWN: 2})
        job = lab.submit(OWN, 6, 100)
        lab.submit(OTHER, 1, 10 * DAY_S)
        lab.rounds(9, every_s=900)
        _settle(lab)
        nodes = Node.objects.filter(pool=lab.pool)
        held = LeaseSlot.objects.filter(node__pool=lab.pool)
        if state.startswith("nodes") and state != "nodes lost":
            gone = list(nodes.values_list("pk", flat=True))
            held.update(holding=False, planned=False)
            nodes.update(pool=None)
            lab.round(after_s=900)
            if state == "nodes back":
                Node.objects.filter(pk__in=gone).update(pool=lab.pool)
                lab.round(after_s=900)
        elif state == "nodes lost":
            nodes.update(state=Node.State.LOST)
            lab.round(after_s=900)
        elif state == "a type removed":
            nodes.filter(gpu_type__name="k80").update(pool=None)
            lab.round(after_s=900)
        else:
            PoolClock.objects.filter(pool=lab.pool).update(paused=True)
        words = _words(lab, job=job.uid)
        there.states[state] = words
        if state == "a type removed":
            there.states["of a type removed"] = {**words, "gpu_type": "k80"}


def add_jobs(there: OddStage, *, is_settled: bool) -> None:
    """Create jobs that were submitted and ended in every way, before or after settlement."""
    lab = _lab({OWN: 4, OTHER: 4}, nodes=3)
    jobs = {
        "by REST": _sent(there, lab, name="x" * 63, comment=PRINTABLE),
        "by form": _sent_by_form(there, lab),
        "strange": lab.submit(
            OWN, 1, 30, command=["\u202e", "'", "a b"], environment={"A": STRANGE}
        ),
        "failed": lab.submit(OWN, 1, 30),
        "cancelled while it waits": lab.submit(OWN, 1, 30),
        "cancelled while it runs": lab.submit(OWN, 1, 10 * DAY_S),
        "runs": lab.submit(OTHER, 5, 10 * DAY_S),
        "too large": lab.submit(OWN, 1000, 30),
        "in quarantine": lab.submit(OWN, 1, 30),
    }
    VirtualWork.objects.filter(job=jobs["failed"]).update(exit_code=1)
    Job.objects.filter(pk=jobs["in quarantine"].pk).update(quarantine=STRANGE[:100])
    Job.objects.filter(pk=jobs["strange"].pk).update(name=STRANGE[:120])
    lab.at = max(job.submitted_at for job in Job.objects.filter(pool=lab.pool))
    cancel_job(job=jobs["cancelled while it waits"], now=lab.now())
    lab.rounds(2, every_s=60)
    cancel_job(job=Job.objects.get(pk=jobs["cancelled while it runs"].pk), now=lab.now())
    lab.rounds(10, every_s=900)
    _settle(lab, is_settled=is_settled)
    when = "settled" if is_settled else "not settled"
    for name, job in jobs.items():
        there.states[f"job {name}, {when}"] = _words(lab, job=job.uid)
    paid = Transfer.objects.filter(pool=lab.pool).first()
    if paid is not None:
        there.states["job by REST, settled"]["transfer"] = str(paid.pk)


def _sent(there: OddStage, lab: Cluster, **fields: object) -> Job:
    spec = {"pool": lab.pool.name, "gpus": 1, "tenant": OWN, "command": ["true"], "duration_s": 30}
    answer = there.client("owner", api=True).post(
        "/api/v1/jobs", {**spec, **fields}, content_type="application/json"
    )
    assert answer.status_code == 201, answer.content
    return Job.objects.get(uid=answer.json()["id"])


def _sent_by_form(there: OddStage, lab: Cluster) -> Job:
    typed = {
        "side": "form", "pool": lab.pool.name, "gpus": "1", "duration_s": "30",
        "name": f"by-form-{lab.pool.pk}", "act": "submit",
    }  # fmt: skip
    answer = there.client("owner", api=False).post(f"/t/{OWN}/jobs/new/", typed)
    assert answer.status_code == 302, answer.content
    return Job.objects.get(name=typed["name"])


def add_policy(there: OddStage, policy: str) -> None:
    """Create a pool whose policy stores extra data, with a job that it refuses."""
    lab = _lab({OWN: 1, OTHER: 7}, policy=policy)
    job = lab.submit(OWN, 2, 30)
    late = lab.submit(OWN, 8, 10 * DAY_S, job_class="strict_slo", deadline_at=lab.at)
    lab.rounds(6, every_s=900)
    _settle(lab)
    there.states[f"under {policy}"] = _words(lab, job=job.uid)
    there.states[f"refused under {policy}"] = _words(lab, job=late.uid)


def _tenants(there: OddStage) -> None:
    """Create tenants with few rows or long names, and a pool and a type with long names."""
    _tenant("no-quota")
    lab = _lab({OWN: 4})
    Pool.objects.filter(pk=lab.pool.pk).update(name="p" * 63)
    lab.pool.refresh_from_db()
    lab.gpu_type = lab.add_type("t" * 31, nodes=1, gpus=8, quotas={OWN: 1})
    Node.objects.filter(pool=lab.pool, gpu_type=lab.gpu_type).update(name="n" * 63)
    lab.tenants[LONG_SLUG] = _tenant(LONG_SLUG, STRANGE[:120])
    job = lab.submit(LONG_SLUG, 1, 30, source="trace")
    lab.rounds(6, every_s=900)
    _settle(lab)
    there.states["the longest names"] = _words(lab, slug=LONG_SLUG, job=job.uid)
    there.states["a tenant without quota"] = _words(lab, slug="no-quota", username=STRANGE[:150])


def _settle(lab: Cluster, *, is_settled: bool = True) -> None:
    """Meter, settle and seal a pool, and let its clock continue from the last round."""
    meter_pool(lab.pool.pk)
    if is_settled:
        settle_pool(lab.pool.pk)
        log_transfers(Book.objects.get(slug=lab.pool.book))
    lab.seal()
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())
