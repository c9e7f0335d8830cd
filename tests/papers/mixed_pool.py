"""A simulated pool of mixed GPU types for the tests of sharing policies, round by round."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, Workload
from evenshare_core.units import SECOND_US

MINUTE_US = 60 * SECOND_US
TYPES = ("k80", "p100", "v100")
ENDLESS_US = 1000 * 3600 * SECOND_US
# As in Gavel's table of throughputs, from job types that gain little to job types that gain much.
SPEEDS = ((1000, 1300, 1800), (1000, 2100, 3200), (1000, 3400, 6000), (1000, 4200, 9500))


def profile(id_: int, tenant: int, *speeds: int, priority: int = 1) -> Profile:
    """Return a profile with speeds of the first types in thousandths; 0 if it cannot run."""
    told = tuple((name, speed) for name, speed in zip(TYPES, speeds, strict=False) if speed)
    return Profile(id_, tenant, told, priority)


def cluster(
    gpus: Sequence[Sequence[int]], quotas: Mapping[int, int], profiles: Sequence[Profile] = ()
) -> Cluster:
    """Return a pool; `gpus[j]` has the sizes of type j's nodes, and quotas hold for each type."""
    nodes = [(name, size) for name, sizes in zip(TYPES, gpus, strict=False) for size in sizes]
    types = sorted({name for name, _ in nodes})
    return Cluster(
        tuple(Node(index, *node) for index, node in enumerate(nodes, start=1)),
        tuple(Entitlement(tenant, name, count) for tenant, count in quotas.items()
              for name in types),
        profiles={row.id: row for row in profiles},
    )  # fmt: skip


def queue(tenant: int, count: int, *, gpus: int = 1, profile: int = 0, first: int = 1,
          minutes: float = 0, cancel_min: int | None = None) -> list[SimJob]:  # fmt: skip
    """Return a tenant's jobs, submitted at time 0; without `minutes` of work they never end."""
    duration_us = int(minutes * MINUTE_US) or ENDLESS_US
    return [
        SimJob(
            first + index, tenant, gpus, 0, duration_us, profile=profile,
            cancel_us=None if cancel_min is None else cancel_min * MINUTE_US,
        )
        for index in range(count)
    ]  # fmt: skip


def rounds(
    pool: Cluster, jobs: Sequence[SimJob], count: int, policy: str = "oef", *,
    round_min: int = 5, lease_min: int = 5, options: Mapping[str, object] | None = None,
) -> Iterator[tuple[Snapshot, Decision, SimulationState]]:  # fmt: skip
    """Yield every round of the grid and skip none; the state passes through JSON."""
    rules = Rules(
        policy, dict(options or {}), round_us=round_min * MINUTE_US, lease_us=lease_min * MINUTE_US
    )
    state = SimulationState(pool, tuple(jobs), rules)
    for number in range(count):
        state.advance(number * rules.round_us)
        snapshot = decode(canonical_bytes(state.snapshot()), Snapshot)
        decision = decode(canonical_bytes(decide_round(snapshot)), Decision)
        state.apply(decision)
        yield snapshot, decision, state


def mixed_workload(seed: int, *, tenants: int = 4, jobs: int = 200, hours: int = 12) -> Workload:
    """Draw jobs of tenants whose job types gain differently from newer GPUs."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    rows = []
    for index in range(1, jobs + 1):
        tenant = rng.randint(1, tenants)
        duration_us = max(60, int(rng.lognormvariate(9.0, 1.0))) * SECOND_US
        rows.append(
            SimJob(
                index, tenant, rng.choices((1, 2, 4, 8), (60, 20, 15, 5))[0],
                int(hours * 3600 * index / jobs) * SECOND_US, duration_us, profile=tenant,
            )
        )  # fmt: skip
    return Workload(tuple(rows), {tenant: f"tenant-{tenant}" for tenant in range(1, tenants + 1)})


def mixed_cluster(tenants: int = 4, nodes: int = 2, size: int = 4) -> Cluster:
    """Return 8 GPUs of each of three types, with equal quotas and a job type per tenant."""
    profiles = [
        profile(tenant, tenant, *SPEEDS[(tenant - 1) % len(SPEEDS)])
        for tenant in range(1, tenants + 1)
    ]
    quota = nodes * size // tenants
    return cluster([[size] * nodes] * 3, dict.fromkeys(range(1, tenants + 1), quota), profiles)
