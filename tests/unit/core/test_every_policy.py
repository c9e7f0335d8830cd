"""Test every policy with random pools: it decides, and gives reasons for waiting jobs.

`decide_round` checks the invariants of every decision: capacity, gangs, accepted types and
profiles, quota modes and limits, protected leases, reasons for
waiting jobs. The random pools have all of these features at once.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.ltgf_pool import advanced, pool
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import ChangeKind, Service, Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import certify_round, decide_round, queue_order
from evenshare_core.policies.options import Option, describe_options
from evenshare_core.policies.registry import POLICIES, options
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob
from evenshare_core.units import HOUR_US, REWARD_MICRO, SECOND_US
from tests.unit.core.snapshots import job, lease, snapshot

pytestmark = pytest.mark.usefixtures("quick_plans")

TYPES = ("k80", "p100", "v100")
SEEDS = range(16)
every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))
# The reference solvers are slow, and have their own tests.
SLOW = {"backend"}


def drawn_option(rng: random.Random, option: Option) -> Any:
    """Return a random value within the option's bounds, often near the default."""
    match option.kind:
        case "switch":
            return rng.random() < 0.5
        case "choice":
            return rng.choice(option.choices)
        case "integer":
            most = min(option.most or 10**9, 2 * option.default + 3)
            return rng.randint(int(option.least or 0), max(int(option.least or 0), int(most)))
    return rng.uniform(option.least or 0.0, option.most if option.most is not None else 1.0)


def drawn_options(rng: random.Random, policy: str, without: set[str]) -> dict[str, Any]:
    """Return random valid options of a policy, sometimes the defaults."""
    if rng.random() < 0.3:
        return {}
    described = describe_options(POLICIES[policy].options_type)
    raw = {row.name: drawn_option(rng, row) for row in described if row.name not in without}
    options(policy, raw)
    return raw


def drawn_job(rng: random.Random, row: Job, held: set[str], profiles: list[Profile]) -> Job:
    """Return a job with or without a profile, which accepts only types on which it can run.

    `held` has the types on which it has already run.
    """
    estimate_us = rng.choice((None, 0, rng.randrange(5 * HOUR_US)))
    mine = [one for one in profiles if one.tenant == row.tenant]
    fitting = [one for one in mine if held <= dict(one.speedups).keys()]
    if not fitting or rng.random() < 0.4:
        return replace(row, estimate_us=estimate_us)
    profile = rng.choice(fitting)
    types = tuple(name for name, speed in profile.speedups if speed)
    return replace(row, estimate_us=estimate_us, profile=profile.id, gpu_types=types)


def drawn_deadline(rng: random.Random, job_id: int, at_us: int) -> Deadline:
    """Return a strict or soft deadline; some or all of its steps may have passed."""
    ends_us = sorted(
        {at_us + rng.randrange(-HOUR_US, 8 * HOUR_US) for _ in range(rng.choice((1, 3)))}
    )
    steps = tuple(
        DeadlineStep(by_us, (100 - 30 * place) * REWARD_MICRO)
        for place, by_us in enumerate(ends_us)
    )
    kind = DeadlineClass.STRICT if len(steps) == 1 else DeadlineClass.SOFT
    return Deadline(job_id, kind, steps)


def drawn(policy: str, seed: int, without: set[str] = SLOW) -> Snapshot:
    """Return a random pool with limits, profiles, protected leases, a lost node and large jobs."""
    rng = random.Random(f"{policy} {seed}")  # noqa: S311 - a seeded pool, not a secret
    made = pool(
        seed=seed, nodes=rng.randint(2, 9), tenants=rng.randint(1, 5), pending=rng.randint(0, 30),
        fill=rng.choice((0.0, 0.6, 1.0)), expired=rng.choice((0.0, 0.4, 1.0)),
        gpu_types=rng.choice((TYPES[-1:], TYPES)), limits=bool(seed % 3), several=0.4,
    )  # fmt: skip
    profiles = [
        Profile(index, 1 + index % len(made.tenants),
                tuple((name, speed) for name in TYPES if (speed := rng.choice((0, 1000, 4000)))),
                rng.randint(1, 3))
        for index in range(1, 9)
    ]  # fmt: skip
    profiles = [row for row in profiles if row.speedups]
    held: dict[int, set[str]] = {row.id: set() for row in made.jobs}
    for change in made.changes:
        if change.kind is ChangeKind.HOLD:
            held[change.job] |= set(change.gpu_types)
    for lease_ in made.leases:
        held[lease_.job].add(lease_.gpu_type)
    jobs = [drawn_job(rng, row, held[row.id], profiles) for row in made.jobs]
    leases = [
        replace(row, protected_until_us=rng.choice((0, 0, made.at_us + SECOND_US)))
        for row in made.leases
    ]
    by_id = {row.id: row for row in jobs}
    changes = tuple(
        replace(row, gpu_types=by_id[row.job].gpu_types) if row.kind is ChangeKind.ACTIVE else row
        for row in made.changes
    )
    tells = seed % 2 == 0
    resources = {
        "node_resources": tuple(
            Resources(row.id, rng.choice((8, 32)), rng.choice((64, 512)))
            for row in made.nodes
            if tells and rng.random() < 0.8
        ),
        "job_resources": tuple(
            Resources(row.id, row.gpus * rng.choice((0, 1, 4)), row.gpus * rng.choice((0, 8, 64)))
            for row in jobs
            if tells and rng.random() < 0.8
        ),
    }
    nodes = [replace(row, gpus=rng.choice((0, 4, 8, 8, 8, 8))) for row in made.nodes]
    other = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    timed = {
        "deadlines": tuple(drawn_deadline(other, row.id, made.at_us) for row in jobs if row.id % 3),
        "estimates": tuple(
            JobEstimate(row.id, EstimateSource.HISTORY, other.choice((0, 50, 400)), SECOND_US, 700)
            for row in jobs
            if row.id % 2
        ),
    }
    return replace(
        made, policy=policy, policy_version=POLICIES[policy].version, jobs=tuple(jobs),
        leases=tuple(leases), nodes=tuple(nodes), profiles=tuple(profiles), changes=changes,
        options=drawn_options(rng, policy, without), **resources, **timed,
    )  # fmt: skip


@cache
def decided(policy: str, seed: int) -> tuple[Snapshot, Decision]:
    """Return a random pool and its round, cached for several tests."""
    asked = drawn(policy, seed)
    return asked, decide_round(asked)


def checked(asked: Snapshot) -> Decision:
    """Return the round's decision, after checking that its certificate has no violation."""
    decision = decide_round(asked)
    certificate = certify_round(asked, decision)
    assert not certificate.failure
    return decision


@every_policy
class TestRound:
    def test_overfills_no_node_and_gives_one_reason_per_job(self, policy: str) -> None:
        """The test counts the used GPUs of nodes itself, too; `decide_round` checks them first."""
        waits = 0
        for seed in SEEDS:
            asked, decision = decided(policy, seed)
            assert not certify_round(asked, decision).failure
            gone = {row.lease for row in decision.ends}
            used: Counter[int] = Counter()
            for place in [row.placement for row in asked.leases if row.id not in gone]:
                used.update(dict(place))
            before = Counter(used)
            for grant in decision.grants:
                used.update(dict(grant.placement))
            sizes = {node.id: node.gpus for node in asked.nodes}
            assert all(used[node] <= max(sizes[node], before[node]) for node in used)
            holders = {row.job for row in asked.leases if row.id not in gone}
            holders |= {row.job for row in decision.grants}
            reasons = Counter(one for row in decision.skips for one in row.jobs)
            assert reasons == Counter(row.id for row in asked.jobs if row.id not in holders)
            waits += len(reasons)
        assert waits > 50

    def test_keeps_protected_leases(self, policy: str) -> None:
        for seed in SEEDS:
            asked, decision = decided(policy, seed)
            touched = {row.lease for row in decision.ends}
            touched |= {row.lease for row in decision.renewals}
            safe = {row.id for row in asked.leases if row.protected_until_us > asked.at_us}
            assert not touched & safe

    def test_is_deterministic_and_keeps_snapshot(self, policy: str) -> None:
        for seed in SEEDS:
            asked, decision = decided(policy, seed)
            before, first = canonical_bytes(asked), canonical_bytes(decision)
            assert canonical_bytes(decide_round(asked)) == first
            assert canonical_bytes(asked) == before == canonical_bytes(drawn(policy, seed))
            assert canonical_bytes(decide_round(decode(before, Snapshot))) == first
            assert canonical_bytes(decode(first, Decision)) == first

    def test_is_independent_of_row_order(self, policy: str) -> None:
        names = ("nodes", "tenants", "entitlements", "jobs", "leases", "profiles",
                 "node_resources", "job_resources", "deadlines", "estimates")  # fmt: skip
        for seed in SEEDS:
            asked = advanced(drawn(policy, seed))
            rng = random.Random(seed)  # noqa: S311 - a seeded shuffle
            rows = {name: list(getattr(asked, name)) for name in names}
            for some in rows.values():
                rng.shuffle(some)
            mixed = replace(asked, **{name: tuple(some) for name, some in rows.items()})
            assert canonical_bytes(decide_round(mixed)) == canonical_bytes(decide_round(asked))

    def test_uses_only_order_of_ids(self, policy: str) -> None:
        for seed in SEEDS:
            asked, decision = decided(policy, seed)
            other = decide_round(renamed(asked))
            assert outline(other) == [renamed_row(row) for row in outline(decision)]

    def test_queue_order_lists_existing_jobs_once(self, policy: str) -> None:
        for seed in SEEDS:
            asked, decision = decided(policy, seed)
            order = queue_order(asked, decision.service)
            if order is not None:
                assert len(set(order)) == len(order)
                assert set(order) <= {row.id for row in asked.jobs}


def another(number: int) -> int:
    """Return a different id in the same order; 0 stays 0."""
    return 7 * number + 3 if number else 0


def renamed(asked: Snapshot) -> Snapshot:
    """Return the pool with all ids replaced, in the same order."""

    def row_of(row: Any) -> Any:
        names = {"id", "tenant", "job", "profile"} & set(row.__struct_fields__)
        fields: dict[str, Any] = {name: another(getattr(row, name)) for name in names}
        if "placement" in row.__struct_fields__:
            fields["placement"] = tuple((another(node), gpus) for node, gpus in row.placement)
        return replace(row, **fields)

    names = ("nodes", "tenants", "entitlements", "jobs", "leases", "profiles", "changes",
             "node_resources", "job_resources", "deadlines", "estimates")  # fmt: skip
    return replace(
        asked, **{name: tuple(row_of(row) for row in getattr(asked, name)) for name in names}
    )


Outline = tuple[str, str, tuple[int, ...], tuple[tuple[int, int], ...]]


def outline(decision: Decision) -> list[Outline]:
    """Return the decision as rows of (action, reason, ids, placement)."""
    rows: list[Outline] = [
        ("grant", row.gpu_type, (row.job, row.tenant), row.placement) for row in decision.grants
    ]
    rows += [("renew", row.gpu_type, (row.lease, row.job), ()) for row in decision.renewals]
    rows += [("end", row.reason.value, (row.lease, row.job), ()) for row in decision.ends]
    rows += [
        ("preempt", row.rule.value, (row.lease, row.job, row.for_job), ())
        for row in decision.preemptions
    ]
    rows += [("skip", row.reason.value, (row.tenant, *row.jobs), ()) for row in decision.skips]
    return rows


def renamed_row(row: Outline) -> Outline:
    what, text, ids, placement = row
    places = tuple((another(node), gpus) for node, gpus in placement)
    return (what, text, tuple(another(number) for number in ids), places)


NOTHING: dict[str, tuple[Any, ...]] = {"tenants": (), "entitlements": (), "jobs": (), "leases": ()}


@every_policy
class TestUnusualPool:
    def odd(self, policy: str, jobs: list[Job], **fields: Any) -> Snapshot:
        fields = {"nodes": {1: 8}, "policy": policy, **fields}
        return snapshot(jobs, policy_version=POLICIES[policy].version, **fields)

    def test_returns_empty_decision_for_empty_pool(self, policy: str) -> None:
        empty = replace(self.odd(policy, []), **NOTHING, changes=(), service=Service(at_us=0))
        for asked in (empty, replace(empty, nodes=()), self.odd(policy, [])):
            decision = checked(asked)
            assert (*decision.grants, *decision.renewals, *decision.ends) == ()
            assert decision.skips == ()

    def test_reports_job_larger_than_pool(self, policy: str) -> None:
        decision = checked(self.odd(policy, [job(1, 99), job(2, 4)]))
        assert [row.job for row in decision.grants] == [2]
        (skip,) = decision.skips
        assert (skip.jobs, skip.reason) == ((1,), Reason.TOO_LARGE)

    def test_accepts_jobs_of_tenants_without_quota(self, policy: str) -> None:
        """Some of these tenants have a quota of 0 GPUs, others have no quota row."""
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 0))
        jobs = [job(number, 2, tenant=number % 4) for number in range(1, 8)]
        checked(self.odd(policy, jobs, quotas=quotas))

    def test_avoids_lost_and_removed_nodes(self, policy: str) -> None:
        """Leases on such a node are not renewed, and nothing starts on it."""
        jobs = [job(1, 4), job(2, 4), job(3, 2), job(4, 8)]
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (2, 4))]
        whole = self.odd(policy, jobs, leases=leases, nodes={1: 4, 2: 4})
        lost = replace(whole, nodes=(Node(1, "v100", 0), Node(2, "v100", 4)))
        for asked in (lost, replace(whole, nodes=whole.nodes[1:])):
            decision = checked(asked)
            assert 1 not in {row.lease for row in decision.renewals}
            assert {node for row in decision.grants for node, _ in row.placement} <= {2}
            assert 4 in {one for row in decision.skips for one in row.jobs}
        decision = checked(replace(whole, nodes=(Node(1, "v100", 0), Node(2, "v100", 0))))
        assert {row.lease for row in decision.ends} == {1, 2}
        assert not decision.grants

    @pytest.mark.parametrize(("tenant", "most"), [(1, 4), (3, 2)])
    def test_does_not_lend_reserved_quota(self, policy: str, tenant: int, most: int) -> None:
        """The second tenant reserves its 4 GPUs, and the third may not borrow at all."""
        quotas = (
            Entitlement(1, "v100", 2),
            Entitlement(2, "v100", 4, mode=Mode.RESERVE),
            Entitlement(3, "v100", 2, mode=Mode.LEND),
        )
        jobs = [job(number, 1, tenant=tenant) for number in range(1, 17)]
        assert len(checked(self.odd(policy, jobs, quotas=quotas)).grants) <= most

    def test_rejects_jobs_above_price_or_credit(self, policy: str) -> None:
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 0))
        jobs = [job(1, 2, max_price_micro=5), job(2, 2, tenant=2)]
        asked = self.odd(policy, jobs, quotas=quotas, price_micro=10, credit={2: 1})
        decision = checked(asked)
        assert not decision.grants
        reasons = {one: row.reason for row in decision.skips for one in row.jobs}
        allowed = {Reason.PRICE_ABOVE_MAX, Reason.BUDGET, Reason.QUOTA_LIMIT}
        assert set(reasons.values()) <= allowed


@every_policy
class TestConsecutiveRounds:
    """Consecutive rounds while nodes are lost and return; the state becomes JSON in between."""

    def test_state_through_json_gives_same_decisions(self, policy: str) -> None:
        plain, stored = self.state(policy), self.state(policy)
        for number in range(60):
            at_us = number * 60 * SECOND_US
            plain.advance(at_us)
            stored.advance(at_us)
            decision = decide_round(plain.snapshot())
            asked = decode(canonical_bytes(stored.snapshot()), Snapshot)
            again = decode(canonical_bytes(decide_round(asked)), Decision)
            assert canonical_bytes(again) == canonical_bytes(decision)
            plain.apply(decision)
            stored.apply(again)

    def state(self, policy: str) -> SimulationState:
        rules = Rules(policy, {}, round_us=60 * SECOND_US, lease_us=420 * SECOND_US)
        nodes = tuple(Node(i, TYPES[1 + i % 2], 8) for i in range(1, 5))
        quotas = tuple(
            Entitlement(tenant, name, gpus) for tenant, gpus in ((1, 10), (2, 6), (3, 0))
            for name in TYPES[1:]
        )  # fmt: skip
        changes = (
            NodeChange(600 * SECOND_US, 1, 0), NodeChange(900 * SECOND_US, 2, 4),
            NodeChange(1500 * SECOND_US, 1, 8), NodeChange(1800 * SECOND_US, 2, 8),
        )  # fmt: skip
        return SimulationState(Cluster(nodes, quotas, changes=changes), self.jobs(), rules)

    def jobs(self) -> tuple[SimJob, ...]:
        rng = random.Random(8)  # noqa: S311 - a seeded workload
        rows = []
        for index in range(1, 61):
            length_us = rng.randint(60, 1500) * SECOND_US
            rows.append(
                SimJob(
                    index, rng.randint(1, 3), rng.choice((1, 1, 2, 4, 8, 12)),
                    index * 20 * SECOND_US, length_us,
                    rng.choice(((), TYPES[1:], TYPES[1:2])),
                    estimate_us=rng.choice((None, length_us)),
                )
            )  # fmt: skip
        return tuple(rows)


def test_drawn_pools_cover_documented_features() -> None:
    asked = [drawn("fifo", seed) for seed in SEEDS]
    assert any(row.spendable_micro is not None for one in asked for row in one.tenants)
    assert any(not node.gpus for one in asked for node in one.nodes)
    assert any(job.profile for one in asked for job in one.jobs)
    assert any(len({node.gpu_type for node in one.nodes}) == 3 for one in asked)
    protected = [row for one in asked for row in one.leases if row.protected_until_us > one.at_us]
    assert any(row.expires_us <= asked[0].at_us for row in protected)
