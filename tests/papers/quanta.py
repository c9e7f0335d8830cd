"""A pool with one round per quantum, for tests of Gandiva_fair, with the GPUs of each tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US

QUANTUM_US = 60 * SECOND_US
ENDLESS_US = 10**6 * QUANTUM_US


class Quantum(NamedTuple):
    """A round: its snapshot and decision, and the GPUs of running jobs."""

    snapshot: Snapshot
    decision: Decision
    gpus: Counter[int]


def pool(sizes: Mapping[str, Sequence[int]], profiles: Sequence[Profile] = ()) -> Cluster:
    """Return GPU types with nodes of these sizes."""
    nodes = [(name, size) for name, row in sizes.items() for size in row]
    return Cluster(
        tuple(Node(index, *node) for index, node in enumerate(nodes, start=1)),
        (),
        profiles={row.id: row for row in profiles},
    )


def jobs_of(
    *kinds: tuple[int, int, int],
    profile: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
    **fields: Any,
) -> tuple[SimJob, ...]:
    """Return endless jobs from (tenant, count, GPUs); `ends` maps tenants to their last quanta."""
    rows: list[SimJob] = []
    for tenant, count, gpus in kinds:
        end = (ends or {}).get(tenant)
        for _ in range(count):
            rows.append(
                SimJob(
                    len(rows) + 1, tenant, gpus, 0, ENDLESS_US,
                    profile=(profile or {}).get(tenant, 0),
                    cancel_us=None if end is None else end * QUANTUM_US, **fields,
                )
            )  # fmt: skip
    return tuple(rows)


def quanta(
    cluster: Cluster,
    tickets: Mapping[tuple[int, str], int],
    jobs: Sequence[SimJob],
    count: int,
    *,
    options: Mapping[str, object] | None = None,
    change: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    round_us: int = QUANTUM_US,
) -> list[Quantum]:
    """Decide `count` rounds; `tickets` are not scaled down, even if they exceed the pool."""
    rules = Rules("gandiva_fair", dict(options or {}), round_us=round_us, lease_us=QUANTUM_US)
    rows = tuple(Entitlement(*key, gpus) for key, gpus in sorted(tickets.items()))
    state = SimulationState(replace_quotas(cluster, rows), tuple(jobs), rules)
    sizes = {job.id: job.gpus for job in jobs}
    seen = []
    for number in range(count):
        state.advance(number * round_us)
        snapshot = change(replace(state.snapshot(), entitlements=rows))
        decision = decide_round(snapshot)
        state.apply(decision)
        gpus = Counter({lease.job: sizes[lease.job] for lease in state.leases.values()})
        seen.append(Quantum(snapshot, decision, gpus))
    return seen


def replace_quotas(cluster: Cluster, quotas: tuple[Entitlement, ...]) -> Cluster:
    return Cluster(
        cluster.nodes, quotas, profiles=cluster.profiles, speeds=cluster.speeds,
        changes=cluster.changes,
    )  # fmt: skip


def by_tenant(rows: Sequence[Quantum], jobs: Sequence[SimJob]) -> dict[int, float]:
    """Return the average GPUs of each tenant."""
    tenants = {job.id: job.tenant for job in jobs}
    total: Counter[int] = Counter()
    for row in rows:
        for job, gpus in row.gpus.items():
            total[tenants[job]] += gpus
    return {tenant: total[tenant] / len(rows) for tenant in sorted(set(tenants.values()))}


def by_type(rows: Sequence[Quantum]) -> dict[tuple[int, str], float]:
    """Return the average GPUs of each tenant and type."""
    total: Counter[tuple[int, str]] = Counter()
    for row in rows:
        leases = {lease.id: lease for lease in row.snapshot.leases}
        ended = {end.lease for end in row.decision.ends}
        for lease in leases.values():
            if lease.id not in ended:
                total[lease.tenant, lease.gpu_type] += lease.gpus
        for grant in row.decision.grants:
            total[grant.tenant, grant.gpu_type] += sum(gpus for _, gpus in grant.placement)
    return {key: gpus / len(rows) for key, gpus in sorted(total.items())}
