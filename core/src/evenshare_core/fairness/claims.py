"""Which GPU type a job claims that would run on several: its demand counts once, where it serves.

A job claims one type when it becomes active (`gpu_time.Sums.apply`), and the type that it holds
while it holds GPUs. While it waits, its claim moves at a round to another accepted type if its
tenant then deserves more GPUs in all, that is, if the sum over types of min(demand, quota), eq.
(8), grows. So that demand beyond the quota of one type is not lost while the tenant's quota of
another, which these jobs would take as well, stands without demand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import Sums

# Jobs of which one may move if and only if another may: tenant, claimed type, gang, accepted.
_Kind = tuple[int, str, int, tuple[str, ...]]


def accepted_types(job: Job, gpu_types: Collection[str], *, first: str = "") -> tuple[str, ...]:
    """Return the GPU types of a pool that a job may run on, sorted; () if it has none of them.

    `first` comes before the others where it is one of them.
    """
    names = job.gpu_types or gpu_types
    if len(names) == 1:
        return tuple([name for name in names if name in gpu_types])
    types = (name for name in names if name in gpu_types)
    return tuple(sorted(types, key=lambda name: (name != first, name)))


def waiting_jobs(snapshot: Snapshot) -> list[Job]:
    """Return the jobs that hold no lease and would run on several types of the pool."""
    if not has_several_types(node.gpu_type for node in snapshot.nodes):
        return []
    held = {lease.job for lease in snapshot.leases}
    return [job for job in snapshot.jobs if len(job.gpu_types) != 1 and job.id not in held]


def has_several_types(gpu_types: Iterable[str]) -> bool:
    """Return whether two of them differ."""
    first: str | None = None
    for name in gpu_types:
        if first is None:
            first = name
        elif name != first:
            return True
    return False


def move_claims(sums: Sums, waiting: Iterable[Job], at_us: int) -> list[int]:
    """Move claims of waiting jobs at a round, until no move lets a tenant deserve more.

    Return the jobs that moved. Each move lets the deserved GPUs of a tenant grow, so this ends.
    Which jobs move does not depend on the order in which they are given: of equal ones the first
    by arrival.
    """
    kinds: dict[_Kind, list[Job]] = {}
    for job in waiting:
        row = sums.jobs.get(job.id)
        if row is not None and not row.held:
            types = accepted_types(job, sums.capacity)
            if len(types) > 1:
                kinds.setdefault((job.tenant, row.gpu_type, job.gpus, types), []).append(job)
    for jobs in kinds.values():
        jobs.sort(key=arrival_order, reverse=True)  # the first is popped first
    moved: list[int] = []
    is_over = not kinds
    while not is_over:
        is_over = True
        for kind in sorted(kinds):
            while kinds[kind] and (gpu_type := _better(sums, kind, at_us)) is not None:
                job = kinds[kind].pop()
                sums.move(sums.jobs[job.id], gpu_type, at_us)
                tenant, _, gpus, types = kind
                target = kinds.setdefault((tenant, gpu_type, gpus, types), [])
                target.append(job)
                target.sort(key=arrival_order, reverse=True)
                moved.append(job.id)
                is_over = False
    return moved


def _better(sums: Sums, kind: _Kind, at_us: int) -> str | None:
    """The type on which such a job lets its tenant deserve most; of equals that of least rho."""
    tenant, claimed, gpus, types = kind
    demand, quota = _standing(sums, tenant, claimed)
    lost = min(demand, quota) - min(demand - gpus, quota)
    if lost >= gpus:
        return None  # all of it counts where it is
    best: tuple[int, float, str] | None = None
    for name in types:
        if name == claimed or sums.capacity[name] < gpus:
            continue
        demand, quota = _standing(sums, tenant, name)
        won = min(demand + gpus, quota) - min(demand, quota)
        if won > lost:
            rank = (-won, _rho(sums, tenant, name, at_us), name)
            best = rank if best is None else min(best, rank)
    return None if best is None else best[2]


def _standing(sums: Sums, tenant: int, gpu_type: str) -> tuple[int, int]:
    claim = sums.claims.get((tenant, gpu_type))
    return (0, 0) if claim is None else (claim.demand, claim.quota)


def _rho(sums: Sums, tenant: int, gpu_type: str, at_us: int) -> float:
    claim = sums.claims[tenant, gpu_type]  # it has quota, so there is one
    claim.advance(at_us)
    return claim.rho() or 0.0


class AloneTypes(dict[str, tuple[str, ...]]):
    """(GPU type,) by type: one tuple for all jobs that run on it alone, of which there are many."""

    def __missing__(self, gpu_type: str) -> tuple[str, ...]:
        types = self[gpu_type] = (gpu_type,)
        return types


def reported_type_first(capacity: Mapping[str, int], job: Job, claimed: str) -> tuple[str, ...]:
    """Return the types of a pool that a job may run on, first the one that is reported.

    That is the claimed one, unless it has too few GPUs and another has enough; if the pool has
    none of them, it is the only one. `capacity`: GPUs by type.
    """
    types = accepted_types(job, capacity)
    fitting = [name for name in types if capacity[name] >= job.gpus]
    first = claimed if claimed in (fitting or types) else next(iter(fitting or types), claimed)
    return (first, *(name for name in types if name != first))
