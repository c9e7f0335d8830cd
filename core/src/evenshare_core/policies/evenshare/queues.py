"""Waiting jobs in the order of rule 2, and GPU-time received and deserved by tenant (rule 1).

Jobs are of one kind if, when one of them fails in a round, all behind it must fail too. They share
tenant, claimed GPU type, gang, accepted types, maximum price and profile, and either all or none of
them are new. Each kind is a list in the order of its keys, so a round reads only the heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar, NamedTuple

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, ClassService, JobService
from evenshare_core.fairness.gpu_time import ClaimSums, job_received
from evenshare_core.units import SECOND_US

# Rule 1 computes deserved GPU-time as if this much more time had passed.
HEAD_START_US = 300 * SECOND_US
# Rule 2 with estimates: the least remaining part of an estimate, and the bonus of a renewal.
# UNKNOWN_US is the assumed need of a job without an estimate that never ran.
LEAST, RENEWAL_US, UNKNOWN_US = 0.05, 90 * SECOND_US, 1290 * SECOND_US
# Rules 2 and 5 without estimates: a job that has attained this much GPU-time is long.
LONG_GPU_US = 2700 * SECOND_US

ClaimKey = tuple[int, str]  # (tenant, GPU type)
# (gang, accepted types, maximum price, profile, never ran, weight of a long job or 0)
Kind = tuple[int, tuple[str, ...], int | None, int, bool, int]
# rule 2: (1 for long jobs, 0 for others; key). The lowest rank goes first.
Rank = tuple[int, float]
NEW_RANK: Rank = (0, 0)  # without estimates: the rank of a job that has received no GPU-time
Entry = tuple[Rank, int, int]  # rank, submitted, id
Kinds = dict[Kind, list[Entry]]
ClaimRow = ClaimService | ClaimSums
# (claim, gang, weight): a class of long jobs with a common FairTime, which ranks in lists leave out
JobClass = tuple[ClaimKey, int, int]


Waiting = tuple[Job, JobService]  # a waiting job with its GPU-time sums


class EvenCandidate(NamedTuple):
    """A job that waits or whose lease ended, with its GPU-time sums."""

    job: Job
    sums: JobService
    lease: Lease | None


class TenantStanding:
    """The GPU-time (A and F of rule 1) and the GPUs of a claim in this round.

    `kept`: GPUs in leases that continue. `given`: GPUs that the round has given so far. `share`:
    min(D, Q).
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
        """Return the GPUs held after the decisions so far."""
        return self.kept + self.given

    @property
    def spare(self) -> int:
        """Return how many GPUs the tenant may lose and still hold min(D, Q)."""
        return self.held - self.share

    def charge(self, gpus: int, lease_us: int) -> None:
        """Count GPUs that the round gives for one lease."""
        self.given += gpus
        self.granted_us += gpus * lease_us

    def key(self) -> float:
        """Return the key of rule 1, or inf if the tenant deserves no GPU-time."""
        due = self.deserved + HEAD_START_US * self.share
        return (self.received + self.granted_us) / due if due else inf

    def tight_key(self) -> float:
        """Return the key of the preset "tight", held GPUs / min(D, Q), or inf if min(D, Q) is 0."""
        return self.held / self.share if self.share else inf

    def is_owed(self) -> bool:
        """Return whether the tenant received less than 95 % of what it deserves (the guarantee)."""
        return 20 * self.received < 19 * self.deserved or not self.deserved


# ---- the order of jobs: rule 2 ----


def kind_of(job: Job, sums: JobService, *, by_class: bool) -> Kind:
    """Return the kind of a job.

    With `by_class`, long jobs of different weights are of different kinds.
    """
    is_new = not sums.alloc_gpu_us and not sums.held
    weight = sums.weight if by_class and sums.alloc_gpu_us >= LONG_GPU_US else 0
    return (job.gpus, job.gpu_types, job.max_price_micro, job.profile, is_new, weight)


@dataclass(eq=False)
class JobOrder(ABC):
    """The order of jobs by rule 2 at the time of a round.

    `_classes`: job classes' sums at the round, or None if `_claims` must be advanced first.
    """

    # Whether the ranks of waiting jobs stay the same over time, so that their lists can be kept.
    is_kept: ClassVar[bool] = False

    _claims: Callable[[ClaimKey], ClaimRow]
    _classes: Mapping[tuple[int, str, int, int], ClassService] | None
    at_us: int
    _fair: dict[JobClass, int] = field(default_factory=dict, init=False)

    @abstractmethod
    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return the job's sort rank in its list; for a renewal, the rank at the round's time."""

    def now(self, candidate: EvenCandidate) -> Rank:
        """Return the rank at the time of the round, which is comparable between all jobs."""
        rank = self.rank(candidate)
        if not rank[0] or candidate.lease is not None:
            return rank
        sums = candidate.sums
        job_class = ((sums.tenant, sums.gpu_type), sums.demand, sums.weight)
        return self.brought_up((rank, 0, 0), job_class)[0]

    def rank_waiting(self, job: Job, sums: JobService) -> Rank:
        return self.rank(EvenCandidate(job, sums, None))

    def brought_up(self, entry: Entry, job_class: JobClass) -> Entry:
        """Convert the listed rank of a long job to its rank at the time of the round."""
        (tier, kept), submitted_us, job = entry
        return (tier, (kept - self.fair_us(*job_class)) / job_class[1]), submitted_us, job

    def fair_us(self, claim: ClaimKey, demand: int, weight: int) -> int:
        """Return FairTime (14) of a class of jobs, from the class's creation to the round."""
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


@dataclass(eq=False)
class AttainedOrder(JobOrder):
    """The order without estimates: least attained GPU-time first, then long jobs by FairTime.

    From now on, the FairTime of all long jobs of a class (gang and weight) grows equally. Ranks in
    lists do not include it; `brought_up` subtracts it.
    """

    is_kept: ClassVar[bool] = True

    _lease_us: int

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
    """Return E of rule 2: the job's estimated time from start to end on its gang, in us."""
    done_us = job_received(sums, at_us) / job.gpus
    return done_us + remaining_us(job, done_us)


def remaining_us(job: Job, done_us: float) -> float:
    """Return the time that a job still needs after `done_us`, in us.

    Without an estimate, it is `done_us`, or `UNKNOWN_US` if that is longer.
    """
    if job.estimate_us is None:
        return max(done_us, UNKNOWN_US)
    return max(job.estimate_us - done_us, LEAST * job.estimate_us)


class EstimateOrder(JobOrder):
    """The order with estimates: first the job that its fair share would have finished earliest."""

    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return (d E - FairTime) / min(d, FairShare), in us; inf if FairShare is 0."""
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


@dataclass(eq=False)
class DeadlineOrder(JobOrder):
    """The order with deadlines: least GPU-time left first.

    Jobs that will miss all their deadlines come last.
    """

    _last_us: Mapping[int, int]  # the last deadline of each job that has deadlines

    def rank(self, candidate: EvenCandidate) -> Rank:
        """Return d x the remaining time, in GPU-us, or inf if the last deadline would be missed."""
        job, sums = candidate.job, candidate.sums
        left_us = remaining_us(job, job_received(sums, self.at_us) / job.gpus)
        if self.at_us + left_us > self._last_us.get(job.id, inf):
            return 0, inf
        return 0, left_us * job.gpus


# ---- lists of waiting jobs ----


def waits_since(job: Job, sums: JobService) -> int:
    """Return since when a job without GPUs waits: its submission or the end of its last lease."""
    return max(job.submitted_us, sums.held_since_us)


def queue_up(waiting: Iterable[Waiting], order: JobOrder) -> dict[ClaimKey, Kinds]:
    """Return the sorted lists of waiting jobs, by claim and kind."""
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
    """The waiting jobs of one kind. `job_class`: their class if they are long, or None.

    `group`: a key that is shared by kinds that differ only in a maximum price that cannot refuse
    them, or None. Such a price must not change the order (ADR 0195).
    """

    entries: list[Entry]
    job_class: JobClass | None = None
    group: tuple[object, ...] | None = None


_NO_LIST = KindList([])


class JobLine:
    """Jobs of one or more claims in the order of rule 2: the first of each kind, and renewals."""

    __slots__ = ("_heap", "_is_waiting", "_order")

    def __init__(
        self,
        order: JobOrder,
        lists: Iterable[KindList] = (),
        ended: Iterable[Entry] = (),
        is_waiting: Callable[[int], bool] | None = None,
    ) -> None:
        """Merge lists of kinds and jobs whose lease ended.

        If a job fails, the lists of its group fail with it.

        `is_waiting` returns whether a job still waits; jobs that do not are removed. None if all
        listed jobs wait.
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
        """Remove the first job and all jobs of its kind or group behind it."""
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
    """Insert a job that starts to wait into the kept list of its kind; return the list."""
    job, sums = candidate.job, candidate.sums
    kinds = queues.setdefault((sums.tenant, sums.gpu_type), {})
    entries = kinds.setdefault(kind_of(job, sums, by_class=True), [])
    insort(entries, entry)
    return entries
