"""Rounds to recompute: rounds of the demo's pools, and of random pools with many unusual cases."""

from __future__ import annotations

import csv
import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode, Tenant
from evenshare_core.domain.held_jobs import HeldJob, HoldCode
from evenshare_core.domain.job_ranks import JobRank
from evenshare_core.domain.snapshot import Snapshot, Surcharge
from evenshare_core.money.fixed_point import largest_remainder
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    Cluster,
    NodeChange,
    SimJob,
    Workload,
    read_workload,
)
from evenshare_core.units import CREDIT_MICRO, SECOND_US
from portal.demo import mixed, philly
from portal.demo.data import DATA
from portal.demo.mixed_trace import TEAMS

# At this scale, the demo's `philly` has rounds of 5 s and leases of a quarter of an hour.
PHILLY_ROUND_S, PHILLY_LEASE_S, MIXED_LEASE_S = 5 * philly.SCALE, 900, 1800
SPEEDS = {"k80": 1000, "p100": 2000, "v100": 3500}
TYPES = ("k80", "p100", "v100")


class Pool(NamedTuple):
    """A pool for the simulator; lengths of rounds and leases are in seconds."""

    cluster: Cluster
    jobs: tuple[SimJob, ...]
    round_s: int
    lease_s: int

    def with_surcharges(self, wanted: bool) -> Pool:
        """Return the pool, with prices that rise with the queue if `wanted`."""
        types = sorted({node.gpu_type for node in self.cluster.nodes})
        rows = tuple(Surcharge(name, 50, 3000) for name in types) if wanted else ()
        return self._replace(cluster=dataclasses.replace(self.cluster, surcharges=rows))

    def rounds(
        self, count: int, policy: str = "ltgf", options: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Snapshot, Decision]]:
        """Yield the first `count` rounds, including rounds that could be skipped."""
        rules = Rules(
            policy, dict(options or {}), self.round_s * SECOND_US, self.lease_s * SECOND_US
        )
        state = SimulationState(self.cluster, self.jobs, rules)
        for number in range(count):
            state.advance(number * rules.round_us)
            snapshot = state.snapshot()
            decision = decide_round(snapshot)
            state.apply(decision)
            yield snapshot, decision


def philly_pool() -> Pool:
    """Return the demo's `philly` with its trace; quotas follow the nodes of its clusters."""
    trace = _trace("philly_2017-10-20.csv.gz")
    with (DATA / "philly_vc_nodes.csv").open(encoding="utf-8", newline="") as file:
        weights = {row["tenant"]: int(row["nodes"]) for row in csv.DictReader(file)}
    nodes = tuple(Node(n, "gpu", philly.GPUS_PER_NODE) for n in range(1, philly.NODES + 1))
    quotas = _quotas(trace, weights, {"gpu": philly.NODES * philly.GPUS_PER_NODE})
    return Pool(Cluster(nodes, quotas), trace.jobs, PHILLY_ROUND_S, PHILLY_LEASE_S)


def mixed_pool() -> Pool:
    """Return the demo's `mixed` on three GPU types; a type's speedup is the same for all jobs."""
    trace = _trace("mixed_24h.csv.gz")
    sizes = [(row.name, row.gpus) for row in mixed.GPU_TYPES for _ in range(row.nodes)]
    nodes = tuple(Node(n, *size) for n, size in enumerate(sizes, start=1))
    capacity = {row.name: row.nodes * row.gpus for row in mixed.GPU_TYPES}
    quotas = _quotas(trace, {team.tenant: team.quota for team in TEAMS}, capacity)
    prices = {row.name: (int(row.base * CREDIT_MICRO), 2000) for row in mixed.GPU_TYPES}
    cluster = Cluster(nodes, quotas, prices, SPEEDS)
    return Pool(cluster, trace.jobs, mixed.ROUND_S * mixed.SCALE, MIXED_LEASE_S)


def _trace(name: str) -> Workload:
    with (DATA / name).open("rb") as file:
        return read_workload(trace_lines(file)[1])


def _quotas(
    trace: Workload, weights: Mapping[str, int], capacity: Mapping[str, int]
) -> tuple[Entitlement, ...]:
    tenants = sorted(trace.tenants)
    parts = {
        name: largest_remainder(gpus, [weights.get(trace.tenants[one], 0) for one in tenants])
        for name, gpus in capacity.items()
    }
    rows = [
        Entitlement(tenant, name, parts[name][at])
        for at, tenant in enumerate(tenants) for name in sorted(capacity)
    ]  # fmt: skip
    return tuple(rows)


def odd_rounds(seed: int, count: int) -> Iterator[Snapshot]:
    """Yield rounds of a small pool in which nodes come and go, with every limit and option.

    Granted jobs keep running. All leases start and end at rounds, so that many
    leases end together.
    """
    rng = random.Random(seed)  # noqa: S311 - a pool, not a secret
    names = TYPES[: rng.choice((1, 2, 3))]
    nodes = tuple(Node(n, rng.choice(names), rng.choice((2, 4, 4, 8))) for n in range(1, 9))
    tenants = range(1, rng.randint(1, 4) + 1)
    quotas = [_odd_quota(rng, tenant, name) for tenant in tenants for name in names]
    changes = tuple(
        NodeChange(rng.randrange(count) * SECOND_US, rng.randint(1, 8), rng.choice((0, 2, 8)))
        for _ in range(rng.choice((0, 3)))
    )
    prices = {name: (rng.choice((400_000, 1_000_001)), rng.choice((1000, 1700, 2500)))
              for name in names}  # fmt: skip
    extra = tuple(Surcharge(name, 70, rng.choice((100, 900)))
                  for name in names if rng.random() < 0.5)  # fmt: skip
    jobs = tuple(_odd_job(rng, number, tenants, names, count) for number in range(1, 50))
    rules = Rules("ltgf", _odd_options(rng), 2 * SECOND_US, rng.choice((2, 4, 6)) * SECOND_US)
    present = {node.gpu_type for node in nodes}
    cluster = Cluster(
        nodes, tuple(row for row in quotas if row.gpu_type in present and row.gpus), prices,
        changes=changes, surcharges=tuple(row for row in extra if row.gpu_type in present),
    )  # fmt: skip
    state = SimulationState(cluster, jobs, rules)
    for number in range(count):
        state.advance(number * rules.round_us)
        snapshot = _odd(rng, state.snapshot())
        yield snapshot
        state.apply(decide_round(snapshot))


def _odd_quota(rng: random.Random, tenant: int, name: str) -> Entitlement:
    borrow, lend = rng.choice((None, None, 0, 3)), rng.choice((None, None, 0, 2))
    mode = rng.choice((*Mode, Mode.LEND_AND_BORROW))
    return Entitlement(tenant, name, rng.choice((0, 2, 5, 9)), mode, borrow, lend)


def _odd_job(
    rng: random.Random, number: int, tenants: range, names: tuple[str, ...], count: int
) -> SimJob:
    submitted_us = rng.choice((0, rng.randrange(2 * count * SECOND_US)))
    return SimJob(
        number, rng.choice(tenants), rng.choices((1, 2, 3, 4, 8, 12), (6, 4, 2, 3, 2, 1))[0],
        submitted_us, rng.randint(1, 20) * SECOND_US,
        gpu_types=tuple(sorted(rng.sample(names, rng.randint(0, len(names))))),
        weight=rng.choice((1, 1, 3)), max_price_micro=rng.choice((None, None, 200_000)),
        deadline_us=rng.choice((None, submitted_us + 9 * SECOND_US)),
        cancel_us=rng.choice((None, None, submitted_us + 7 * SECOND_US)),
    )  # fmt: skip


def _odd_options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {
        "work_conserving": rng.random() < 0.7,
        "tenant_share": rng.choice(("demand", "quota")),
        "new_jobs_first": rng.random() < 0.3,
        "reserve_after_leases": rng.choice((0, 1, 1, 2)),
        "fairness_window_s": rng.choice((0, 0, 5, 40)),
        "spread": rng.random() < 0.3,
    }
    if rng.random() < 0.4:
        options |= {"new_job_bonus": 0.3, "lease_bonus": 0.07, "deadline_bonus": rng.choice((0, 2)),
                    "deadline_horizon_s": 7}  # fmt: skip
    return {name: value for name, value in options.items() if rng.random() < 0.9}


def _odd(rng: random.Random, snapshot: Snapshot) -> Snapshot:
    """Return the round with credit, back-offs, protected leases and drained nodes."""
    held = {lease.job for lease in snapshot.leases}
    late_us = snapshot.at_us + rng.choice((0, 1, 10_000_000))
    backoffs = tuple(
        Backoff(job.id, late_us, 2) for job in snapshot.jobs
        if job.id not in held and rng.random() < 0.1
    )  # fmt: skip
    tenants = tuple(
        Tenant(row.id, rng.choice((None, None, 0, 700, 5_000))) for row in snapshot.tenants
    )
    leases = tuple(
        replace(row, protected_until_us=snapshot.at_us + rng.choice((0, 1)))
        if rng.random() < 0.1 else row for row in snapshot.leases
    )  # fmt: skip
    nodes = tuple(
        replace(node, gpus=node.gpus // 2) if rng.random() < 0.04 else node
        for node in snapshot.nodes
    )
    rows = {
        "backoffs": backoffs, "tenants": tenants, "leases": leases, "nodes": nodes,
        "holds": _holds(snapshot), "ranks": _ranks(snapshot),
    }  # fmt: skip # a table
    return replace(snapshot, **rows)


def _ranks(snapshot: Snapshot) -> tuple[JobRank, ...]:
    """Return ranks of a third of the jobs, in every second round."""
    rng = random.Random(-snapshot.number)  # noqa: S311 - only test data
    jobs = snapshot.jobs if snapshot.number % 2 else ()
    return tuple(JobRank(job.id, rng.randint(-2, 2)) for job in jobs if rng.random() < 0.3)


def _holds(snapshot: Snapshot) -> tuple[HeldJob, ...]:
    """Return held jobs of the round's tenants, with ids after those of the jobs."""
    rng, first = random.Random(snapshot.number), 100_000  # noqa: S311 - only test data
    return tuple(
        HeldJob(
            first + number,
            rng.choice(snapshot.tenants).id,
            rng.randint(1, 4),
            code := rng.choice(tuple(HoldCode)),
            snapshot.at_us + rng.choice((5, 9)) if code is HoldCode.NOT_BEFORE else 0,
        )
        for number in range(rng.choice((0, 3, 6)))
    )
