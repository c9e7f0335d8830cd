"""Waiting jobs in the order of rule 2, and GPU-time received and deserved by tenant (rule 1).

Waiting jobs are of one kind if a round that fails one of them must fail those behind it. They share
tenant, claimed GPU type, gang, accepted types, maximum price and profile, and are all new or all
not. Each kind is a list in the order of its keys, so a round reads only the heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, ClassService, JobService
from evenshare_core.fairness.gpu_time import ClaimSums, job_received
from evenshare_core.units import SECOND_US

# Rule 1: deserved GPU-time counts as if this much time had already passed.
HEAD_START_US = 300 * SECOND_US
# Rule 2 with estimates: the least part of its estimate that a job still needs, and the bonus of a
# renewal. The last is the need of a job that never ran and has no estimate.
LEAST, RENEWAL_US, UNKNOWN_US = 0.05, 90 * SECOND_US, 1290 * SECOND_US
# Rules 2 and 4 (b) without estimates: a job that attained this much is long.
LONG_GPU_US = 2700 * SECOND_US

ClaimKey = tuple[int, str]  # (tenant, GPU type)
# (gang, accepted types, maximum price, profile, never ran, weight if it is long)
Kind = tuple[int, tuple[str, ...], int | None, int, bool, int]
Rank = tuple[int, float]  # of rule 2: 1 for long jobs, otherwise 0; then the key, the least first
NEW_RANK: Rank = (0, 0)  # without estimates, for a job that received nothing
Entry = tuple[Rank, int, int]  # rank, submitted, id
Kinds = dict[Kind, list[Entry]]
ClaimRow = ClaimService | ClaimSums
# Class of long jobs whose list leaves out FairTime in ranks: claim, gang and weight.
JobClass = tuple[ClaimKey, int, int]


Waiting = tuple[Job, JobService]  # a waiting job, with its GPU-time sums


class EvenCandidate(NamedTuple):
    """A job that waits or whose lease ended, with its GPU-time sums."""

    job: Job
    sums: JobService
    lease: Lease | None


class TenantStanding:
    """A claim in this round: A and F of rule 1, GPUs held, and GPUs given by the round.

    `kept`: GPUs in leases that continue through the round. `given`: GPUs of the round so far.
    `share` is min(D, Q).
    """

    __slots__ = ("deserved", "given", "granted_us", "kept", "quota", "received", "share", "tenant")

    def __init__(self, row: ClaimRow | None, tenant: int, sums: tuple[int, int], kept: int) -> None:
        self.tenant, self.kept = tenant, kept
        self.received, self.deserved = sums
        self.quota = row.quota if row is not None else 0
        self.share = min(row.demand, row.quota) if row is not None else 0
        self.given = self.granted_us = 0

    @property
    def held(self) -> int:
        """GPUs that it holds after the decisions so far."""
        return self.kept + self.given

    @property
    def spare(self) -> int:
        """GPUs that it may lose and still hold min(D, Q)."""
        return self.held - self.share

    def key(self) -> float:
        """Return received plus granted over deserved GPU-time (rule 1); inf if it deserves none."""
        due = self.deserved + HEAD_START_US * self.share
        return (self.received + self.granted_us) / due if due else inf

    def tight_key(self) -> float:
        """Return GPUs held over min(D, Q), the key of the tight preset; inf if it is 0."""
        return self.held / self.share if self.share else inf

    def is_owed(self) -> bool:
        """Return whether it received less than 95 % of its deserved GPU-time (rule 4 (a))."""
        return 20 * self.received < 19 * self.deserved or not self.deserved


# ---- rule 2 ----


def kind_of(job: Job, sums: JobService, *, by_class: bool) -> Kind:
    """Return the kind of a job; it includes the class of long jobs if `by_class`."""
    is_new = not sums.alloc_gpu_us and not sums.held
    weight = sums.weight if by_class and sums.alloc_gpu_us >= LONG_GPU_US else 0
    return (job.gpus, job.gpu_types, job.max_price_micro, job.profile, is_new, weight)


class JobOrder(ABC):
    """Rule 2 at a round."""

    # Whether ranks of waiting jobs do not change with time, so that their lists can be kept.
    is_kept = False

    def __init__(
        self,
        claims: Callable[[ClaimKey], ClaimRow],
        classes: Mapping[tuple[int, str, int, int], ClassService] | None,
        at_us: int,
    ) -> None:
        """`classes`: of sums as of the round, or None if `claims` are still to be advanced."""
        self._claims, self._classes, self.at_us = claims, classes, at_us
        self._fair: dict[JobClass, int] = {}

    @abstractmethod
    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return a candidate's rank in its list, or its own rank if its lease ends."""

    def now(self, candidate: EvenCandidate) -> Rank:
        """Return a candidate's rank at the round, comparable with all others."""
        rank = self.rank(candidate)
        if not rank[0] or candidate.lease is not None:
            return rank
        sums = candidate.sums
        job_class = ((sums.tenant, sums.gpu_type), sums.demand, sums.weight)
        return self.brought_up((rank, 0, 0), job_class)[0]

    def rank_waiting(self, job: Job, sums: JobService) -> Rank:
        return self.rank(EvenCandidate(job, sums, None))

    def brought_up(self, entry: Entry, job_class: JobClass) -> Entry:
        """Return the entry of a kept list of long jobs, with its rank at the round."""
        (tier, kept), submitted_us, job = entry
        return (tier, (kept - self.fair_us(*job_class)) / job_class[1]), submitted_us, job

    def fair_us(self, claim: ClaimKey, demand: int, weight: int) -> int:
        """Return FairTime (14) of a class of jobs at the round, since its integral started."""
        if self._classes is not None:
            return self._classes[*claim, demand, weight].fair_gpu_us
        key = (claim, demand, weight)
        fair_us = self._fair.get(key)
        if fair_us is None:
            row = self._claims(claim)
            if not isinstance(row, ClaimSums):
                raise TypeError("sums of this round have classes")
            row.advance(self.at_us)
            fair_us = self._fair[key] = row.classes[demand, weight].fair_gpu_us
        return fair_us


class AttainedOrder(JobOrder):
    """Order without estimates: least attained GPU-time, then long jobs, furthest behind FairTime
    first.

    Jobs of one class (gang and weight) deserve the same from now on. Their lists therefore leave
    out the common FairTime, which `brought_up` adds.
    """

    is_kept = True

    def __init__(
        self,
        claims: Callable[[ClaimKey], ClaimRow],
        classes: Mapping[tuple[int, str, int, int], ClassService] | None,
        at_us: int,
        lease_us: int,
    ) -> None:
        super().__init__(claims, classes, at_us)
        self._lease_us = lease_us

    def rank(self, candidate: EvenCandidate) -> Rank:
        sums = candidate.sums
        if candidate.lease is None:
            return self.rank_waiting(candidate.job, sums)
        attained = job_received(sums, self.at_us)
        if attained < LONG_GPU_US:
            return 0, attained / 2
        kept = attained + sums.baseline_gpu_us
        fair_us = self.fair_us((sums.tenant, sums.gpu_type), sums.demand, sums.weight)
        return 1, (kept - fair_us) / sums.demand - self._lease_us

    def rank_waiting(self, job: Job, sums: JobService) -> Rank:  # noqa: ARG002 - as the base
        attained = job_received(sums, self.at_us) if sums.held else sums.alloc_gpu_us
        if attained < LONG_GPU_US:
            return (0, attained) if attained else NEW_RANK
        return 1, attained + sums.baseline_gpu_us


def work_us(job: Job, sums: JobService, at_us: int) -> float:
    """Return E of rule 2: a job's total need by its estimate, as time on its gang, in us."""
    done_us = job_received(sums, at_us) / job.gpus
    return done_us + remaining_us(job, done_us)


def remaining_us(job: Job, done_us: float) -> float:
    """Return a job's need after `done_us`, in us; without an estimate, as much again."""
    if job.estimate_us is None:
        return max(done_us, UNKNOWN_US)
    return max(job.estimate_us - done_us, LEAST * job.estimate_us)


class EstimateOrder(JobOrder):
    """Order with estimates: the job whose fair share would have covered its need first."""

    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return (d E - FairTime) / min(d, FairShare), in us; inf without a share."""
        job, sums = candidate.job, candidate.sums
        claim = (sums.tenant, sums.gpu_type)
        row = self._claims(claim)
        share = min(row.demand, row.quota) * sums.weight
        if not share:
            return 0, inf
        fair_share = min(float(sums.demand), share / row.weights)
        work = sums.demand * work_us(job, sums, self.at_us)
        fair_us = self.fair_us(claim, sums.demand, sums.weight) - sums.baseline_gpu_us
        late_us = (work - fair_us) / fair_share
        return 0, late_us - RENEWAL_US if candidate.lease is not None else late_us


class DeadlineOrder(JobOrder):
    """Order with deadlines: least GPU-time left; jobs that can meet no deadline come last."""

    def __init__(
        self,
        claims: Callable[[ClaimKey], ClaimRow],
        classes: Mapping[tuple[int, str, int, int], ClassService] | None,
        at_us: int,
        last_us: Mapping[int, int],
    ) -> None:
        """`last_us`: the last deadline by job, for jobs that have deadlines."""
        super().__init__(claims, classes, at_us)
        self._last_us = last_us

    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return d x the time left, in GPU-us; inf if the job would end after its last deadline."""
        job, sums = candidate.job, candidate.sums
        left_us = remaining_us(job, job_received(sums, self.at_us) / job.gpus)
        if self.at_us + left_us > self._last_us.get(job.id, inf):
            return 0, inf
        return 0, left_us * job.gpus


# ---- the lists ----


def queue_up(waiting: Iterable[Waiting], order: JobOrder) -> dict[ClaimKey, Kinds]:
    """Return the waiting jobs by the claim that counts their demand, and by kind."""
    queues: dict[ClaimKey, Kinds] = {}
    rank, by_class = order.rank_waiting, order.is_kept
    for job, sums in waiting:
        claim = (sums.tenant, sums.gpu_type)
        kinds = queues.get(claim)
        if kinds is None:
            kinds = queues[claim] = {}
        kind = kind_of(job, sums, by_class=by_class)
        entries = kinds.get(kind)
        if entries is None:
            entries = kinds[kind] = []
        entries.append((rank(job, sums), job.submitted_us, job.id))
    for kinds in queues.values():
        for entries in kinds.values():
            entries.sort()
    return queues


class KindList(NamedTuple):
    """The jobs of a kind, with the class of long jobs.

    `group`: shared by kinds that differ only in a maximum price that refuses none of them; else
    None. A price that decides nothing must not change the order (ADR 0195).
    """

    entries: list[Entry]
    job_class: JobClass | None = None
    group: tuple[object, ...] | None = None


_NO_LIST = KindList([])


class JobLine:
    """The jobs of some claims in one line, by rule 2: heads of kinds, and individual renewals."""

    __slots__ = ("_heap", "_is_waiting", "_order")

    def __init__(
        self,
        order: JobOrder,
        lists: Iterable[KindList] = (),
        ended: Iterable[Entry] = (),
        is_waiting: Callable[[int], bool] | None = None,
    ) -> None:
        """`lists`: lists of the same group, if it is not None, fail together.

        `is_waiting`: None if all listed jobs wait; jobs that do not wait are removed.
        """
        self._order, self._is_waiting = order, is_waiting
        self._heap: list[tuple[Entry, int, KindList]]
        self._heap = [(entry, 0, _NO_LIST) for entry in ended]
        for row in lists:
            self._push(row, 0)
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def head(self) -> Entry:
        return self._heap[0][0]

    def drop(self) -> None:
        """Remove the head and all jobs of its kind behind it."""
        group = heappop(self._heap)[2].group
        if group is not None:
            self._heap = [row for row in self._heap if row[2].group != group]
            heapify(self._heap)

    def step(self) -> None:
        _, index, row = heappop(self._heap)
        if row.entries:
            self._push(row, index + 1)

    def join(self, other: JobLine) -> None:
        for row in other._heap:
            heappush(self._heap, row)

    def _push(self, row: KindList, index: int) -> None:
        is_waiting, (entries, job_class, _) = self._is_waiting, row
        while index < len(entries):
            entry = entries[index]
            if is_waiting is None or is_waiting(entry[2]):
                head = self._order.brought_up(entry, job_class) if job_class else entry
                heappush(self._heap, (head, index, row))
                return
            del entries[index]


def insert(queues: dict[ClaimKey, Kinds], candidate: EvenCandidate, entry: Entry) -> list[Entry]:
    """Insert a job that starts to wait into its kept list, and return the list."""
    job, sums = candidate.job, candidate.sums
    kinds = queues.setdefault((sums.tenant, sums.gpu_type), {})
    entries = kinds.setdefault(kind_of(job, sums, by_class=True), [])
    insort(entries, entry)
    return entries
