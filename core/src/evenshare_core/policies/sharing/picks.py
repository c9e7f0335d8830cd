"""The picks of a sharing round and their placement: steps 3 to 5 of `policies.sharing.base`."""

from collections.abc import Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key, Renew
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import free_capacity_by_type
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.reservation import RESERVED, Reservations
from evenshare_core.policies.sharing.job_types import GpuTypeCapacity, JobType, WaitingJob

SHARE = "share"
LEFTOVER = "leftover"


class Choice(NamedTuple):
    """A chosen job, and the index of a GPU type of which its job type has GPUs."""

    job_type: JobType
    waiting: WaitingJob
    type_index: int

    @property
    def size_order(self) -> tuple[int, int, int, int]:
        """Return the sort key of placement: larger gangs first, then the longest-starved jobs."""
        one = self.waiting
        return (-one.job.gpus, one.since_us, one.submitted_us, one.id)


class SharingPicks:
    """The picks of the round so far."""

    def __init__(
        self, snapshot: Snapshot, types: Sequence[GpuTypeCapacity], *, spread: bool
    ) -> None:
        self.types = types
        self.free_by_type = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, spread=spread
        )
        self.admission = Admission.of(snapshot)
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.picked: set[int] = set()
        self.extra: set[int] = set()  # jobs on GPUs that other job types could not use
        # jobs that a limit refuses on every type on which they can run
        self.refused: dict[int, Refusal] = {}
        # kinds of jobs that fit on no type, with a limit that explains this
        self.hopeless: dict[Hashable, Refusal | None] = {}
        # ended leases that were renewed or have given up their GPUs
        self._dropped: set[int] = set()
        self._is_version_5 = snapshot.policy_version.startswith("5 ")

    def waits(self, job_id: int) -> bool:
        """Return whether the job got no GPUs although no limit refused it."""
        return job_id not in self.picked and job_id not in self.refused

    def kind_of(self, job_type: JobType, job: Job) -> Hashable:
        """Return the kind of a job: all jobs of a kind fit on the same types.

        A maximum price that refuses no type makes no difference, because a tenant that recomputes
        the round may not see it. Version 5 distinguished such jobs.
        """
        most_micro = job.max_price_micro
        if most_micro is not None and not self._is_version_5:
            may_refuse = self.admission.price_may_refuse(most_micro, job.gpu_types)
            most_micro = most_micro if may_refuse else None
        return (job_type.key, job.gpus, job.gpu_types, most_micro)

    def refuse(self, job_id: int, refusal: Refusal | None) -> None:
        """Record that a limit refuses a job on every type.

        Nothing is recorded if `refusal` is None.
        """
        if refusal is not None:
            self.refused[job_id] = refusal

    def admits(self, job: Job, type_index: int) -> bool:
        """Return whether the limits of the job and its tenant allow it on this GPU type."""
        return self.admission.check(job, self.types[type_index].name) is None

    def available(self, type_index: int) -> int:
        """Return the GPUs of a type that this round may still give."""
        return self.free_by_type[self.types[type_index].name].available.total

    def choices(self, job_type: JobType, one: WaitingJob) -> list[int]:
        """Return the types on which a job may run: its current type first, then the fastest."""
        here = one.lease.gpu_type if one.lease is not None else None
        return sorted(
            job_type.usable_types(one.job), key=lambda index: self.types[index].name != here
        )

    def place(self, one: WaitingJob, type_index: int, note: str = SHARE) -> bool:
        """Give a job its gang on a type, if limits allow it and the gang fits."""
        if not self.admits(one.job, type_index):
            return False
        gpu_type, lease = self.types[type_index].name, one.lease
        free_capacity = self.free_by_type[gpu_type]
        renewed = lease is not None and lease.gpu_type == gpu_type and self._renew(lease)
        placement = None if renewed else free_capacity.place(one.job.gpus)
        if not renewed and placement is None:
            return False
        self._give(one, gpu_type, placement, note)
        return True

    def _renew(self, lease: Lease) -> bool:
        """Renew a lease on its GPUs, unless these were given up. Return whether it was renewed."""
        if lease.id in self._dropped:
            return False
        self._dropped.add(lease.id)
        return self.free_by_type[lease.gpu_type].renew(lease.placement)

    def drop(self, lease: Lease | None) -> None:
        """Free the GPUs of an ended lease that will not be renewed."""
        if lease is None or lease.id in self._dropped:
            return
        self._dropped.add(lease.id)
        if lease.gpu_type in self.free_by_type:
            self.free_by_type[lease.gpu_type].drop(lease.placement)

    def _give(self, one: WaitingJob, gpu_type: str, placement: Placement | None, note: str) -> None:
        job, lease, order = one.job, one.lease, len(self.picked) + 1
        key = Key(None, None, note)
        if placement is not None:
            self.drop(lease)
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        elif lease is not None:
            self.renewals.append(Renew.of(lease, order, key))
        self.picked.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)


def pick_all(
    job_types: Sequence[JobType], picks: SharingPicks, reservations: Reservations, lease_us: int
) -> None:
    """Serve gangs that waited too long, then job types up to their whole GPUs, then all others."""
    _serve_reserved(job_types, picks, reservations)
    chosen = _choose(job_types, picks, lease_us)
    for job_type, waiting, type_index in sorted(chosen, key=lambda choice: choice.size_order):
        if not picks.place(waiting, type_index):
            job_type.held[type_index] -= waiting.job.gpus
    _offer_rest(job_types, picks)
    for job_type in job_types:
        head = next((one for one in job_type.queue if job_type.usable_types(one.job)), None)
        if head is not None and picks.waits(head.id) and _is_covered(job_type, head):
            reservations.passed_over(head.id)


def _is_covered(job_type: JobType, one: WaitingJob) -> bool:
    """Return whether the gang fits within the job type's whole GPUs of some type."""
    return any(
        job_type.real[type_index] >= one.job.gpus for type_index in job_type.usable_types(one.job)
    )


def _serve_reserved(
    job_types: Sequence[JobType], picks: SharingPicks, reservations: Reservations
) -> None:
    """First serve gangs that waited too long, and hold back nodes for those that do not fit."""
    if not reservations:
        return
    held = {job_id: gpu_type for gpu_type, job_id in reservations.gangs()}
    type_indexes = {capacity.name: type_index for type_index, capacity in enumerate(picks.types)}
    pending: dict[int, Choice] = {}
    for job_type in job_types:
        for one in job_type.queue:
            choices = job_type.usable_types(one.job)
            if one.lease is not None or not choices:
                continue
            covered = [
                type_index for type_index in choices if job_type.real[type_index] >= one.job.gpus
            ]
            reserved = type_indexes.get(held.get(one.id, ""), -1)
            type_index = reserved if reserved in choices else (covered or choices)[0]
            pending[one.id] = Choice(job_type, one, type_index)
    types = {job: picks.types[choice.type_index].name for job, choice in pending.items()}
    refused = {
        job
        for job, choice in pending.items()
        if job in reservations and not picks.admits(choice.waiting.job, choice.type_index)
    }
    reservations.keep(types, refused)
    for gpu_type, job_id in reservations.gangs():
        job_type, one, type_index = pending[job_id]
        if picks.place(one, type_index, RESERVED):
            job_type.held[type_index] += one.job.gpus
            reservations.served(gpu_type, job_id)
        elif picks.admits(one.job, type_index):
            reservations.hold_back(gpu_type, one.job.gpus, picks.free_by_type[gpu_type])


def _choose(job_types: Sequence[JobType], picks: SharingPicks, lease_us: int) -> list[Choice]:
    """Choose jobs up to each job type's whole GPUs, the largest deficit first (step 3)."""
    chosen = []
    free = [picks.available(type_index) for type_index in range(len(picks.types))]
    places = [0] * len(job_types)
    heap = [
        (-job_type.deficit(lease_us), index)
        for index, job_type in enumerate(job_types)
        if job_type.queue and any(job_type.real)
    ]
    heapify(heap)
    while heap:
        _, index = heappop(heap)
        job_type = job_types[index]
        one = job_type.queue[places[index]]
        places[index] += 1
        type_index = None if one.id in picks.picked else _choice(job_type, one, picks, free)
        if type_index is not None:
            chosen.append(Choice(job_type, one, type_index))
            job_type.held[type_index] += one.job.gpus
            free[type_index] -= one.job.gpus
        if places[index] < len(job_type.queue):
            heappush(heap, (-job_type.deficit(lease_us), index))
    return chosen


def _choice(
    job_type: JobType, one: WaitingJob, picks: SharingPicks, free: Sequence[int]
) -> int | None:
    gpus = one.job.gpus
    for type_index in picks.choices(job_type, one):
        available = min(free[type_index], job_type.real[type_index] - job_type.held[type_index])
        if gpus <= available and picks.admits(one.job, type_index):
            return type_index
    return None


def _offer_rest(job_types: Sequence[JobType], picks: SharingPicks) -> None:
    """Give each job type one job in turn, as long as any job fits (step 5)."""
    order = sorted(
        job_types,
        key=lambda job_type: (not job_type.weight, -sum(job_type.deviation), *job_type.key),
    )
    turns = [
        (job_type, iter([one for one in job_type.queue if one.id not in picks.picked]))
        for job_type in order
    ]
    while turns:
        turns = [turn for turn in turns if _offer_one(*turn, picks)]


def _offer_one(job_type: JobType, queue: Iterator[WaitingJob], picks: SharingPicks) -> bool:
    """Place the job type's next job that fits on any type. Return False if none fits."""
    return any(_offer(job_type, one, picks) for one in queue)


def _offer(job_type: JobType, one: WaitingJob, picks: SharingPicks) -> bool:
    alike = picks.kind_of(job_type, one.job)
    if one.lease is None and alike in picks.hopeless:
        picks.refuse(one.id, picks.hopeless[alike])
        return False
    choices = picks.choices(job_type, one)
    for type_index in choices:
        own = job_type.real[type_index] - job_type.held[type_index] >= one.job.gpus
        if picks.place(one, type_index, SHARE if own else LEFTOVER):
            if own:
                job_type.held[type_index] += one.job.gpus
            else:
                picks.extra.add(one.id)
            return True
    picks.drop(one.lease)
    refusals = [
        picks.admission.check(one.job, picks.types[type_index].name) for type_index in choices
    ]
    picks.hopeless[alike] = refusals[0] if refusals and all(refusals) else None
    picks.refuse(one.id, picks.hopeless[alike])
    return False
