"""Which GPU type a job claims if it can run on several, so that its demand counts once.

A job claims one type when it becomes active (`gpu_time.Sums.apply`). While it holds GPUs, it claims
their type. While it waits, a round moves its claim to another accepted type if its tenant then
deserves more GPUs in total.

Eq. (8) gives this total, the sum over types of min(demand, quota). Without moves, demand beyond the
quota of one type would be lost while the tenant's quota of another accepted type has no demand.
"""

from collections.abc import Collection, Iterable, Mapping

from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import Sums

# Interchangeable jobs for moves: tenant, claimed type, gang, accepted types.
_Kind = tuple[int, str, int, tuple[str, ...]]


def accepted_types(job: Job, gpu_types: Collection[str], *, first: str = "") -> tuple[str, ...]:
    """Return the GPU types of a pool that a job may run on, sorted; empty if it has none of them.

    `first`, if it is among them, is moved to the front.
    """
    names = job.gpu_types or gpu_types
    if len(names) == 1:
        return tuple([name for name in names if name in gpu_types])
    types = (name for name in names if name in gpu_types)
    return tuple(sorted(types, key=lambda name: (name != first, name)))


def waiting_jobs(snapshot: Snapshot) -> list[Job]:
    """Return the jobs that hold no lease and can run on several types of the pool."""
    if not has_several_types(node.gpu_type for node in snapshot.nodes):
        return []
    held = {lease.job for lease in snapshot.leases}
    return [job for job in snapshot.jobs if len(job.gpu_types) != 1 and job.id not in held]


def has_several_types(gpu_types: Iterable[str]) -> bool:
    first: str | None = None
    for name in gpu_types:
        if first is None:
            first = name
        elif name != first:
            return True
    return False


def move_claims(sums: Sums, waiting: Iterable[Job], at_us: int) -> list[int]:
    """Move claims of waiting jobs at a round, until no move makes a tenant deserve more.

    Return the ids of the moved jobs. Each move increases the GPUs that a tenant deserves, so the
    loop ends. The result does not depend on the order of `waiting`: of interchangeable jobs, the
    first to arrive moves.
    """
    kinds: dict[_Kind, list[Job]] = {}
    for job in waiting:
        row = sums.jobs.get(job.id)
        if row is not None and not row.held:
            types = accepted_types(job, sums.capacity)
            if len(types) > 1:
                kinds.setdefault((job.tenant, row.gpu_type, job.gpus, types), []).append(job)
    for jobs in kinds.values():
        jobs.sort(key=arrival_order, reverse=True)  # `pop` takes the job that arrived first
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
    """Return the type on which the job increases its tenant's deserved GPUs most.

    Among equal types, the one with the lowest rho is taken. Return None if no type is better than
    the claimed one.
    """
    tenant, claimed, gpus, types = kind
    demand, quota = _standing(sums, tenant, claimed)
    lost = min(demand, quota) - min(demand - gpus, quota)
    if lost >= gpus:
        return None  # the whole gang is deserved on the claimed type
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
    claim = sums.claims[tenant, gpu_type]  # the type has quota, so the claim exists
    claim.advance(at_us)
    return claim.rho() or 0.0


class AloneTypes(dict[str, tuple[str, ...]]):
    """A cache of (GPU type,) by type, shared by the many jobs that accept only that type."""

    def __missing__(self, gpu_type: str) -> tuple[str, ...]:
        types = self[gpu_type] = (gpu_type,)
        return types


def reported_type_first(capacity: Mapping[str, int], job: Job, claimed: str) -> tuple[str, ...]:
    """Return the types of a pool that a job may run on, the reported type first.

    The reported type is the claimed one, unless it has too few GPUs and another type has enough. If
    the pool has none of the types, the claimed one is the only one. `capacity` has the GPUs by
    type.
    """
    types = accepted_types(job, capacity)
    fitting = [name for name in types if capacity[name] >= job.gpus]
    first = claimed if claimed in (fitting or types) else next(iter(fitting or types), claimed)
    return (first, *(name for name in types if name != first))
