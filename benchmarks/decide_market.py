"""Benchmark of a batch of the market: 1,000 new jobs, 1,000 nodes x 8 of three GPU types.

2,000 earlier jobs hold the pool's GPUs; in this round their leases end or continue. Of the new
jobs, some have bids, some linear or convex utilities, and some neither. All have estimates, up to
100 hours; half of them accept more than one type. Figures are CPU time of one process, median of
several runs, and the ratio to `fifo`, which decides the same pool alternately.
"""

import dataclasses
import random
import statistics
import time

from msgspec.structs import replace

from benchmarks.decide_policies import cluster, draw_job
from benchmarks.ltgf_pool import LEASE_US, ROUND_US, advanced
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import policy
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import CREDIT_MICRO

BEFORE, NEW, RUNS, SEED, GOAL_MS = 2000, 1000, 7, 1, 500
POLICY, YARDSTICK = "market", "fifo"


def utility(rng: random.Random, job: int) -> Utility | None:
    """Return a random bid, linear or convex utility, or None."""
    kind = rng.choice((None, *UtilityKind))
    match kind:
        case None:
            return None
        case UtilityKind.BID:
            return Utility(job, kind, rng.randint(1, 3 * CREDIT_MICRO))
        case UtilityKind.LINEAR:
            return Utility(job, kind, rng.randint(1, 400 * CREDIT_MICRO), -rng.randint(1, 10**6))
    return Utility(job, kind, rng.randint(1, 900 * CREDIT_MICRO), rng.randint(10**6, 2 * 10**6))


def jobs(rng: random.Random) -> tuple[SimJob, ...]:
    """Return the earlier jobs and the new jobs, which were submitted half a lease length later."""
    rows = []
    for number in range(1, BEFORE + NEW + 1):
        job = draw_job(rng, number, 0 if number <= BEFORE else LEASE_US // 2)
        rows.append(dataclasses.replace(job, utility=utility(rng, number)))
    return tuple(rows)


def batch() -> Snapshot:
    """Return the snapshot of the round that plans the new jobs."""
    rng = random.Random(SEED)  # noqa: S311 - a seeded workload, not a secret
    rules = Rules(POLICY, {"theta": "fixed"}, round_us=ROUND_US, lease_us=LEASE_US)
    state = SimulationState(cluster(rng), jobs(rng), rules)
    state.advance(0)
    state.apply(decide_round(state.snapshot()))
    state.advance(LEASE_US)
    return advanced(state.snapshot())


def cpu_ms(asked: Snapshot) -> float:
    start = time.process_time()
    policy(asked.policy).decide(asked)
    return (time.process_time() - start) * 1000


def main() -> None:
    asked = batch()
    plain = replace(
        asked, policy=YARDSTICK, policy_version=policy(YARDSTICK).version, options={}, memory={}
    )
    times = [(cpu_ms(asked), cpu_ms(plain)) for _ in range(RUNS)]
    took, fifo = (statistics.median(column) for column in zip(*times, strict=True))
    decision = decide_round(asked)
    waiting = len(asked.jobs) - len(asked.leases)
    print(f"{waiting} jobs wait, {NEW} of them new, {len(asked.leases)} leases end or go on")
    print(
        f"{POLICY}  {took:.0f} ms, {took / fifo:.1f}x {YARDSTICK}  ({len(decision.grants)} granted,"
        f" {len(decision.renewals)} renewed, {len(decision.plans)} plans)"
    )
    print(f"goal: at most {GOAL_MS} ms")


if __name__ == "__main__":
    main()
