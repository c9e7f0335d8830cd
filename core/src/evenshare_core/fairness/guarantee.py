"""Check of quota guarantees: no owed job waits while room could be made for it.

If a policy guarantees quotas, a job is *owed* its GPUs if

- it fits on one node, and within its tenant's quota with all that the tenant holds;
- its tenant received less than 95 % of the GPU-time deserved over the policy's window, or
  deserved nothing so far.

Room *could be made* for it on a node whose free GPUs, plus the leases that may end there, are as
many as it needs. A lease may end if it is only on this node, and past its protection and the
minimum runtime. Its tenant must still hold min(demand, quota) afterwards. Of several leases of a
tenant the larger ones end first. No owed job waits while room could be made. So it waits only while
leases are protected or younger than the minimum runtime.

The check counts only cases that the policy could not miss, whatever the order of its picks. A
tenant's holdings include the GPUs that the round gave it. Of tenants that lose GPUs, only leases
that continue through the round count. Nodes on which leases ended for a job in this round are left
out, because a node has one exchange per round. GPU types of which a limit withdrew a term are left
out too: the decision does not show where those GPUs would have gone. A job whose lease ended in the
round is checked from the next round on.

The check shares no code with the policy and its searches. Only a policy can compute sums over its
window, because the pool's sums never forget. These sums are read from the round's stored data.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evenshare_core.domain.cluster import gpus_by_node, node_sizes, placement_gpus
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import ClaimKey
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, Snapshot
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.fairness.holds import HeldLease, RuleCount

# A tenant is owed its quota if it received less than this part of the GPU-time deserved.
OWED_PERCENT = 95


class Guarantee(NamedTuple):
    """A policy's guarantee in one round.

    `min_runtime_us` is the time for which a lease runs before it may end for others. `sums` has the
    GPU-time received and deserved over the policy's window, by claim. If it is `None`, every tenant
    within its quota is owed it, whatever it received.
    """

    min_runtime_us: int
    sums: Mapping[ClaimKey, tuple[int, int]] | None

    def is_owed(self, claim: ClaimKey) -> bool:
        """Return whether the tenant is owed GPUs within its quota."""
        if self.sums is None:
            return True
        received, deserved = self.sums.get(claim, (0, 0))
        return not deserved or 100 * received < OWED_PERCENT * deserved


def unserved(
    snapshot: Snapshot, decision: Decision, held: list[HeldLease], guarantee: Guarantee
) -> RuleCount:
    """Return the number of waiting jobs that are owed GPUs, and the tenants that could be served.

    `held` has the leases after the round.
    """
    round_ = _Round(snapshot, decision, held, guarantee)
    owed, broken = 0, set()
    for job in round_.waiting():
        types = [name for name in round_.types_of(job) if round_.is_owed(job, name)]
        owed += bool(types)
        if any(job.gpus <= round_.largest_room(name) for name in types):
            broken.add(job.tenant)
    return RuleCount(owed, tuple(sorted(broken)))


class _Round:
    """The leases after the round, and the waiting jobs that could use their GPUs instead."""

    def __init__(
        self, snapshot: Snapshot, decision: Decision, held: list[HeldLease], guarantee: Guarantee
    ) -> None:
        self._snapshot, self._guarantee, self._held = snapshot, guarantee, held
        self._claims = {(row.tenant, row.gpu_type): row for row in decision.service.claims}
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._speeds = {row.id: dict(row.speedups) for row in snapshot.profiles}
        self._sizes = node_sizes(snapshot.nodes)
        withdrawn = [skip for skip in decision.skips if skip.numbers.get("withdrawn")]
        self._unclear_types = {skip.numbers.get("gpu_type") for skip in withdrawn}
        self._unclear_jobs = {job for skip in withdrawn for job in skip.jobs}
        ended = {end.lease for end in decision.ends}
        early = {row.lease for row in decision.preemptions}
        self._exchanged = {
            node for row in snapshot.leases if row.id in early for node, _ in row.placement
        }
        self._lasting = [
            row
            for row in snapshot.leases
            if row.id not in ended and not row.ends_by(snapshot.at_us)
        ]
        # The most GPUs that a tenant held while the round was decided, including ended leases.
        self._most: Counter[ClaimKey] = Counter()
        for row in held:
            self._most[row.tenant, row.gpu_type] += placement_gpus(row.placement)
        for lease in snapshot.leases:
            if lease.id in early:
                self._most[lease.tenant, lease.gpu_type] += lease.gpus
        self._jobs = {job.id for job in snapshot.jobs}
        self._rooms: dict[str, int] = {}

    def waiting(self) -> Iterator[Job]:
        """Return the jobs that waited before the round and still wait, without losing a lease."""
        left_out = {row.job for row in self._snapshot.leases} | self._unclear_jobs
        left_out |= {row.job for row in self._held}
        return (job for job in self._snapshot.jobs if job.id not in left_out)

    def types_of(self, job: Job) -> list[str]:
        """Return the GPU types on which the job can run and fits on one node."""
        speeds = self._speeds.get(job.profile)
        return [
            name
            for name in accepted_types(job, self._sizes)
            if job.gpus <= self._sizes[name] and (speeds is None or speeds.get(name, 0))
        ]

    def is_owed(self, job: Job, gpu_type: str) -> bool:
        """Return whether the tenant stays within quota with this job and is owed GPUs."""
        key = (job.tenant, gpu_type)
        claim = self._claims.get(key)
        if claim is None or gpu_type in self._unclear_types:
            return False
        quota = min(claim.quota, self._quotas.get(key, 0))
        return self._most[key] + job.gpus <= quota and self._guarantee.is_owed(key)

    def largest_room(self, gpu_type: str) -> int:
        """Return the largest gang for which room could be made on a node."""
        if gpu_type not in self._rooms:
            self._rooms[gpu_type] = self._find_room(gpu_type)
        return self._rooms[gpu_type]

    def _find_room(self, gpu_type: str) -> int:
        load = gpus_by_node(row.placement for row in self._held)
        # (node, tenant): GPUs of each lease that may end
        leases: dict[int, dict[int, list[int]]] = {}
        spare: Counter[int] = Counter()
        for lease in self._lasting:
            if lease.gpu_type == gpu_type:
                spare[lease.tenant] += lease.gpus
                if self._may_end(lease):
                    of_node = leases.setdefault(lease.placement[0][0], {})
                    of_node.setdefault(lease.tenant, []).append(lease.gpus)
        for tenant in spare:
            spare[tenant] -= _share(self._claims.get((tenant, gpu_type)))
        rooms = [0]
        for node in self._snapshot.nodes:
            free = node.gpus - load.get(node.id, 0)
            if node.gpu_type != gpu_type or node.id in self._exchanged or free < 0:
                continue
            of_node = leases.get(node.id, {})
            rooms.append(free + sum(_losable(of_node[one], spare[one]) for one in of_node))
        return max(rooms)

    def _may_end(self, lease: Lease) -> bool:
        at_us = self._snapshot.at_us
        return (
            lease.job in self._jobs
            and lease.may_be_preempted(at_us)
            and at_us - lease.started_us >= self._guarantee.min_runtime_us
            and len(lease.placement) == 1
        )


def _share(claim: ClaimService | None) -> int:
    """Return min(demand, quota)."""
    return 0 if claim is None else min(claim.demand, claim.quota)


def _losable(leases: list[int], spare: int) -> int:
    """Return the GPUs a tenant can lose on a node: whole leases in its spare, larger first."""
    left = spare
    for gpus in sorted(leases, reverse=True):
        if gpus <= left:
            left -= gpus
    return max(0, spare - left)
