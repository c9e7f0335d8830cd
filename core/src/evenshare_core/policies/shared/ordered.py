"""A round of a policy that places jobs in a fixed order.

This module is not a policy. A baseline supplies the order and the settings below. Limits, placement
and reasons are the same as for other policies.

- Leases that ended are renewed before other jobs are placed, unless the policy preempts. If it
  does, their jobs queue with the waiting jobs, and keep their GPUs if no earlier job took them.
- `strict`: the first job of a queue that does not fit blocks the jobs behind it. A job that can
  never run (larger than the pool, refused by a limit) blocks no job.
- A job that accepts several GPU types is tried on each type whose queue is not blocked. Types
  within its tenant's quota come first; of these, the claimed type is first. A job whose lease ends
  is tried on its current type first.
- `whole_nodes`: a gang larger than a node gets whole nodes, and one more node for the remainder.
- `spread`: if no node has room, a gang may span nodes even if it is not larger than a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement, capacity_by_type
from evenshare_core.domain.decision import Decision, Grant, Key, Renew
from evenshare_core.domain.jobs import UNHEARD, Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.fairness.claims import AloneTypes, reported_type_first
from evenshare_core.placement.consolidated import FreeCapacity, find_place, free_capacity_by_type
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.terms import expired_ends


class QueuedJob(NamedTuple):
    """A job that waits or whose lease ended, with its GPU-time sums.

    `gpu_types`: the types on which it may be tried; reasons name the first. `gpu_type`: the type on
    which it is tried now.
    """

    job: Job
    sums: JobService
    lease: Lease | None
    gpu_types: tuple[str, ...]
    gpu_type: str

    def on(self, gpu_type: str) -> QueuedJob:
        """Return the job on a given type. Its lease can be renewed only on the lease's own type."""
        return self if gpu_type == self.gpu_type else self._replace(gpu_type=gpu_type)


class QueueCandidates:
    """A factory of candidates for a pool with a given capacity by GPU type."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self._capacity = capacity
        self._only = next(iter(capacity)) if len(capacity) == 1 else None
        self._alone = AloneTypes()

    def of(self, job: Job, sums: JobService, lease: Lease | None) -> QueuedJob:
        """Return the candidate of a job that waits or whose lease ended."""
        claimed = sums.gpu_type
        if claimed == self._only or len(job.gpu_types) == 1:
            return QueuedJob(job, sums, lease, self._alone[claimed], claimed)
        types = reported_type_first(self._capacity, job, claimed)
        return QueuedJob(job, sums, lease, types, types[0])


class QueueRule(NamedTuple):
    """The order of a baseline, and how strictly rounds keep to it.

    `order` must end in (submission, id). `strict`: a job that does not fit blocks its `queue`.
    `limit` returns the refusal of a job that can never run. A job that `admits` does not accept
    waits like a job that does not fit. `given` is called with every new lease. `note` returns the
    note of a pick.
    """

    order: Callable[[QueuedJob], tuple[Any, ...]]
    queue: Callable[[QueuedJob], tuple[int, str]] = lambda one: (one.job.id, one.gpu_type)
    strict: bool = False
    preempts: bool = False
    whole_nodes: bool = False
    spread: bool = False
    limit: Callable[[QueuedJob], Refusal | None] = lambda _: None
    admits: Callable[[QueuedJob], bool] = lambda _: True
    given: Callable[[QueuedJob], None] = lambda _: None
    note: Callable[[QueuedJob], str] = lambda _: ""


def by_arrival(candidate: QueuedJob) -> tuple[int, int]:
    """Return the sort key (submission, id), with which every order ends."""
    return (candidate.job.submitted_us, candidate.job.id)


def decide_in_order(snapshot: Snapshot, rule: QueueRule) -> Decision:
    """Decide one round by the rule, without changing the policy's memory.

    Raises:
        ValueError: the service sums lack a job of the snapshot.
    """
    picks = OrderedPicks(rule, pool_capacity(snapshot, rule), Admission.of(snapshot))
    candidates = queued_jobs(snapshot)
    if not rule.preempts:
        picks.renew_all([one for one in candidates if one.lease is not None])
        candidates = [one for one in candidates if one.lease is None]
    for candidate in sorted(candidates, key=rule.order):
        picks.consider(candidate)
    return picks.decision(snapshot)


def pool_capacity(snapshot: Snapshot, rule: QueueRule) -> dict[str, FreeCapacity]:
    """Return the free capacity by GPU type, including types that no longer have nodes."""
    types = [row.gpu_type for row in snapshot.service.claims]
    return free_capacity_by_type(
        snapshot.nodes, snapshot.leases, snapshot.at_us, spread=rule.spread, types=types
    )


def order_of(snapshot: Snapshot, rule: QueueRule) -> tuple[int, ...]:
    """Return the jobs in the order of placement, starting with jobs whose leases are renewed first.

    Raises:
        ValueError: the service sums lack a job of the snapshot.
    """
    candidates = queued_jobs(snapshot)
    renewed: list[QueuedJob] = []
    if not rule.preempts:
        renewed = sorted((one for one in candidates if one.lease is not None), key=by_start)
        candidates = [one for one in candidates if one.lease is None]
    return tuple(one.job.id for one in (*renewed, *sorted(candidates, key=rule.order)))


def by_start(candidate: QueuedJob) -> tuple[int, int]:
    """Return the sort key by the start of the lease."""
    lease = candidate.lease
    return (0, 0) if lease is None else (lease.started_us, lease.id)


def queued_jobs(snapshot: Snapshot) -> list[QueuedJob]:
    """Return the jobs that wait or whose lease ended, in the order of their ids.

    Raises: as `decide_in_order`.
    """
    ended = {lease.job: lease for lease in snapshot.leases if lease.ends_by(snapshot.at_us)}
    running = {lease.job for lease in snapshot.leases if lease.job not in ended}
    sums = {row.job: row for row in snapshot.service.jobs}
    candidates = QueueCandidates(capacity_by_type(snapshot.nodes))
    rows = []
    for job in snapshot.jobs:
        if job.id in running:
            continue
        if job.id not in sums:
            raise ValueError(UNHEARD.format(job.id))
        rows.append(candidates.of(job, sums[job.id], ended.get(job.id)))
    return rows


class OrderedPicks:
    """The picks of the round so far.

    `refused`: by job, why a limit refused it. `blocked`: the blocked queues, each with the job that
    blocks it.
    """

    def __init__(
        self, rule: QueueRule, free_by_type: dict[str, FreeCapacity], admission: Admission
    ) -> None:
        self._rule = rule
        self.free_by_type, self.admission = free_by_type, admission
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.refused: dict[int, Refusal] = {}
        self._waits: dict[tuple[int, tuple[str, ...]], list[QueuedJob]] = {}
        self.blocked: dict[tuple[int, str], int] = {}

    def renew_all(self, ended: Iterable[QueuedJob]) -> None:
        """Renew leases that ended, in the order of their starts, before other jobs are placed."""
        for candidate in sorted(ended, key=by_start):
            self._consider(self.in_turn(candidate), strict=False)

    def consider(self, candidate: QueuedJob) -> bool:
        """Place a job on a type with an unblocked queue.

        If this fails, the job waits and may block its queue.
        """
        return self._consider(self.in_turn(candidate), strict=self._rule.strict)

    def in_turn(self, candidate: QueuedJob) -> list[QueuedJob]:
        """Return a job once per type, in the order in which the types are tried."""
        if len(candidate.gpu_types) == 1:
            return [candidate]
        job, lease = candidate.job, candidate.lease

        def rank(gpu_type: str) -> tuple[bool, bool, bool, str]:
            stays = lease is not None and lease.gpu_type == gpu_type
            is_own = self.admission.is_own(job, gpu_type)
            return (not stays, not is_own, gpu_type != candidate.sums.gpu_type, gpu_type)

        return [candidate.on(name) for name in sorted(candidate.gpu_types, key=rank)]

    def _consider(self, tries: list[QueuedJob], *, strict: bool) -> bool:
        """Try one job on its types in turn. If `strict`, a job that does not fit blocks its queue.

        If a lease that ended is not renewed, its GPUs become free before its job is placed again.
        """
        job_id, lease = tries[0].job.id, tries[0].lease
        refusals: dict[str, Refusal] = {}  # refusals by GPU type
        for one in tries:
            queue = self._rule.queue(one)
            if queue in self.blocked:
                if lease is not None and lease.gpu_type == one.gpu_type:
                    self.free_by_type[one.gpu_type].drop(lease.placement)
                continue
            outcome = self._try_job(one)
            if outcome is True:
                return True
            if isinstance(outcome, Refusal):
                refusals[one.gpu_type] = outcome
            elif strict:
                self.blocked[queue] = job_id
        if len(refusals) == len(tries):
            self.refused[job_id] = refusals[tries[0].gpu_type]
        self.wait(tries[0], refusals)
        return False

    def _try_job(self, one: QueuedJob) -> Refusal | bool:
        """Give a job its gang on one type if limits allow it and the gang fits."""
        job, gpu_type = one.job, one.gpu_type
        lease = one.lease if one.lease is not None and one.lease.gpu_type == gpu_type else None
        free_capacity = self.free_by_type[gpu_type]
        refusal = self._rule.limit(one) or self.admission.check(job, gpu_type)
        if job.gpus > free_capacity.capacity:
            refusal = Refusal(Reason.TOO_LARGE)
        if refusal is not None:
            if lease is not None:
                free_capacity.drop(lease.placement)
            return refusal
        if lease is not None and not self.may_renew(one, lease):
            free_capacity.drop(lease.placement)
        elif lease is not None and free_capacity.renew(lease.placement):
            self._renew(one, lease)
            return True
        placement = self.place(one, free_capacity) if self._rule.admits(one) else None
        if placement is None:
            return False
        order = len(self.grants) + len(self.renewals) + 1
        key = Key(None, None, self._rule.note(one))
        self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        self.admission.take(job.tenant, gpu_type, job.gpus)
        self._rule.given(one)
        return True

    def place(self, one: QueuedJob, free_capacity: FreeCapacity) -> Placement | None:
        """Place a gang on the type on which it is tried, or return None if it must wait."""
        rule, available, gpus = self._rule, free_capacity.available, one.job.gpus
        if find_place(available, gpus, whole_nodes=rule.whole_nodes, spread=rule.spread) is None:
            return None
        return free_capacity.place(gpus)

    def may_renew(
        self,
        one: QueuedJob,  # noqa: ARG002 - for those that count more than GPUs
        lease: Lease,  # noqa: ARG002 - the same
    ) -> bool:
        """Return whether an ended lease may keep its GPUs, if they are available."""
        return True

    def _renew(self, one: QueuedJob, lease: Lease) -> None:
        order = len(self.grants) + len(self.renewals) + 1
        key = Key(None, None, self._rule.note(one))
        self.renewals.append(Renew.of(lease, order, key))
        self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)

    def wait(self, candidate: QueuedJob, refusals: Collection[str] = ()) -> None:
        """Record that a job waits, with its first type on which no limit refused it."""
        types = candidate.gpu_types
        first = next((name for name in types if name not in refusals), types[0])
        reported = candidate.on(first)
        key = (reported.job.tenant, (first, *(name for name in types if name != first)))
        self._waits.setdefault(key, []).append(reported)

    def queues(self) -> list[explain.Queue]:
        """Return the waiting jobs, grouped for `explain.skips`."""
        rows = []
        for (tenant, (gpu_type, *others)), waits in sorted(self._waits.items()):
            queues = {self._rule.queue(one) for one in waits}
            blockers = [self.blocked[queue] for queue in queues if queue in self.blocked]
            jobs = sorted((one.job for one in waits), key=arrival_order)
            blocker = min(blockers, default=None)
            rows.append(explain.Queue(tenant, gpu_type, jobs, None, None, blocker, tuple(others)))
        return rows

    def decision(self, snapshot: Snapshot) -> Decision:
        """Return the round's picks, the reasons why jobs wait, and the unchanged memory."""
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(self.grants),
            renewals=tuple(self.renewals),
            ends=expired_ends(snapshot, {row.lease for row in self.renewals}, self.refused),
            skips=tuple(explain.skips(self.queues(), self.free_by_type, self.admission)),
            memory=snapshot.memory,
        )
