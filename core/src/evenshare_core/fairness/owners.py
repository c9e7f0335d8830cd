"""Check that no borrowing lease goes before an owner's job, if owners go first.

It is for policies that end no lease before its expiry and give own quota in every round. They start
no borrowing term while a job within its tenant's quota waits for the GPUs. Such a job waits until
the borrowed GPUs of some node have expired: its *clear time* on that node, at most a lease length
ahead. In each round

- an owed job does not wait if more nodes have room for it than may be kept for earlier jobs
  (one per job);
- no borrowing term that the round starts, a grant or a renewal, delays the earliest clear
  time of an owed job;
- no tenant borrows by a new term before its own quota of that type is used.

A job is owed its GPUs if it fits on one node and within its tenant's quota. GPUs held within quota
stay; all others are free when their term is over.

The check counts only cases that the policy could not miss, whatever the order of its picks. A
tenant's use of its quota is the maximum, including leases that the round ended. Jobs whose lease
ended are checked from the next round on.

The check shares no code with the policy and its way of keeping nodes.
"""

from bisect import bisect_left
from collections import Counter
from itertools import product
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement, node_sizes
from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.entitlements import ClaimKey
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.snapshot import Snapshot


class OwnersCheck(NamedTuple):
    """The result of the check.

    - `owed`: the number of queued jobs that are owed GPUs.
    - `borrowed`: the GPUs borrowed by new terms.
    - `broken`: tenants that a borrowing lease delayed, or that paid for own quota, sorted.
    - `latest_us`: the longest wait of an owed job until a node is clear, and `tenant` the job's
      tenant. Both are None if no node will be clear for any owed job.
    """

    owed: int
    borrowed: int
    broken: tuple[int, ...]
    latest_us: int | None
    tenant: int | None


def check_owners(snapshot: Snapshot, decision: Decision) -> OwnersCheck:
    """Return the owners that a round delayed with borrowing leases, and the longest wait."""
    round_ = _OwnersRound(snapshot, decision)
    broken = round_.paying_owners()
    owed, waits = 0, list[tuple[int, int]]()
    for shape, jobs in round_.waiting.items():
        types = [name for name in round_.types_of(shape) if round_.is_owed(shape, name)]
        owed += len(jobs) if types else 0
        clear = list[int]()
        for name in types:
            before_us, after_us = round_.clear_us(name, shape.gpus)
            if before_us is None:
                continue
            has_room_left = round_.rooms(name, shape.gpus) > round_.ahead(jobs[0], name)
            if has_room_left or after_us is None or after_us > before_us:
                broken.add(shape.tenant)
            clear.append(before_us if after_us is None else after_us)
        if clear:
            waits.append((min(clear) - snapshot.at_us, shape.tenant))
    latest_us, tenant = max(waits, default=(None, None))
    return OwnersCheck(owed, round_.borrowed, tuple(sorted(broken)), latest_us, tenant)


class _Shape(NamedTuple):
    """The properties of a job that decide where and when it may start within quota."""

    tenant: int
    gpus: int
    gpu_types: tuple[str, ...]
    profile: int


class _Node(NamedTuple):
    """A node's GPUs that are not held within quota, and the ends of terms on borrowed GPUs.

    `fresh` has the terms that the round starts.
    """

    gpus: int
    kept: list[tuple[int, int]]
    fresh: list[tuple[int, int]]


class _Room(NamedTuple):
    """The first times at which a node has enough GPUs, without and with the terms that start now.

    `nodes` counts the nodes that have enough GPUs after the round.
    """

    before_us: int | None
    after_us: int | None
    nodes: int


class _OwnersRound:
    """The leases after the round, within quota and above it, and the waiting jobs."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self._snapshot = snapshot
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._speeds = {row.id: dict(row.speedups) for row in snapshot.profiles}
        self._sizes = node_sizes(snapshot.nodes)
        self._own: Counter[ClaimKey] = Counter()  # GPUs held within quota after the round
        # the most GPUs held within quota while the round was decided
        self._most: Counter[ClaimKey] = Counter()
        self._borrowers: set[ClaimKey] = set()
        self.borrowed = 0
        self._nodes = {row.id: _Node(row.gpus, [], []) for row in snapshot.nodes}
        self._add_kept(decision)
        self._add_terms(decision)
        self.waiting: dict[_Shape, list[Job]] = {}
        self._order: dict[str, list[tuple[int, int]]] = {}
        self._add_jobs(decision)
        self._rooms: dict[tuple[str, int], _Room] = {}

    def _add_kept(self, decision: Decision) -> None:
        over = {row.lease for row in decision.ends}
        begun = {row.lease for row in decision.renewals}
        for lease in self._snapshot.leases:
            key = (lease.tenant, lease.gpu_type)
            if lease.id in over:
                self._most[key] += lease.gpus
            elif lease.id not in begun:
                self._own[key] += lease.own
                until_us = max(lease.expires_us, lease.protected_until_us)
                self._hold(lease.placement, lease.borrowed, until_us, fresh=False)

    def _add_terms(self, decision: Decision) -> None:
        places = {lease.id: lease.placement for lease in self._snapshot.leases}
        lengths = {row.job: row.lease_us for row in decision.lengths}
        terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
        for term in terms:
            key = (term.tenant, term.gpu_type)
            self._own[key] += term.own
            self.borrowed += term.borrowed
            if term.borrowed:
                self._borrowers.add(key)
            place = places[term.lease] if isinstance(term, Renew) else term.placement
            length_us = lengths.get(term.job, self._snapshot.lease_us)
            self._hold(place, term.borrowed, self._snapshot.at_us + length_us, fresh=True)
        self._most.update(self._own)

    def _hold(self, placement: Placement, borrowed: int, until_us: int, *, fresh: bool) -> None:
        """Subtract GPUs held within quota from the node, or add a borrowing lease with its end."""
        for node_id, gpus in placement:
            node = self._nodes.get(node_id)
            if node is None:
                continue
            if borrowed:
                (node.fresh if fresh else node.kept).append((until_us, gpus))
            else:
                self._nodes[node_id] = node._replace(gpus=node.gpus - gpus)

    def _add_jobs(self, decision: Decision) -> None:
        """Collect waiting jobs that held no lease before, and jobs for which a node may be kept."""
        held = {lease.job for lease in self._snapshot.leases}
        given = {row.job: row for row in decision.grants}
        for job in self._snapshot.jobs:
            if job.id in held:
                continue
            shape = _Shape(job.tenant, job.gpus, job.gpu_types, job.profile)
            grant = given.get(job.id)
            if grant is None:
                jobs = self.waiting.setdefault(shape, [])
                jobs.append(job)
                continue
            for name in self.types_of(shape):
                # The policy may have kept GPUs of this type for a job before that job started on
                # another type.
                if grant.borrowed or grant.gpu_type != name:
                    self._may_keep(job, shape, name)
        for shape, jobs in self.waiting.items():
            jobs.sort(key=arrival_order)
            for name, job in product(self.types_of(shape), jobs):
                self._may_keep(job, shape, name)
        for keys in self._order.values():
            keys.sort()

    def _may_keep(self, job: Job, shape: _Shape, gpu_type: str) -> None:
        if shape.gpus <= self._quotas.get((shape.tenant, gpu_type), 0):
            self._order.setdefault(gpu_type, []).append(arrival_order(job))

    def paying_owners(self) -> set[int]:
        """Return the tenants that borrow with a new term before their own quota is used up."""
        return {
            tenant
            for tenant, name in self._borrowers
            if self._own[tenant, name] < self._quotas.get((tenant, name), 0)
        }

    def types_of(self, shape: _Shape) -> list[str]:
        """Return the GPU types on which a job of this shape can run and fits on one node."""
        speeds = self._speeds.get(shape.profile)
        names = shape.gpu_types or self._sizes
        return [
            name
            for name in sorted(names)
            if shape.gpus <= self._sizes.get(name, 0) and (speeds is None or speeds.get(name, 0))
        ]

    def is_owed(self, shape: _Shape, gpu_type: str) -> bool:
        """Return whether the tenant stays within quota with this job, whatever the round gave."""
        key = (shape.tenant, gpu_type)
        return self._most[key] + shape.gpus <= self._quotas.get(key, 0)

    def ahead(self, job: Job, gpu_type: str) -> int:
        """Return the number of earlier jobs that may each keep a node of this type."""
        return bisect_left(self._order.get(gpu_type, []), arrival_order(job))

    def clear_us(self, gpu_type: str, gpus: int) -> tuple[int | None, int | None]:
        """Return the first times at which a node has `gpus` GPUs, as borrowed terms end.

        The first time ignores the terms that the round starts, the second includes them. Each is
        None if no node ever has enough.
        """
        room = self._room(gpu_type, gpus)
        return room.before_us, room.after_us

    def rooms(self, gpu_type: str, gpus: int) -> int:
        """Return the number of nodes that have `gpus` GPUs free after the round."""
        return self._room(gpu_type, gpus).nodes

    def _room(self, gpu_type: str, gpus: int) -> _Room:
        key = (gpu_type, gpus)
        if key not in self._rooms:
            rows = [row.id for row in self._snapshot.nodes if row.gpu_type == gpu_type]
            nodes = [self._nodes[node_id] for node_id in rows]
            before = [self._clear_on(node.gpus, node.kept, gpus) for node in nodes]
            after = [self._clear_on(node.gpus, node.kept + node.fresh, gpus) for node in nodes]
            now = after.count(self._snapshot.at_us)
            self._rooms[key] = _Room(_earliest(before), _earliest(after), now)
        return self._rooms[key]

    def _clear_on(self, room: int, leases: list[tuple[int, int]], gpus: int) -> int | None:
        free = room - sum(count for _, count in leases)
        if gpus <= free:
            return self._snapshot.at_us
        for until_us, count in sorted(leases):
            free += count
            if gpus <= free:
                return until_us
        return None


def _earliest(instants: list[int | None]) -> int | None:
    return min((one for one in instants if one is not None), default=None)
