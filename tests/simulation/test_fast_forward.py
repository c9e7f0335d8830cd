"""Test that rounds on kept sums, limits and queues equal those of `decide_round` on a snapshot."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.utilities import Utility, read_utility
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.fast_forward import Rounds
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import (
    Cluster,
    NodeChange,
    SimJob,
    make_nodes,
    quotas_by_demand,
    synthetic,
)
from evenshare_core.units import SECOND_US
from tests.tiers import SITE_POLICIES

pytestmark = pytest.mark.usefixtures("quick_plans")

MINUTE_US = 60 * SECOND_US
ROUNDS = 240
KEPT = sorted(name for name, policy in POLICIES.items() if policy.session({}) is not None)
PARTITIONS = {"yarn_cs", "batch_sche"}  # these policies borrow only for oversized gangs
# Options by policy, each used with some seed; {} is the default.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ltgf": [
        {},
        {"work_conserving": False, "tenant_share": "quota", "new_jobs_first": True},
        {"fairness_window_s": 600, "reserve_after_leases": 1},
        {"spread": True, "lease_bonus": 0.1, "new_job_bonus": 0.3, "deadline_bonus": 2.0},
        {"reserve_after_leases": 0},
    ],
    "evenshare": [
        {},
        {"promises": False, "estimates": "given", "min_runtime_s": 60},
        {"promises": False, "preset": "tight", "gangs_per_round": 1},
        {"promises": False, "window_s": 600, "min_runtime_s": 0, "moves_per_round": 3},
        {"promises": False, "preset": "tight", "estimates": "given", "min_runtime_s": 0},
        {"promises": False, "min_runtime_s": 60},
        {"min_runtime_s": 60, "restart_budget_percent": 20},
        {"preset": "tight", "window_s": 600},
        {"estimates": "given", "min_runtime_s": 0, "restart_budget_percent": 0},
    ],
    "fifo": [
        {},
        {"scope": "tenant", "spread": True},
        {"backfill": True, "whole_nodes": False},
    ],
    "sjf": [
        {},
        {"scope": "tenant"},
        {"backfill": True, "whole_nodes": False, "spread": True},
    ],
    "srtf": [{}, {"spread": True}],
    "yarn_cs": [{}, {"oversized": False, "spread": True}, {"whole_nodes": True}],
    "tiresias_l": [{}, {"queues": 2, "first_threshold": 900, "spread": True}],
    "optimus": [{}, {"unknown_s": 600, "spread": True}],
    "market": [
        {},
        {"interval_s": 0, "horizon_s": 3600},
        {"theta": "fixed", "interval_s": 300, "spread": True},
        {"borrow_limit": "job", "theta_factor": 0.8},
        {"plan_jobs": 5, "default_bid": 0.4},
    ],
}
UTILITIES = (
    None,
    "bid per_gpu_hour=0.4",
    "bid per_gpu_hour=2.5",
    "linear k=-1.5 g=0.9",
    "convex e=0.5 kappa=1.2",
)


def jobs_of(rng: random.Random, seed: int, types: list[str], *, limited: bool) -> list[SimJob]:
    """Return jobs that overload a small pool for hours.

    Some gangs span nodes, and some never fit.
    """
    work = synthetic(seed=seed, jobs=160, tenants=4, hours=1, failed=0.1, cancelled=0.1)
    jobs = []
    for job in work.jobs:
        accepted = rng.choice(((), (), tuple(types), (rng.choice(types),), ("t4",)))
        jobs.append(
            replace(
                job,
                gpus=rng.choice((job.gpus, job.gpus, job.gpus, 8, 12, 60)),
                gpu_types=accepted,
                weight=rng.choice((1, 1, 3)),
                duration_us=min(job.duration_us, 40 * MINUTE_US),
                estimate_us=rng.choice((job.estimate_us, None)),
                deadline_us=rng.choice((None, job.submitted_us + 30 * MINUTE_US)),
                max_price_micro=rng.choice((None, 0, 600_000)) if limited else None,
                checkpoint_us=(None, 0, 3 * SECOND_US)[job.id % 3],
                cold_us=(None, 9 * SECOND_US)[job.id % 2],
                utility=worth(job.id),
            )
        )
    return jobs


def worth(job_id: int) -> Utility | None:
    """Return a job's utility, which only policies that compare it with prices use."""
    text = UTILITIES[job_id % len(UTILITIES)]
    return None if text is None else read_utility(job_id, text)


def limit(rng: random.Random, row: Entitlement) -> Entitlement:
    """Return the quota with a random limit on lending or borrowing."""
    return with_fields(
        row,
        mode=rng.choice(tuple(Mode)),
        borrow_limit=rng.choice((None, 2, 6)),
        lend_limit=rng.choice((None, 1)),
    )


def drawn(policy: str, seed: int) -> tuple[Cluster, tuple[SimJob, ...], Rules]:
    """Return a random pool by seed, with or without churn, limits and options."""
    rng = random.Random(f"{policy} {seed}")  # noqa: S311 - a seeded workload, not a secret
    has_churn, is_limited = bool(seed % 2), seed % 3 == 2
    types = ["k80", "v100"][: 1 + rng.randrange(2)]
    nodes = tuple(
        Node(index, types[index % len(types)], rng.choice((4, 8)))
        for index in range(1, 5 + rng.randrange(4))
    )
    jobs = jobs_of(rng, seed, types, limited=is_limited)
    quotas = tuple(
        with_fields(row, gpus=rng.randrange(row.gpus + 2))
        for row in quotas_by_demand(tuple(jobs), nodes)
    )
    if is_limited:
        quotas = tuple(limit(rng, row) for row in quotas)
    changes = []
    # a node is lost, halved or restored, sometimes while leases run on it
    for _ in range(30 if has_churn else 0):
        node = rng.choice(nodes)
        gpus = rng.choice((0, node.gpus // 2, node.gpus, node.gpus))
        changes.append(NodeChange(rng.randrange(2 * 3600) * SECOND_US, node.id, gpus))
    speeds = {"k80": 1000, "v100": 2500} if rng.random() < 0.3 else {}
    options = OPTIONS[policy][seed % len(OPTIONS[policy])]
    rules = Rules(
        policy, options, round_us=rng.choice((20, 60)) * SECOND_US,
        lease_us=rng.choice((2, 7)) * MINUTE_US, cold_us=rng.choice((0, 20 * SECOND_US)),
        checkpoint_us=rng.choice((0, SECOND_US)),
    )  # fmt: skip
    bounds = (rules.lease_us // 2, 30 * MINUTE_US) if options.get("borrow_limit") else ()
    rules = replace(rules, lease_bounds_us=bounds)
    cluster = Cluster(nodes, quotas, changes=tuple(changes), speeds=speeds, spread_milli=700)
    return cluster, tuple(jobs), rules


def told(state: SimulationState) -> tuple[object, ...]:
    """Return all inputs of the next round except the sums."""
    return (
        state.number, state.leases, state.prices, state.memory, state.queue, state.changes,
        state.occupancy.gpus, state.occupancy.held, state.entitle(),
    )  # fmt: skip


def both(policy: str, seed: int, seen: Counter[str]) -> None:
    """Run two states in parallel, and check that they are equal after each round."""
    cluster, jobs, rules = drawn(policy, seed)
    asked, kept = SimulationState(cluster, jobs, rules), SimulationState(cluster, jobs, rules)
    ask, keep = Rounds(asked, fast_forward=False), Rounds(kept)
    for step in range(ROUNDS):
        at_us = step * rules.round_us
        asked.advance(at_us)
        kept.advance(at_us)
        if asked.is_quiet:
            assert kept.is_quiet
            continue
        assert ask.run() == keep.run()
        assert told(kept) == told(asked)
        seen["waits"] += bool(kept.queue)
        seen["remembered"] += bool(kept.memory)
        seen["held back"] += "reserved" in kept.memory
        # often enough to compare the sums, but rarely enough for them to lag behind
        if step % 45 == 44:
            keep.close()
            assert kept.service == asked.service
    seen.update(row.reason for row in kept.books.leases)
    assert kept.books.sha256() == asked.books.sha256()


class TestRounds:
    def test_options_cover_every_policy_with_kept_queues(self) -> None:
        assert sorted(OPTIONS) == KEPT

    @pytest.mark.parametrize(
        ("policy", "first"),
        [
            *((policy, 0) for policy in KEPT),
            ("ltgf", 9),
            *(
                pytest.param(policy, 9, marks=pytest.mark.soak)
                for policy in ("evenshare", "market")
            ),
        ],
    )
    def test_decisions_match_full_snapshot(self, policy: str, first: int) -> None:
        seen: Counter[str] = Counter()
        for seed in range(first, first + max(7, len(OPTIONS[policy]))):
            both(policy, seed, seen)
        reasons = {EndReason.FINISHED, EndReason.NODE_LOST, EndReason.CANCELLED}
        assert {"waits", *(reason.value for reason in reasons)} <= set(seen), seen
        if policy not in PARTITIONS:
            assert seen[EndReason.PRICE_ABOVE_MAX.value], seen
        if policy == "evenshare":
            assert min(seen[EndReason.PREEMPTED.value], seen[EndReason.MOVED.value]) > 5, seen
        if policy == "ltgf":
            assert seen["remembered"] > seen["held back"] > 0, seen

    def test_withdrawn_renewal_keeps_order_of_ended_leases(self) -> None:
        """In this pool, the lease ends in the same round as a lease with a higher number."""
        both("evenshare", 44, Counter())


WORK = synthetic(seed=11, jobs=150, tenants=4, hours=6, failed=0.1, cancelled=0.1)


def pool(nodes: int) -> Cluster:
    rows = make_nodes({"v100": nodes}, 8)
    quotas = quotas_by_demand(WORK.jobs, rows)
    # Quotas differ from demand, so tenants borrow.
    return Cluster(
        rows, tuple(with_fields(row, gpus=row.gpus // (1 + row.tenant % 2)) for row in quotas)
    )


class TestWholeRun:
    @pytest.mark.parametrize(
        ("policy", "nodes", "round_s"),
        [
            *((policy, 6, 10) for policy in KEPT),
            *((policy, 6, 0) for policy in KEPT if policy in SITE_POLICIES),
            # Without a queue, most policies run a part of the same code.
            *(("fifo", 14, 10), ("yarn_cs", 14, 10)),
        ],
    )
    def test_books_and_sums_match_full_run(self, policy: str, nodes: int, round_s: int) -> None:
        rules = Rules(
            policy, round_us=round_s * SECOND_US, lease_us=5 * MINUTE_US, cold_us=20 * SECOND_US,
            checkpoint_us=SECOND_US,
        )  # fmt: skip
        asked = simulate(pool(nodes), WORK.jobs, rules, fast_forward=False)
        found = simulate(pool(nodes), WORK.jobs, rules)
        assert found.books.sha256() == asked.books.sha256()
        assert found.rounds == asked.rounds
        assert found.books.earned == asked.books.earned
        assert found.books.contributed() == asked.books.contributed()
        assert found.books.earned or policy in PARTITIONS

    @pytest.mark.parametrize(
        ("policy", "options", "until_us"),
        [
            *(("fifo", {}, None), ("ltgf", {}, None), ("srtf", {}, None)),
            ("ltgf", {"work_conserving": False}, None),
            ("ltgf", {}, 4 * 60 * MINUTE_US + 7),
        ],
    )
    def test_skips_rounds_only_if_work_conserving(
        self, policy: str, options: dict[str, Any], until_us: int | None
    ) -> None:
        rules = Rules(policy, options, round_us=10 * SECOND_US, lease_us=10**15)
        asked = simulate(pool(2), WORK.jobs, rules, fast_forward=False, until_us=until_us)
        instants = iter(range(10**9))
        found = simulate(
            pool(2), WORK.jobs, rules, until_us=until_us, timer=lambda: float(next(instants))
        )
        assert found.books.sha256() == asked.books.sha256()
        assert (found.rounds, found.end_us) == (asked.rounds, asked.end_us)
        # without work conservation, time changes which tenants are out of a round
        is_asked = "work_conserving" in options
        assert (len(found.decide_s) < found.rounds // 2) is not is_asked

    def test_timing_does_not_change_books(self) -> None:
        rules = Rules("ltgf", {"work_conserving": False}, 10 * SECOND_US, 5 * MINUTE_US)
        ticks = iter(range(10**9))
        timed = simulate(pool(6), WORK.jobs, rules, timer=lambda: float(next(ticks)))
        assert timed.books.sha256() == simulate(pool(6), WORK.jobs, rules).books.sha256()
        assert timed.decide_s == [1.0] * timed.rounds
