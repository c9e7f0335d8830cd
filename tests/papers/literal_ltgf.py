"""Algorithms 1 and 2 of LTGF (TPDS 2021) as printed, with scans instead of heaps and buckets.

It is the baseline of `benchmarks.decide_ltgf` and the oracle of `TestFastImplementation`. It
supports only plain pools: no borrowing limits, prices, reservations or reward hooks.
"""

from math import inf

from evenshare_core.domain.cluster import Placement, gpus_by_node
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, Snapshot
from evenshare_core.fairness.gpu_time import ServiceView, job_received

Claim = tuple[int, str]
Rank = tuple[float, float, int]
Pick = tuple[int, Placement, bool]  # (job, placement, whether it was renewed)


class LiteralLtgf:
    """A round, whose `snapshot.service` must be up to date at the round's time."""

    def __init__(self, snapshot: Snapshot, *, work_conserving: bool) -> None:
        self.work_conserving = work_conserving
        self.lease_us = snapshot.lease_us
        self.view = ServiceView(snapshot.service)
        self.types = {node.id: node.gpu_type for node in snapshot.nodes}
        self.sizes = {node.id: node.gpus for node in snapshot.nodes}
        # M: free GPUs, including those of ended leases whose jobs were not picked yet
        self.free = dict(self.sizes)
        self.ended: dict[int, Lease] = {}  # ended leases by job
        self.jobs: dict[Claim, list[Job]] = {}
        self.alloc = {key: row.alloc_gpu_us for key, row in self.view.claims.items()}
        self.quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self.used: dict[Claim, int] = {}  # GPUs of running leases and of picks
        self.leased: dict[int, str] = {}  # the GPU type of each job whose lease ended
        self.job_rank: dict[int, Rank] = {}
        self._read(snapshot)

    def _read(self, snapshot: Snapshot) -> None:
        running = set()
        capacity: dict[str, int] = {}
        for node, gpus in self.sizes.items():
            capacity[self.types[node]] = capacity.get(self.types[node], 0) + gpus
        for lease in snapshot.leases:
            if lease.ends_by(snapshot.at_us):
                self.ended[lease.job] = lease
                self.leased[lease.job] = lease.gpu_type
                continue
            running.add(lease.job)
            key = (lease.tenant, lease.gpu_type)
            self.used[key] = self.used.get(key, 0) + lease.gpus
            for node, gpus in lease.placement:
                self.free[node] = max(0, self.free[node] - gpus)
        for job in snapshot.jobs:
            if job.id in running:
                continue
            row = self.view.jobs[job.id]
            alloc, fair = job_received(row, snapshot.at_us), self.view.job_deserved(job.id)
            self.job_rank[job.id] = _rank(alloc, fair, row.weight)  # line 3
            for gpu_type in job.gpu_types or tuple(capacity):
                # a job too large for this type is left out, so that it cannot remove its tenant
                # from the queue
                if job.gpus <= capacity.get(gpu_type, 0):
                    self.jobs.setdefault((job.tenant, gpu_type), []).append(job)

    def picks(self) -> list[Pick]:
        """Run Algorithm 1. A job that accepts several GPU types is in the queue of each."""
        picks: list[Pick] = []
        later: list[tuple[Claim, Job]] = []
        out: set[Claim] = set()
        while tenants := {key for key, jobs in self.jobs.items() if jobs} - out:
            tenant = self._select_tenant(tenants)  # line 5
            job = self._select_job(tenant)  # lines 6-7
            if self._comes_later(tenant[1], job):
                later.append((tenant, job))
            elif (pick := self._pick(tenant, job)) is not None:
                picks.append(pick)
                for jobs in self.jobs.values():  # line 13, for all types
                    if job in jobs:
                        jobs.remove(job)
                continue
            elif not self.work_conserving:
                out.add(tenant)  # line 17
                continue
            self.jobs[tenant].remove(job)
        for tenant, job in later:
            if job.id not in {pick[0] for pick in picks} and tenant not in out:
                pick = self._pick(tenant, job)
                picks += [] if pick is None else [pick]
        return picks

    def _pick(self, tenant: Claim, job: Job) -> Pick | None:
        lease = self.ended.get(job.id)
        renewed = placement = None
        if lease is not None and lease.gpu_type == tenant[1]:
            renewed = self._has(lease.placement)
            placement = lease.placement if renewed else None
            del self.ended[job.id]
        placement = placement or self._place(tenant[1], job.gpus)  # line 9
        if placement is None:
            return None
        for node, gpus in placement:  # lines 11-12
            self.free[node] -= gpus
        self.alloc[tenant] = self.alloc.get(tenant, 0) + job.gpus * self.lease_us  # line 14
        self.used[tenant] = self.used.get(tenant, 0) + job.gpus
        return (job.id, placement, bool(renewed))

    def _comes_later(self, gpu_type: str, job: Job) -> bool:
        """Return whether the job prefers another type: its current one, else one of own quota.

        The paper has no such rule.
        """
        others = [
            name for name in job.gpu_types or tuple(set(self.types.values())) if name != gpu_type
        ]
        if job.id in self.leased and others:
            return self.leased[job.id] != gpu_type
        return not self._is_own(job, gpu_type) and any(
            self._is_own(job, name) and self._fits(name, job.gpus) for name in others
        )

    def _is_own(self, job: Job, gpu_type: str) -> bool:
        key = (job.tenant, gpu_type)
        return self.used.get(key, 0) + job.gpus <= self.quotas.get(key, 0)

    def _fits(self, gpu_type: str, gpus: int) -> bool:
        nodes = [node for node, name in self.types.items() if name == gpu_type]
        size = max((self.sizes[node] for node in nodes), default=0)
        return _consolidated({node: self.free[node] for node in nodes}, gpus, size) is not None

    def _select_tenant(self, tenants: set[Claim]) -> Claim:
        ranks = {key: self._tenant_rank(key) for key in tenants}
        least = min(ranks.values())
        tied = [key for key, rank in ranks.items() if rank == least]
        if len(tied) == 1:
            return tied[0]

        def arrival(key: Claim) -> tuple[int, int]:
            job = self._select_job(key)
            return (job.submitted_us, job.id)

        return min(sorted(tied), key=arrival)

    def _tenant_rank(self, key: Claim) -> Rank:
        claim = self.view.claims.get(key) or ClaimService(*key, 0)
        return _rank(self.alloc.get(key, 0), claim.fair_gpu_us, claim.quota)

    def _select_job(self, tenant: Claim) -> Job:
        """Run Algorithm 2."""
        return min(
            self.jobs[tenant],
            key=lambda job: (*self.job_rank[job.id], job.submitted_us, job.id),
        )

    def _has(self, placement: Placement) -> bool:
        return all(self.free[node] >= gpus for node, gpus in placement)

    def _place(self, gpu_type: str, gpus: int) -> Placement | None:
        """Place the gang on as few nodes as possible; use GPUs of ended leases only if needed."""
        held = gpus_by_node(lease.placement for lease in self.ended.values())
        nodes = [node for node, name in self.types.items() if name == gpu_type]
        truly_free = {node: max(0, self.free[node] - held.get(node, 0)) for node in nodes}
        size = max((self.sizes[node] for node in nodes), default=0)
        reach = {node: self.free[node] for node in nodes}
        return _consolidated(truly_free, gpus, size) or _consolidated(reach, gpus, size)


def _rank(alloc: int, fair: int, weight: int) -> Rank:
    """Rank by rho; with FairTime = 0, first without GPU-time, else last by GPU-time / weight.

    Without a weight, the rank is by GPU-time, after all others.
    """
    if fair:
        return alloc / fair, 0.0, 0
    if not alloc:
        return 0.0, 0.0, 0
    return (inf, alloc / weight, 0) if weight else (inf, inf, alloc)


def _consolidated(free: dict[int, int], gpus: int, size: int) -> Placement | None:
    if gpus <= size:
        fitting = [(count, node) for node, count in free.items() if count >= gpus]
        return ((min(fitting)[1], gpus),) if fitting else None
    if sum(free.values()) < gpus:
        return None
    left, taken = gpus, []
    for node in sorted(free, key=lambda node: (-free[node], node)):
        if free[node] >= left:
            break
        taken.append((node, free[node]))
        left -= free[node]
    names = {node for node, _ in taken}
    rest = [(count, node) for node, count in free.items() if count >= left and node not in names]
    return tuple(sorted([*taken, (min(rest)[1], left)]))
