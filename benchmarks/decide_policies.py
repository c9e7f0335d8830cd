"""Benchmark of one decision of each policy: 10,000 jobs, 1,000 nodes x 8 of three GPU types.

python -m benchmarks.decide_policies [POLICY ...]
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence

from msgspec.structs import replace

from benchmarks.ltgf_pool import GANGS, LEASE_US, NODE_GPUS, ROUND_US, SHARES, advanced
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES, policy
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import HOUR_US

JOBS, NODES, TENANTS, RUNS, SEED = 10_000, 1_000, 100, 3, 1
TYPES = ("k80", "p100", "v100")
YARDSTICK = "fifo"
ENDLESS_US = 10_000 * HOUR_US


def cluster(rng: random.Random) -> Cluster:
    """Return equally many nodes of three types, quotas of all GPUs, and a job type per tenant."""
    sizes = {name: NODES // len(TYPES) for name in TYPES}
    sizes[TYPES[0]] += NODES % len(TYPES)
    quotas = [
        Entitlement(tenant, name, count * NODE_GPUS // TENANTS)
        for tenant in range(1, TENANTS + 1)
        for name, count in sorted(sizes.items())
    ]
    profiles = {
        tenant: Profile(
            tenant, tenant,
            ((TYPES[0], 1000), (TYPES[1], rng.randint(1100, 2500)),
             (TYPES[2], rng.randint(2500, 6000))),
        )
        for tenant in range(1, TENANTS + 1)
    }  # fmt: skip # a table
    return Cluster(make_nodes(sizes, NODE_GPUS), tuple(quotas), profiles=profiles)


def draw_job(rng: random.Random, number: int, submitted_us: int = 0) -> SimJob:
    """Return a job that never ends."""
    tenant = rng.randint(1, TENANTS)
    (gpus,) = rng.choices(GANGS, SHARES)
    accepted = () if rng.random() < 0.5 else (rng.choice(TYPES),)
    estimate_us = rng.randint(1, 100 * 60) * HOUR_US // 60
    return SimJob(
        number,
        tenant,
        gpus,
        submitted_us,
        ENDLESS_US,
        gpu_types=accepted,
        estimate_us=estimate_us,
        profile=tenant if rng.random() < 0.5 else 0,
    )


def cpu_ms(names: Sequence[str], snapshot: Snapshot) -> list[float]:
    """Return each policy's median CPU ms of a decision; the policies take turns on one pool."""
    ready = advanced(snapshot)
    took: list[list[float]] = [[] for _ in names]
    for _ in range(RUNS):
        for name, times in zip(names, took, strict=True):
            asked = ready
            if name != ready.policy:
                asked = replace(
                    ready, policy=name, policy_version=policy(name).version, options={}, memory={}
                )
            start = time.process_time()
            policy(name).decide(asked)
            times.append((time.process_time() - start) * 1000)
    return [statistics.median(times) for times in took]


def measure(name: str) -> list[list[float]]:
    """Return the times in ms of a policy and of `fifo`, in a first and in a later round."""
    rng = random.Random(SEED)  # noqa: S311 - a seeded workload, not a secret
    rules = Rules(name, {}, round_us=ROUND_US, lease_us=LEASE_US)
    state = SimulationState(
        cluster(rng), tuple(draw_job(rng, n) for n in range(1, JOBS + 1)), rules
    )
    times = []
    for number in range(3):
        state.advance(number * LEASE_US)
        snapshot = state.snapshot()
        if number != 1:
            times.append(cpu_ms((name, YARDSTICK), snapshot))
        if number != 2:
            state.apply(decide_round(snapshot))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decide_policies")
    parser.add_argument("names", nargs="*", metavar="POLICY", help="all, or some of them")
    names = parser.parse_args().names or list(POLICIES)
    print(f"{JOBS} jobs, {NODES} nodes x {NODE_GPUS} of {len(TYPES)} types, {TENANTS} tenants")
    print(f"CPU time of a decision, median, and the ratio to {YARDSTICK} in the same pool")
    print(f"{'policy':<16}{'first round':>12}{'':>8}{'later round':>14}")
    for name in names:
        first, later = measure(name)
        print(
            f"{name:<16}{first[0]:>9.0f} ms{first[0] / first[1]:>6.1f}x"
            f"{later[0]:>13.0f} ms{later[0] / later[1]:>6.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
