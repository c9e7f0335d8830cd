"""Tests of the bound of promised starts, and of the shares of GPU-time that follow from it.

The theorems and their counterexamples are in docs/policies/evenshare_bound.md.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from evenshare_core.domain.decision import Decision
from evenshare_core.fairness.gpu_time import deserved, received
from evenshare_core.simulation.state import SimulationState
from evenshare_core.simulation.workloads import ONE_TYPE
from evenshare_core.units import SECOND_US
from tests.simulation.promise_adversary import OPTIONS, Case, JobSpec, rounds_of
from tests.simulation.promise_bound import Followed, follow
from tests.simulation.promise_round import ClaimKey, RoundView

ROUND_S, LEASE_S = 10, 900
ENDLESS_S = 10_000_000
HEAD_START_S = 300
# No rule but promises ends a lease, and GPU-time does not decay.
PLAIN = {**OPTIONS, "pays": False, "gangs_per_round": 0, "window_s": 366 * 86_400}


def state_of(case: Case, **options: Any) -> SimulationState:
    state = case.state()
    rules = replace(state.rules, options={**OPTIONS, **options})
    return SimulationState(state.cluster, tuple(state.sim_jobs.values()), rules)


class Sums(NamedTuple):
    """GPU-seconds that a tenant received and deserved since the start."""

    received_s: float
    deserved_s: float

    @property
    def missing_s(self) -> float:
        return self.deserved_s - self.received_s


def sums_of(decision: Decision) -> dict[int, Sums]:
    return {
        row.tenant: Sums(
            received(row, decision.at_us) / SECOND_US, deserved(row, decision.at_us) / SECOND_US
        )
        for row in decision.service.claims
    }


def second_half(case: Case, leases: int = 24) -> dict[int, Sums]:
    """Return the sums by tenant of the second half of some leases."""
    half_us, halves = leases // 2 * case.lease_s * SECOND_US, list[dict[int, Sums]]()
    for _, decision in rounds_of(state_of(case), 2 * half_us):
        if decision.at_us >= half_us:
            halves = [*halves[:1], sums_of(decision)]
    first, last = halves
    return {
        tenant: Sums(row.received_s - then.received_s, row.deserved_s - then.deserved_s)
        for tenant, row in last.items()
        for then in (first.get(tenant, Sums(0, 0)),)
    }


def pool(
    nodes: tuple[int, ...], quotas: tuple[int, ...], *jobs: JobSpec, round_s: int = ROUND_S
) -> Case:
    return Case(nodes, quotas, jobs, round_s, LEASE_S)


def endless(tenant: int, gpus: int, at_s: int) -> JobSpec:
    return JobSpec(tenant, gpus, at_s, ENDLESS_S)


# ---- the bound is tight ----


def chain_of(tenants: int) -> Case:
    """Return one node that the last tenant holds, and gangs of the other tenants, all at once."""
    gangs = [JobSpec(tenant, 8, ROUND_S + 1, LEASE_S) for tenant in range(1, tenants + 1)]
    return pool((8,), (*[1] * tenants, 0), endless(tenants + 1, 8, 0), *gangs)


def own_chain() -> Case:
    """Return two gangs of one tenant: its promise for the first one leaves no quota."""
    gangs = [JobSpec(1, 8, ROUND_S + 1, LEASE_S) for _ in range(2)]
    return pool((8,), (8, 0), endless(2, 8, 0), *gangs)


class TestBound:
    @pytest.mark.parametrize(
        ("case", "chain"),
        [(chain_of(1), 0), (chain_of(2), 1), (chain_of(6), 5), (own_chain(), 1)],
        ids=["first", "behind one promise", "behind five promises", "behind its own promise"],
    )
    def test_is_tight(self, case: Case, chain: int) -> None:
        """The last gang waits at least 94 % of B."""
        rounds = rounds_of(state_of(case), (chain + 2) * LEASE_S * SECOND_US)
        followed = follow(rounds, is_tight=True)
        assert followed.breaches == []
        last = max(followed.started, key=lambda one: one.waited_us)
        assert last.chain == chain
        assert last.waited_us >= 0.94 * last.bound_us


# ---- the share by promises ----


@dataclass
class OwedTime:
    """A time in which a tenant is owed GPU-time and has a waiting job without promise.

    `chain`: the longest chain of its promises in this time.
    """

    from_us: int
    received_s: float
    chain: int = 0


def least_share_s(case: Case, tenant: int, gang: int, chain: int, for_s: float) -> float:
    """Return the GPU-seconds that a tenant with gangs of one size gets in `for_s` at least.

    It is K L (W / (k r + B) - 2), where k gangs of K GPUs fill the quota.
    """
    gangs = max(1, case.quotas[tenant - 1] // gang)
    bound_s = case.round_s + (1 + chain) * (case.lease_s + case.round_s)
    spans = for_s / (gangs * case.round_s + bound_s)
    return gangs * gang * case.lease_s * (spans - 2)


def waits_unpromised(view: RoundView, tenant: int) -> bool:
    last_us = view.at_us - view.snapshot.round_us
    return any(
        job.tenant == tenant and job.submitted_us <= last_us
        for key, job in view.waiting.items()
        if key not in view.after and key not in view.grants
    )


def owed_times(case: Case, until_s: int) -> Iterator[tuple[int, OwedTime, float, float]]:
    """Run a pool; yield (tenant, owed time, its length, GPU-seconds received) in each round."""
    followed, current = Followed(is_tight=True), dict[int, OwedTime]()
    for snapshot, decision in rounds_of(state_of(case, **PLAIN), until_s * SECOND_US):
        followed.add(snapshot, decision)
        view = RoundView(snapshot, decision)
        for tenant, sums in sums_of(decision).items():
            claim: ClaimKey = (tenant, ONE_TYPE)
            if view.key(claim, with_starts=True) >= 1 or not waits_unpromised(view, tenant):
                current.pop(tenant, None)
                continue
            time = current.setdefault(tenant, OwedTime(view.at_us, sums.received_s))
            own = [key for key in followed.chains if view.jobs[key].tenant == tenant]
            time.chain = max([time.chain, *(followed.chains[key] for key in own)])
            yield (
                tenant, time, (view.at_us - time.from_us) / SECOND_US,
                sums.received_s - time.received_s,
            )  # fmt: skip # rows of what belongs together
    assert followed.breaches == []


def overloaded(seed: int) -> tuple[Case, dict[int, int]]:
    """Return a pool in which each tenant has twice as many gangs of one size as fit, and the sizes.

    The gangs never end. The quotas are those of the pool.
    """
    rng = random.Random(seed)  # noqa: S311 - a test's seed
    nodes = tuple(rng.choice((4, 8)) for _ in range(rng.randint(1, 3)))
    tenants, total = rng.randint(2, 3), sum(nodes)
    cuts = sorted(rng.randint(1, total - 1) for _ in range(tenants - 1))
    quotas = tuple(right - left for left, right in zip((0, *cuts), (*cuts, total), strict=True))
    gangs = {tenant: rng.choice((1, 2, 3, max(nodes), total)) for tenant in range(1, tenants + 1)}
    jobs = [
        endless(tenant, gang, rng.randrange(0, 300, 10))
        for tenant, gang in gangs.items()
        for _ in range(2 * total // gang + 2)
    ]
    return Case(nodes, quotas, tuple(jobs), 30, 300), gangs


class TestPromisedShare:
    @pytest.mark.parametrize("seeds", [(0, 1, 2, 3, 5)])
    def test_is_received_by_owed_tenants(self, seeds: tuple[int, ...]) -> None:
        """Promises give a tenant its quota in whole gangs, times L / (k r + B)."""
        longest = 0.0
        for seed in seeds:
            case, gangs = overloaded(seed)
            for tenant, time, for_s, got_s in owed_times(case, 40 * case.lease_s):
                least_s = least_share_s(case, tenant, gangs[tenant], time.chain, for_s)
                assert got_s >= least_s, f"seed {seed}, tenant {tenant}: {got_s:g} of {least_s:g}"
                longest = max(longest, least_s)
        assert longest > 10 * 300


# ---- the whole share, with gangs of one size ----

RUN_S = 60 * 300


def equal_gangs(seed: int) -> Case:
    """Return a pool with gangs of one size. Nodes and quotas are multiples of it.

    From some time on, tenant 1 always has waiting jobs. The jobs of others come at random, and end
    in rounds.
    """
    rng = random.Random(seed)  # noqa: S311 - a test's seed
    gang, nodes, tenants = rng.choice((1, 2)), rng.choice(((4,), (8,), (4, 4))), rng.randint(2, 3)
    places = sum(nodes) // gang
    owners = [1, 1, *(rng.randint(1, tenants) for _ in range(places - 2))]
    quotas = tuple(gang * owners.count(tenant) for tenant in range(1, tenants + 1))
    jobs = [endless(1, gang, rng.choice((0, 1500, 3000))) for _ in range(2 * places)]
    for _ in range(60 * places):
        tenant, at_s = rng.randint(2, tenants), rng.randrange(0, RUN_S, 30)
        jobs.append(JobSpec(tenant, gang, at_s, 30 * rng.randint(1, 40)))
    return Case(nodes, quotas, tuple(jobs), 30, 300)


def most_missing_s(case: Case, start: dict[int, Sums]) -> float:
    """Return the GPU-seconds that a tenant may lack, if it has waited since `start`."""
    gpus, tenants = sum(case.nodes), len(case.quotas)
    before_s = sum(max(0.0, row.missing_s) for row in start.values())
    each_s = 2 * (case.lease_s + case.round_s)
    return before_s + gpus * (case.lease_s + HEAD_START_S + tenants * each_s)


class TestEqualGangs:
    @pytest.mark.parametrize(("seeds", "run_s"), [((0, 3), RUN_S)])
    def test_give_whole_share(self, seeds: tuple[int, ...], run_s: int) -> None:
        """The GPU-time that a waiting tenant lacks does not grow with time."""
        deserved_s, most_s = 0.0, 0.0
        for seed in seeds:
            case, start = equal_gangs(seed), dict[int, Sums]()
            for _, decision in rounds_of(state_of(case, **PLAIN), run_s * SECOND_US):
                sums = sums_of(decision)
                start = start or (sums if 1 in sums else {})
                if start:
                    assert sums[1].missing_s <= most_missing_s(case, start), f"seed {seed}"
            deserved_s += sums[1].deserved_s
            most_s += most_missing_s(case, start)
        assert deserved_s > 3 * most_s


# ---- where tenants get less ----

# Two gangs of tenant 1, which has all of the quota. Leases of tenant 2 on the other node end at
# different times, so a gang fits there only by a promise.
OWN_LEASE = pool(
    (2, 2), (4, 0), endless(2, 1, 0), endless(2, 1, 450), endless(1, 2, 0), endless(1, 2, 0),
    round_s=30,
)  # fmt: skip # rows of what belongs together
# A job of 30 s comes whenever the only GPU was given to another tenant.
SHORT_JOBS = pool(
    (1,), (1, 0), endless(2, 1, 0), *(JobSpec(1, 1, 5 + 930 * count, 30) for count in range(24)),
    round_s=30,
)  # fmt: skip # rows of what belongs together
# Tenant 1 has a quota of 6 and jobs of 2 and 4 GPUs. Tenant 2 has 4 and a gang of 4.
SIZES = pool(
    (2, 4, 4), (6, 4, 0), endless(1, 2, 570), endless(1, 4, 960), endless(2, 4, 1110),
    endless(3, 1, 60), endless(3, 1, 1320), round_s=30,
)  # fmt: skip # rows of what belongs together


class TestShare:
    """The share of its deserved GPU-time that a tenant receives in the second half of a run."""

    @pytest.mark.parametrize(
        ("case", "tenant", "least", "most"),
        [
            pytest.param(OWN_LEASE, 1, 0.99, 1.01, id="promises spare own leases"),
            pytest.param(SHORT_JOBS, 1, 0.03, 0.04, id="each short job waits for a lease"),
            pytest.param(SIZES, 1, 0.6, 0.7, id="jobs of several sizes take turns"),
            pytest.param(SIZES, 2, 0.6, 0.7, id="one job takes turns with another tenant's jobs"),
        ],
    )
    def test_of_owed_tenant(self, case: Case, tenant: int, least: float, most: float) -> None:
        sums = second_half(case)[tenant]
        assert least <= sums.received_s / sums.deserved_s <= most
