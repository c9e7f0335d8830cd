"""Generate random pools with consecutive rounds, as input of property tests of any policy.

Ids are far apart and of unequal length ("9" sorts after "10" as text), because policies may only
use the order of ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace as changed

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode, Tenant
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile, MeasuredSpeed
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import (
    Change,
    ChangeKind,
    PoolPrice,
    Service,
    Snapshot,
    Surcharge,
    with_schema,
)
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import CREDIT_MICRO, SECOND_US

MINUTE_US = 60 * SECOND_US
ROUND_US, LEASE_US = 2 * MINUTE_US, 10 * MINUTE_US
TYPES = ("A100", "K80", "V100")


def some_ids(chance: Random, count: int) -> list[int]:
    """Return distinct ids of 1 to 7 digits, in no order."""
    ids: set[int] = set()
    while len(ids) < count:
        ids.add(chance.randrange(1, 10 ** chance.randrange(1, 8)))
    rows = sorted(ids)
    chance.shuffle(rows)
    return rows


@dataclass
class RandomPool:
    """A pool with random nodes, quotas, jobs and settings; `rounds` decides and applies."""

    policy: str
    chance: Random
    options: dict[str, Any] = field(default_factory=dict)
    number: int = 1
    at_us: int = 50 * MINUTE_US
    service: Service = field(default_factory=lambda: Service(at_us=0))
    memory: dict[str, Any] = field(default_factory=dict)
    prices: tuple[PoolPrice, ...] = ()
    surcharges: tuple[Surcharge, ...] = ()
    jobs: dict[int, Job] = field(default_factory=dict)
    left_us: dict[int, int] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)  # by job
    changes: list[Change] = field(default_factory=list)
    rest: dict[int, dict[str, Any]] = field(default_factory=dict)  # by job

    def __post_init__(self) -> None:
        chance = self.chance
        # Half of the pools are full of long jobs that no limit refuses.
        self.is_full = chance.random() < 0.5
        kinds = TYPES[: chance.randrange(1, 4)]
        self.nodes = tuple(
            Node(id_, chance.choice(kinds), chance.choice((2, 4, 4, 8)))
            for id_ in sorted(some_ids(chance, chance.randrange(2, 7)))
        )
        self.kinds = tuple(sorted({node.gpu_type for node in self.nodes}))
        tenants = sorted(some_ids(chance, chance.randrange(2 if self.is_full else 1, 5)))
        self.tenants = tuple(
            Tenant(id_, chance.choice((None, None, 5 * CREDIT_MICRO, 10**6 * CREDIT_MICRO)))
            for id_ in tenants
        )
        self.entitlements = tuple(
            Entitlement(
                tenant, kind, chance.randrange(0, 7),
                chance.choice((*[Mode.LEND_AND_BORROW] * 4, Mode.LEND, Mode.RESERVE)),
                chance.choice((None, None, None, 3)), chance.choice((None, None, None, 1)),
            )
            for tenant in tenants for kind in self.kinds
        )  # fmt: skip
        if self.is_full:
            self.tenants = tuple(Tenant(id_) for id_ in tenants)
            self.entitlements = tuple(
                Entitlement(row.tenant, row.gpu_type, row.gpus) for row in self.entitlements
            )
        self.entitlements = _scaled(self.entitlements, self.nodes)
        for row in self.entitlements:
            self._change(ChangeKind.QUOTA, row.tenant, gpus=row.gpus, gpu_types=(row.gpu_type,))
        self.profiles = tuple(
            Profile(
                id_, chance.choice(tenants),
                tuple((kind, chance.choice((1000, 1500, 2500, 4000))) for kind in self.kinds),
                chance.choice((1, 1, 2)),
            )
            for id_ in sorted(some_ids(chance, 5 if self.is_full else chance.randrange(0, 5)))
        )  # fmt: skip
        self.prices = tuple(
            PoolPrice(kind, chance.choice((0, CREDIT_MICRO, 3 * CREDIT_MICRO)), 0,
                      sum(n.gpus for n in self.nodes if n.gpu_type == kind), CREDIT_MICRO, 3000)
            for kind in self.kinds
        )  # fmt: skip
        if chance.random() < 0.4:
            self.surcharges = tuple(Surcharge(kind, 200, 1000) for kind in self.kinds)
        self.next_jobs = iter(sorted(some_ids(chance, 200)))
        self.next_leases = iter(sorted(some_ids(chance, 400)))

    def rounds(self, count: int) -> Iterator[tuple[Snapshot, Decision]]:
        """Yield the rounds after encoding and decoding."""
        for _ in range(count):
            self._arrive(self.chance.randrange(*((2, 9) if self.is_full else (0, 6))))
            snapshot = decode(canonical_bytes(self._snapshot()), Snapshot)
            decision = decode(canonical_bytes(decide_round(snapshot)), Decision)
            yield snapshot, decision
            self.service, self.memory = decision.service, decision.memory
            self.prices, self.surcharges = decision.prices, decision.surcharges
            self.changes = []
            self._apply(decision)
            self._go_on()

    def _change(self, kind: ChangeKind, tenant: int, **rest: Any) -> None:
        self.changes.append(Change(rest.pop("at_us", self.at_us), kind, tenant, **rest))

    def _arrive(self, count: int) -> None:
        chance = self.chance
        for _ in range(count):
            id_, tenant = next(self.next_jobs), chance.choice(self.tenants).id
            own = [row.id for row in self.profiles if row.tenant == tenant]
            kinds = chance.choice(((), (), self.kinds, (chance.choice(self.kinds),)))
            estimate_us = chance.choice((None, chance.randrange(1, 90) * MINUTE_US))
            job = Job(
                id_, tenant, chance.choice((1, 1, 2, 2, 3, 4, 8, 12)),
                self.at_us - chance.randrange(3),
                kinds, chance.choice((1, 1, 2)), 0,
                chance.choice((None, None, CREDIT_MICRO // 2, 10**5 * CREDIT_MICRO)),
                chance.choice((None, self.at_us + chance.randrange(1, 200) * MINUTE_US)),
                estimate_us, chance.choice((0, *own)),
            )  # fmt: skip
            if self.is_full:
                job = changed(job, gpu_types=(), max_price_micro=None)
                job = changed(job, profile=chance.choice(own)) if own else job
            self.jobs[id_], self.left_us[id_] = job, chance.randrange(1, 60) * MINUTE_US
            self.rest[id_] = self._rest(job)
            self._change(
                ChangeKind.ACTIVE, tenant, at_us=self.at_us, job=id_, gpus=job.gpus,
                gpu_types=job.gpu_types, weight=job.weight,
            )  # fmt: skip

    def _rest(self, job: Job) -> dict[str, Any]:
        chance, rest = self.chance, dict[str, Any]()
        if chance.random() < 0.4:
            kind = chance.choice(tuple(UtilityKind))
            scale, rate = {
                UtilityKind.LINEAR: (100 * CREDIT_MICRO, -CREDIT_MICRO),
                UtilityKind.CONVEX: (50 * CREDIT_MICRO, CREDIT_MICRO),
                UtilityKind.BID: (2 * CREDIT_MICRO, 0),
            }[kind]
            rest["utilities"] = Utility(job.id, kind, scale, rate)
        if job.deadline_us is not None and chance.random() < 0.7:
            deadline = chance.choice((DeadlineClass.STRICT, DeadlineClass.SOFT))
            steps = [DeadlineStep(job.deadline_us, 100)]
            if deadline is DeadlineClass.SOFT:
                steps.append(DeadlineStep(job.deadline_us + 30 * MINUTE_US, 50))
            rest["deadlines"] = Deadline(job.id, deadline, tuple(steps))
        if job.estimate_us is not None and chance.random() < 0.6:
            rest["estimates"] = JobEstimate(
                job.id, EstimateSource.DECLARED, chance.choice((0, 300)), MINUTE_US, 900
            )
        if chance.random() < 0.1:
            rest["is_profiler"] = True
        if chance.random() < 0.3:
            rest["job_resources"] = Resources(job.id, chance.randrange(20), chance.randrange(99))
        if chance.random() < 0.1:
            rest["backoffs"] = Backoff(job.id, self.at_us + 3 * MINUTE_US, 2)
        return rest

    def _snapshot(self) -> Snapshot:
        self.changes.sort(key=lambda change: change.at_us)
        jobs = tuple(self.jobs[id_] for id_ in sorted(self.jobs))
        leases = tuple(sorted(self.leases.values(), key=lambda row: row.id))
        rows: dict[str, tuple[Any, ...]] = {
            name: tuple(
                self.rest[job.id][name]
                for job in jobs
                if name in self.rest[job.id]
                and (name != "backoffs" or job.id not in self.leases)
                and (name != "backoffs" or self.rest[job.id][name].until_us > self.at_us)
            )
            for name in ("utilities", "deadlines", "estimates", "job_resources", "backoffs")
        }
        profilers = tuple(job.id for job in jobs if "is_profiler" in self.rest[job.id])
        named = {job.profile for job in jobs}
        profiles = tuple(row for row in self.profiles if row.id in named)
        measured = tuple(
            MeasuredProfile(
                row.id, row.speedups,
                tuple((kind, MeasuredSpeed(1000 + 100 * k, 50, 9))
                      for k, (kind, _) in enumerate(row.speedups)),
            )
            for row in profiles[::2]
        )  # fmt: skip
        snapshot = Snapshot(
            schema=9, pool=7, number=self.number, at_us=self.at_us, round_us=ROUND_US,
            lease_us=LEASE_US, policy=self.policy, policy_version=POLICIES[self.policy].version,
            options=self.options, seed=0, nodes=self.nodes, tenants=self.tenants,
            entitlements=self.entitlements, jobs=jobs, leases=leases, prices=self.prices,
            changes=tuple(self.changes), service=self.service, memory=self.memory,
            profiles=profiles, surcharges=self.surcharges, measured=measured,
            profilers=profilers, **rows,
        )  # fmt: skip
        return with_schema(snapshot)

    def _apply(self, decision: Decision) -> None:
        lengths = {row.job: row.lease_us for row in decision.lengths}
        for end in decision.ends:
            self._release(self.leases[end.job], self.at_us)
        for row in decision.renewals:
            old = self.leases[row.job]
            self.leases[row.job] = changed(
                old, expires_us=self.at_us + lengths.get(row.job, LEASE_US), term=old.term + 1,
                own=row.own, borrowed=row.borrowed, price_micro=row.price_micro,
            )  # fmt: skip
            self._held(row.job)
        for grant in decision.grants:
            self.leases[grant.job] = Lease(
                next(self.next_leases), grant.job, grant.tenant, grant.gpu_type, grant.placement,
                self.at_us, self.at_us + lengths.get(grant.job, LEASE_US), 1, grant.own,
                grant.borrowed, grant.price_micro, self.at_us + MINUTE_US,
            )  # fmt: skip
            gpus = sum(count for _, count in grant.placement)
            self._change(
                ChangeKind.HOLD, grant.tenant, job=grant.job, gpus=gpus,
                gpu_types=(grant.gpu_type,),
            )  # fmt: skip
            self._held(grant.job)

    def _held(self, job: int) -> None:
        self.jobs[job] = changed(self.jobs[job], terms=self.jobs[job].terms + 1)

    def _release(self, lease: Lease, at_us: int) -> None:
        del self.leases[lease.job]
        self._change(ChangeKind.RELEASE, lease.tenant, at_us=at_us, job=lease.job)

    def _go_on(self) -> None:
        for lease in list(self.leases.values()):
            span_us = min(ROUND_US, self.left_us[lease.job])
            self.left_us[lease.job] -= span_us
            if not self.left_us[lease.job]:
                self._release(lease, self.at_us + span_us)
                self._gone(lease.job, self.at_us + span_us)
        waiting = sorted(self.jobs.keys() - self.leases.keys())
        if waiting and self.chance.random() < 0.2:
            self._gone(self.chance.choice(waiting), self.at_us + ROUND_US)
        self.at_us += ROUND_US
        self.number += 1

    def _gone(self, job: int, at_us: int) -> None:
        self._change(ChangeKind.INACTIVE, self.jobs.pop(job).tenant, at_us=at_us, job=job)


def some_rounds(
    policy: str, seed: int, count: int, options: dict[str, Any] | None = None
) -> list[tuple[Snapshot, Decision]]:
    """Return the first rounds of a random pool."""
    chance = Random(seed)  # noqa: S311 - data for tests
    return list(RandomPool(policy, chance, options or {}).rounds(count))


def _scaled(rows: tuple[Entitlement, ...], nodes: tuple[Node, ...]) -> tuple[Entitlement, ...]:
    """Return the quotas, scaled down to the pool."""
    left = dict.fromkeys(TYPES, 0)
    for node in nodes:
        left[node.gpu_type] += node.gpus
    new = []
    for row in rows:
        gpus = min(row.gpus, left[row.gpu_type])
        left[row.gpu_type] -= gpus
        new.append(changed(row, gpus=gpus))
    return tuple(new)


# Options in addition to the defaults, with which a policy reads or remembers more.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "ltgf": ({"reserve_after_leases": 1}, {"deadline_bonus": 1.0}),
    "evenshare": (
        {"estimates": "given"},
        {"estimates": "deadlines"},
        {"promises": True, "min_runtime_s": 60},
    ),
    "oef": ({"reserve_after_leases": 1},),
    "gandiva_fair": ({"tickets": "paper"}, {"quantum_s": 60, "gain_percent": 0}),
    "unisched": ({"lease_multiple": 2},),
    "market": ({"theta": "fixed"}, {"interval_s": 300}),
    "themis": ({"estimate_error": 0.5},),
}


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Return every policy of the registry with its default options, and with others for some."""
    return [
        (name, options) for name in sorted(POLICIES) for options in ({}, *VARIANTS.get(name, ()))
    ]
