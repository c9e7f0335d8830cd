"""Test the order in which a policy's queue lists the waiting jobs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import fits_pool
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.units import HOUR_US, MINUTE_US, SECOND_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

# With these options no job is left out, so a round with enough room picks every job.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ltgf": [{}, {"new_jobs_first": True}, {"lease_bonus": 0.1, "new_job_bonus": 0.3}],
    "evenshare": [{}, {"preset": "tight"}, {"estimates": "given"}, {"estimates": "deadlines"}],
    "fifo": [{}, {"scope": "tenant"}, {"backfill": True}],
    "sjf": [{}, {"backfill": True}],
    "srtf": [{}],
    "yarn_cs": [{}, {"whole_nodes": True}],
    "tiresias_l": [{}, {"promote_after": 1}],
    "themis": [{}, {"estimate_error": 0.5}],
    "optimus": [{}],
    "genie": [{}, {"late_first": True}],
    "hydra": [{}],
    "three_sigma": [{}, {"window_slots": 2, "exact_jobs": 0}],
    "chronus": [{}],
    "batch_sche": [{}, {"unknown_s": 5}],
    "hived": [{}],
    "allox": [{}, {"tenant_fraction": 1, "matched_jobs": 5}],
    "drf": [{}, {"weights": "equal"}],
    "market": [{}],
}

# Policies whose order changes before the next start, as time passes and tenants make progress. A
# job may also wait for its own quota while a later job borrows.
DRIFTS = {"themis", "allox", "market"}


def with_room(policy: str, options: dict[str, Any], seed: int) -> Snapshot:
    """Return a round with waiting jobs of three tenants, leases that end now, and GPUs for all."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    jobs: list[Job] = []
    for number in range(1, 25):
        estimate = rng.choice((None, rng.randrange(1, 10_000)))
        jobs.append(
            job(number, rng.choice((1, 1, 2, 4)), tenant=rng.randint(1, 3), estimate_us=estimate)
        )
    held = [
        lease(100 + one.id, one.id, (1, one.gpus), tenant=one.tenant) for one in jobs if one.id < 6
    ]
    quotas = [Entitlement(tenant, "v100", 60 * tenant) for tenant in (1, 2, 3)]
    return snapshot(jobs, held, nodes={1: 400}, quotas=quotas, policy=policy, options=options)


def with_hopeless(policy: str, options: dict[str, Any], seed: int) -> Snapshot:
    """Return `with_room` plus early and late jobs of every tenant that no round may start.

    They are larger than the pool, or than the 280 GPUs that the third tenant may hold. Some other
    gangs were skipped for days.
    """
    asked = with_room(policy, options, seed)
    rng = Random(seed)  # noqa: S311 - a test's seed
    large = [
        job(rng.choice((-1, 1)) * (30 + index), gpus, tenant=tenant)
        for index, (tenant, gpus) in enumerate([(1, 401), (2, 500), (3, 500), (3, 281), (1, 500)])
    ]
    quotas = [Entitlement(1, "v100", 60), Entitlement(2, "v100", 120)]
    quotas.append(Entitlement(3, "v100", 180, Mode.LEND_AND_BORROW, borrow_limit=100))
    gangs = {str(one.id): -(10**12) for one in asked.jobs if rng.random() < 0.3}
    memory = {}
    if policy == "ltgf":
        reserved = rng.choice([{}, {"v100": {"job": rng.randrange(6, 25), "holds": []}}])
        memory = {"passed": gangs, "reserved": reserved}
    return snapshot(
        [*asked.jobs, *large], asked.leases, nodes={1: 400}, quotas=quotas,
        policy=policy, options=options, memory=memory,
    )  # fmt: skip


def starts(asked: Snapshot, minutes: int) -> list[int]:
    """Return the jobs in the order of their starts. No job arrives, and each takes `minutes`."""
    order = [one.id for one in asked.jobs]
    work = dict.fromkeys(order, Work(minutes * MINUTE_US))
    state = PresentState(Start(asked, work))
    run(state, SimulationResult(state.books, 0, state.at_us), until_us=AT_US + 240 * HOUR_US)
    assert not state.leases
    first: dict[int, int] = {}
    for row in sorted(state.books.leases, key=lambda row: row.lease):
        first.setdefault(row.job, row.start_us)
    return list(first)


def picks(decision: Decision) -> list[int]:
    rows = [(row.order, row.job) for row in decision.grants]
    rows += [(row.order, row.job) for row in decision.renewals]
    return [job for _, job in sorted(rows)]


def assert_order_is_that_of_picks(asked: Snapshot) -> None:
    """Check that the 24 jobs that may start do start, in the order of the queue."""
    decision = decide_round(asked)
    picked = picks(decision)
    assert len(picked) == 24
    assert list(queue_order(asked, decision.service) or ()) == picked


class TestQueueOrder:
    @pytest.mark.parametrize("policy", sorted(OPTIONS))
    def test_matches_picks_if_all_jobs_fit(self, policy: str) -> None:
        for options in OPTIONS[policy]:
            for seed in range(10):
                assert_order_is_that_of_picks(with_room(policy, options, seed))

    @pytest.mark.parametrize("policy", sorted(OPTIONS))
    def test_matches_picks_with_jobs_that_can_never_start(self, policy: str) -> None:
        for options in OPTIONS[policy]:
            for seed in range(30):
                assert_order_is_that_of_picks(with_hopeless(policy, options, seed))

    @pytest.mark.parametrize("policy", sorted(OPTIONS.keys() - DRIFTS))
    def test_matches_starts_in_later_rounds(self, policy: str) -> None:
        """The pool has two GPUs.

        Each job takes slightly less than its lease, so no job differs from the others.
        """
        for seed in range(5):
            rng = Random(seed)  # noqa: S311 - a test's seed
            jobs = [
                job(number, 1, tenant=rng.randint(1, 2), estimate_us=rng.randrange(1, 10_000))
                for number in range(1, 15)
            ]
            jobs += [job(20, 3, tenant=1), job(-20, 3, tenant=2)]
            quotas = [Entitlement(tenant, "v100", 1) for tenant in (1, 2)]
            asked = snapshot(
                jobs, nodes={1: 2}, quotas=quotas, policy=policy, round_us=30 * SECOND_US
            )
            order = list(queue_order(asked, decide_round(asked).service) or ())
            assert len(order) == 14
            started = starts(asked, 59)
            # These policies serve tenants within quota or by deserved GPU-time. So only the order
            # within each tenant is compared.
            if policy in {"evenshare", "yarn_cs", "batch_sche", "hived"}:
                by_id = {one.id: one.tenant for one in jobs}
                order.sort(key=by_id.__getitem__)
                started.sort(key=by_id.__getitem__)
            assert started == order

    def test_exists_for_every_policy_without_a_program(self) -> None:
        decided = {name: decide_round(with_room(name, {}, 1)).service for name in POLICIES}
        ordered = {
            name
            for name in POLICIES
            if queue_order(with_room(name, {}, 1), decided[name]) is not None
        }
        assert ordered == set(OPTIONS)
        programs = {
            name
            for name, policy in POLICIES.items()
            if policy.traits.trades_types or policy.traits.answers_deadlines
        }
        assert ordered == set(POLICIES) - programs, "who shares by a program has no queue"

    def test_counts_tenants_earlier_jobs(self) -> None:
        jobs = [job(number, 1, tenant=1) for number in (1, 2, 3)] + [job(4, 1, tenant=2)]
        quotas = [Entitlement(tenant, "v100", 2) for tenant in (1, 2)]
        asked = snapshot(jobs, nodes={1: 4}, quotas=quotas)
        assert queue_order(asked, decide_round(asked).service) == (1, 4, 2, 3)

    def test_omits_jobs_that_may_not_start(self) -> None:
        jobs = [job(1, 9), job(2, 1), job(3, 1), job(4, 1, gpu_types=("t4",))]
        asked = snapshot(jobs, nodes={1: 8})
        asked = replace(asked, schema=3, backoffs=(Backoff(3, AT_US + 1, 2),))
        assert queue_order(asked, decide_round(asked).service) == (2,)

    def test_gang_with_held_back_nodes_comes_first(self) -> None:
        jobs = [job(1, 1), job(2, 4)]
        memory = {"passed": {"2": 1}, "reserved": {"v100": {"job": 2, "holds": [[1, 4]]}}}
        asked = snapshot(jobs, nodes={1: 4}, memory=memory)
        assert queue_order(asked, decide_round(asked).service) == (2, 1)

    def test_counts_held_back_gang_before_other_jobs(self) -> None:
        jobs = [job(1, 1), job(2, 4), job(3, 1, tenant=2), job(4, 1, tenant=2)]
        quotas = [Entitlement(tenant, "v100", 3) for tenant in (1, 2)]
        memory = {"passed": {"2": -(10**12)}}
        asked = snapshot(jobs, nodes={1: 7}, quotas=quotas, memory=memory)
        decision = decide_round(asked)
        assert picks(decision) == [2, 3, 4, 1], "skipped for days, it is held back for now"
        assert queue_order(asked, decision.service) == (2, 3, 4, 1)


class TestFitsPool:
    @pytest.mark.parametrize(
        ("gpus", "types", "fits"),
        [
            (8, (), True),
            (9, (), False),
            (4, ("t4",), True),
            (5, ("t4",), False),
            (5, ("t4", "v100"), True),
            (1, ("a100",), False),
        ],
    )
    def test_compares_with_capacity_of_one_accepted_type(
        self, gpus: int, types: tuple[str, ...], *, fits: bool
    ) -> None:
        assert fits_pool(gpus, types, {"v100": 8, "t4": 4}) is fits

    def test_is_false_for_pool_without_nodes(self) -> None:
        assert not fits_pool(1, (), {})
