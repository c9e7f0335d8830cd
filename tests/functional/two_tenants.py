"""Provide two tenants with rows of every kind, in shared and in separate pools.

All texts of a tenant contain one word, which reveals them on a page of the other tenant. Ids and
amounts are distinguished by their values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.test import Client

from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book, Transfer, TransferRequest
from scheduling.engine.clock import wall_now
from scheduling.engine.refits import refit
from scheduling.models import (
    Arrival,
    Delivery,
    Job,
    Lease,
    LeaseEvent,
    MaintenanceWindow,
    MeasurementNote,
    Message,
    Node,
    Pool,
    PoolFence,
    PriceSetting,
    Round,
    RunRecord,
    SessionCode,
    Subscription,
    Sweep,
    Verification,
    VirtualSpeeds,
)
from scheduling.requests.profiles import read_profile_request
from scheduling.requests.sharing import OfferRequest, PeopleRule, SharingRequest
from scheduling.requests.simulations import SimulationRequest
from scheduling.services.profiles import put_profile
from scheduling.services.sharing import make_offer, set_people, set_price_limit, set_sharing
from scheduling.services.simulations import request_simulation
from scheduling.services.submit import submit_job
from scheduling.services.sweeps import submit_sweep
from tenants.audit import Actor
from tenants.models import ApiToken, Membership, SavedFilter, Tenant, User
from tenants.tokens import Scope, create_token
from tests.factories import BEGIN, Cluster, cluster
from tests.functional.shown_replay import write_shown_replay
from tests.functional.tenant_rows import count_idle, expect_start, request_quota, write_files
from tests.functional.trades import write_event, write_trade
from tests.functional.visitors import invite_guest

LENDER = "lender"
# The maximum price of each tenant, also its charge in a replay.
LIMITS = {"quokka": Decimal("41873.25"), "narwhal": Decimal("96214.75")}
# An hour has two rounds, and running jobs outlast all rounds.
STEP_S, LONG_S = 1800, 40_000


@dataclass
class Side:
    """A tenant with its manager. Pools that name tenants show `name` and `initials` to others."""

    word: str
    name: str
    initials: str
    tenant: Tenant
    pools: list[Cluster] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    pool_words: dict[int, dict[str, str]] = field(default_factory=dict)
    secret: str = ""
    session: str = ""
    manager: User | None = None

    @property
    def slug(self) -> str:
        return self.tenant.slug

    @property
    def alone(self) -> Cluster:
        """The pool that the tenant shares only with the lender."""
        return self.pools[-1]

    @property
    def amount(self) -> Decimal:
        """A unique amount of credits, which the tenant tried to transfer."""
        return Decimal(sum(self.word.encode()) ** 2) / 100

    def words_in(self, lab: Cluster) -> dict[str, str]:
        """Return values for URLs about one of its pools; cached, because no test runs rounds."""
        known = self.pool_words.setdefault(lab.pool.pk, {})
        known.update(known or pool_words(lab))
        return {**self.words, **known}


@dataclass
class Pair:
    """Two tenants, and the operator."""

    one: Side
    two: Side
    operator: Side

    @property
    def sides(self) -> tuple[tuple[Side, Side], ...]:
        """Return the pairs of a requester and the tenant whose data must stay hidden."""
        return (self.one, self.two), (self.two, self.one)


def pool_words(lab: Cluster) -> dict[str, str]:
    """Return values for placeholders of URLs about a pool and its objects."""
    last = Round.objects.filter(pool=lab.pool).order_by("-number")[0]
    return {
        "pool": lab.pool.name,
        "round": str(last.number),
        "node": Node.objects.filter(pool=lab.pool).order_by("id")[0].name,
        "gpu_type": lab.gpu_type.name,
    }


def two_tenants(logs: Path) -> Pair:
    """Create both tenants; the output of jobs is in `logs`.

    This needs a separate database, because rounds commit.
    """
    terms: dict[str, Any] = {"lease_s": STEP_S}  # no round is late
    shared = cluster({"quokka-lab": 2, "narwhal-lab": 2, LENDER: 4}, **terms)
    mixed = cluster(
        {"quokka-lab": 2, "narwhal-lab": 1, LENDER: 1}, nodes=1, gpus=4, policy="oef",
        options={"environment": "cooperative"}, **terms,
    )  # fmt: skip
    quotas = {"quokka-lab": 2, "narwhal-lab": 1, LENDER: 1}
    mixed.add_type("k80", nodes=1, gpus=4, quotas=quotas)
    hers, his = (cluster({slug: 1, LENDER: 7}, **terms) for slug in ("quokka-lab", "narwhal-lab"))
    sides = [
        _side("quokka", "Zanzibar", "ЖЩ", [shared, mixed, hers]),
        _side("narwhal", "Oleander", "ЮЭ", [shared, mixed, his]),
    ]
    for side, base in zip(sides, ("10472.9", "31751.1"), strict=True):
        name_of_own(side, Decimal(base))
    PriceSetting.objects.filter(pool=shared.pool).update(base=Decimal("5021.3"))
    lend(shared, sides[0])
    run(shared, *sides, together=False)
    run(mixed, *sides)
    for side in sides:
        run(side.alone, side)
    for side, other in zip(sides, reversed(sides), strict=True):
        _give_notice(shared, side, other)
        write_trade(shared, side.slug, LENDER)
    # Add an event to one pool, so that the trades of both have different numbers.
    write_event(sides[1].alone, "priced", {"valid_from_round": 1, "prices": []})
    for lab in (shared, mixed, hers, his):
        lab.seal()
    operator = _operator()
    # Forecasts from the metrics that their jobs reported.
    refit(most=100)
    for side in sides:
        _finish(side, operator, logs)
        side.words["sweep"] = str(_sweep(side).uid)
        job = Job.objects.filter(tenant=side.tenant).order_by("pk")[0]
        assert side.manager is not None
        SessionCode.objects.create(
            code_hash=side.word, job=job, user=side.manager, expires_at=job.created_at
        )
    assert operator.manager is not None
    write_shown_replay(shared, operator.manager, {one.slug: LIMITS[one.word] for one in sides})
    # From here on its jobs are programs, which have logs; no round becomes late.
    Pool.objects.filter(pk=shared.pool.pk).update(executor="local")
    Pool.objects.update(round_s=86_400)
    return Pair(sides[0], sides[1], operator)


def _side(word: str, name: str, initials: str, pools: list[Cluster]) -> Side:
    tenant = pools[0].tenants[f"{word}-lab"]
    tenant.name, tenant.initials = name, initials
    tenant.save(update_fields=["name", "initials"])
    side = Side(word, name, initials, tenant, pools)
    side.manager = _person(word, "boss", tenant, Membership.Role.MANAGER)
    _person(word, "viewer", tenant, Membership.Role.VIEWER)
    side.secret, side.session = _entry(side.manager, f"{word}-token")
    SavedFilter.objects.create(
        user=side.manager, tenant=tenant, name=f"{word}-filter", query=f"q={word}-part"
    )
    for lab in pools:
        lab.tenants[tenant.slug] = tenant
        kinds = [lab.gpu_type.name] + (["k80"] if lab.pool.policy == "oef" else [])
        wanted = read_profile_request(f"{word}-net", {"speeds": dict.fromkeys(kinds, "1")})
        profile = put_profile(
            tenant=tenant, actor=Actor(side.manager, f"{word}-request"), pool_id=lab.pool.pk,
            name=f"{word}-net", request=wanted,
        )  # fmt: skip
        # With simulated speeds, the runs of the job type are measured.
        VirtualSpeeds.objects.create(
            profile=profile, tenant=tenant, speedups=profile.speedups, iteration_us=10**6
        )
        MeasurementNote.objects.create(
            profile=profile, tenant=tenant, at=BEGIN, kind="refused",
            data={"lease": 1, "why": "is no JSON"},
        )  # fmt: skip
        RunRecord.objects.create(
            profile=profile, tenant=tenant, gpus=64, ended_at=BEGIN,
            runs=[{"held": {kinds[0]: 60 * 10**6}, "declared_s": None}],
        )  # fmt: skip
    return side


def _person(word: str, role: str, tenant: Tenant | None, place: str = "") -> User:
    user = User.objects.create(
        username=f"{word}-{role}",
        first_name=f"{word}-first",
        last_name=f"{word}-last",
        email=f"{word}-{role}@example.org",
    )
    if tenant is not None:
        Membership.objects.create(user=user, tenant=tenant, role=place)
    return user


def _entry(user: User, name: str) -> tuple[str, str]:
    """Return a token of all scopes and a session."""
    client = Client()
    client.force_login(user)
    secret = create_token(user=user, name=name, scopes=Scope, days=1, now=user.date_joined)[1]
    return secret, client.cookies[settings.SESSION_COOKIE_NAME].value


def _operator() -> Side:
    user = _person("operator", "otto", None)
    user.site_role = User.SiteRole.OPERATOR
    user.save(update_fields=["site_role"])
    secret, key = _entry(user, "operator-token")
    nobody = Tenant(slug="", name="")
    return Side("operator", "", "", nobody, secret=secret, session=key, manager=user)


def name_of_own(side: Side, base: Decimal) -> None:
    """Give unique values to the objects and the price of the tenant's own pool."""
    pool = side.alone.pool
    for node in Node.objects.filter(pool=pool):
        Node.objects.filter(pk=node.pk).update(name=f"{side.word}-{node.name}")
    PriceSetting.objects.filter(pool=pool).update(base=base)
    Pool.objects.filter(pk=pool.pk).update(name=f"{side.word}-pool")
    pool.refresh_from_db()


def lend(lab: Cluster, side: Side) -> None:
    """Have a third tenant borrow from both for an hour; `side` uses GPUs too, so it earns less."""
    lab.submit(LENDER, 6, LONG_S // 16)
    submit(lab, side, 1)
    lab.rounds(2, every_s=STEP_S)
    lab.at += timedelta(seconds=STEP_S)


def run(lab: Cluster, *sides: Side, together: bool = True) -> None:
    """Run a job of each tenant, then queue one of each; settle an hour.

    If not `together`, the second tenant's jobs come an hour later, so that it lent to the first
    tenant.
    """
    first, *later = sides
    lab.profile(LENDER, "lender-net", **dict.fromkeys(_kinds(lab), 1000))
    submit(lab, first, 3)
    for side in later if together else ():
        submit(lab, side, 3)
    lab.rounds(2, every_s=STEP_S)
    for side in () if together else later:
        submit(lab, side, 3)
    lab.round(after_s=STEP_S)
    for side in sides:
        submit(lab, side, 8 if lab.pool.policy != "oef" else 4)
        submit(lab, side, 1)
    lab.rounds(3, every_s=STEP_S)
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    log_transfers(Book.objects.get(slug=lab.pool.book))


def _kinds(lab: Cluster) -> list[str]:
    return sorted(set(Node.objects.filter(pool=lab.pool).values_list("gpu_type__name", flat=True)))


def submit(lab: Cluster, side: Side, gpus: int) -> Job:
    """Submit a job as its manager, with a text in every text field."""
    word = side.word
    number = Job.objects.count()
    spec = {
        "pool": lab.pool.name,
        "gpus": gpus,
        "name": f"{word}-job-{number}",
        "command": [f"{word}-program", f"--{word}-option"],
        "environment": {f"{word.upper()}_VARIABLE": f"{word}-value"},
        "comment": f"{word}-comment",
        "tags": [f"{word}-tag"],
        "job_class": "soft_slo",
        "deadline": "20h",
        "deadline_steps": ["100:100", "150:20"],
        "estimate_s": LONG_S,
        "iterations": 1000,
        "stop_when": f"{word}_metric>=0.5",
        "profile": f"{word}-net",
        "max_price": "987654.125",
        "duration_s": LONG_S,
    }
    return submit_job(
        tenant=side.tenant,
        user=side.manager,
        spec=spec,
        now=lambda _: lab.now(),
        key=f"{word}-key-{number}",
    ).row


def _give_notice(lab: Cluster, side: Side, other: Side) -> None:
    """Give notice to the tenant's first lease in the pool, for a job of the other tenant."""
    lease = Lease.objects.filter(pool=lab.pool, tenant=side.tenant).order_by("id")[0]
    winner = Job.objects.filter(pool=lab.pool, tenant=other.tenant).order_by("-id")[0]
    fence = PoolFence.objects.get(pool=lab.pool)
    LeaseEvent.objects.create(
        pool=lab.pool, number=fence.next_event, kind="stop_asked", at=lab.at, round=1,
        lease=lease, job=lease.job, tenant=side.tenant, term=lease.term,
        data={
            "reason": "preempted", "rule": "guarantee", "for_job": winner.pk,
            "for_tenant": other.tenant.pk, "numbers": {"held": 1, "quota": 2}, "notice_s": 30,
        },
    )  # fmt: skip
    fence.next_event += 1
    fence.save(update_fields=["next_event"])


def _finish(side: Side, operator: Side, logs: Path) -> None:
    """Create rows that no round makes, and the values for placeholders of URLs."""
    assert side.manager is not None
    assert operator.manager is not None
    word, lab = side.word, side.alone
    Arrival.objects.create(
        pool=lab.pool, tenant=side.tenant, at=lab.at.replace(year=2099), name=f"{word}-arrival",
        gpus=1, duration_us=1,
    )  # fmt: skip
    window = MaintenanceWindow.objects.create(
        pool=lab.pool, node=Node.objects.filter(pool=lab.pool)[0], reason=f"{word}-window",
        starts_at=BEGIN.replace(year=2098), ends_at=BEGIN.replace(year=2099),
    )  # fmt: skip
    jobs = Job.objects.filter(tenant=side.tenant, leases_held__gt=0).order_by("id")
    ran = jobs.filter(pool=side.pools[0].pool)[0]
    write_files(word, jobs, logs)
    jobs.update(progress={f"{word}-metric": 0.5})
    waiting = Job.objects.filter(pool=side.pools[0].pool, tenant=side.tenant, state="pending")
    waiting.filter(gpus=1).update(quarantine=f"{word}-quarantine")
    expect_start(waiting.exclude(gpus=1)[0])
    offers = [_share(side, lab) for lab in side.pools]
    count_idle(Lease.objects.filter(job=ran)[0])
    TransferRequest.objects.create(
        book=Book.objects.get(slug="main"), tenant=side.tenant, amount=side.amount,
        receiver=Tenant.objects.get(slug=LENDER), reason=f"{word}-gift", asked_by=side.manager,
        state="refused", decided_by=operator.manager, decided_at=wall_now(),
        answer=f"{word}-answer",
    )  # fmt: skip
    asked = SimulationRequest(policy="fifo", hours=6)
    for pool in side.pools:
        Verification.objects.create(
            uid=uuid4(), tenant=side.tenant, pool=pool.pool, user=side.manager, kind="rounds",
            size=1, root="0" * 64, first=1, last=1, checked=1, findings=0, client=f"{word}-client",
        )  # fmt: skip
    message = _subscribe(side, ran)
    simulation = request_simulation(
        actor=Actor(operator.manager, "operator-request"), pool_id=lab.pool.pk, request=asked
    )
    part = Transfer.objects.filter(entries__account__tenant=side.tenant).order_by("hour")
    lent = part.exclude(tenant=side.tenant)
    side.words = {
        "slug": side.slug,
        "job": str(ran.uid),
        "token": str(ApiToken.objects.get(user=side.manager).uid),
        "transfer": str(part.filter(pool=lab.pool)[0].pk),
        "lent": str(lent.exclude(tenant__slug=LENDER)[0].pk),
        "lent_too": str(lent.filter(tenant__slug=LENDER)[0].pk),
        "simulation": str(simulation.pk),
        "trade": str(write_trade(lab, side.slug, LENDER).number),
        "window": str(window.pk),
        "profile": f"{word}-net",
        "offer": offers[0],
        "username": side.manager.username,
        "message": str(message.uid),
        "subscription": str(message.subscription.uid),
        "viewer": f"{word}-viewer",
        "invitation": invite_guest(side.tenant, side.manager, word),
        "quota_request": request_quota(side.pools[0], side.manager, operator.manager, word),
    }
    side.words |= pool_words(side.pools[0])


def _sweep(side: Side) -> Sweep:
    """Submit a sweep with a text in every text field; its jobs wait for a job of another pool."""
    word, lab = side.word, side.alone
    spec = {
        "pool": lab.pool.name, "gpus": 1, "name": f"{word}-sweep", "command": [f"{word}-sweeper"],
        "comment": f"{word}-comment", "matrix": {f"{word}_rate": [f"{word}-1", f"{word}-2"]},
        "at_once": 1, "after_ok": [side.words["job"]],
    }  # fmt: skip
    return submit_sweep(
        tenant=side.tenant, user=side.manager, spec=spec, now=lambda _: lab.now()
    ).row


def _subscribe(side: Side, job: Job) -> Message:
    """Subscribe its manager to messages of a tag; return a message that was not delivered."""
    assert side.manager is not None
    word, now = side.word, wall_now()
    row = Subscription.objects.create(
        person=side.manager, tenant=side.tenant, channel="webhook", tag=f"{word}-tag",
        address=f"https://{word}-hook.example/{word}-path", kinds=["job_ended"],
        note=f"{word}-note", state="failed",
    )  # fmt: skip
    message = Message.objects.create(
        subscription=row, tenant=side.tenant, job=job, kind="job_ended", event="event:1:1",
        data={"job": {"name": job.name}}, at=now, due_at=now, state="failed",
    )  # fmt: skip
    Delivery.objects.create(
        message=message, subscription=row, tenant=side.tenant, at=now, is_ok=False,
        error=f"{word}-error", response=f"{word}-response", duration_ms=1,
    )  # fmt: skip
    return message


def _share(side: Side, lab: Cluster) -> str:
    """Allow the tenant to lend only by an offer, and set a maximum price; return the offer's id."""
    assert side.manager is not None
    who: dict[str, Any] = {
        "tenant": side.tenant, "actor": Actor(side.manager, f"{side.word}-request"),
        "pool_id": lab.pool.pk,
    }  # fmt: skip
    amount = LIMITS[side.word]
    asked = SharingRequest(by_offer=True)
    set_sharing(**who, gpu_type=lab.gpu_type.name, request=asked, now=lab.at)
    set_price_limit(**who, max_price=amount)
    set_people(**who, rule=PeopleRule.EQUAL)
    offer = OfferRequest(gpu_type=lab.gpu_type.name, gpus=1, floor_price=amount + 7)
    key = f"{side.word}-offer-{lab.pool.pk}"
    return str(make_offer(**who, request=offer, now=lab.at, key=key).row.uid)
