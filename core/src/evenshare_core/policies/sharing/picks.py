"""Whom a sharing round gives GPUs, and where: steps 3 to 5 of `policies.sharing.base`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key, Renew
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import free_capacity_by_type
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.reservation import RESERVED, Reservations
from evenshare_core.policies.sharing.rows import Candidate, Column, Row

SHARE = "share"
LEFTOVER = "leftover"


class Picks:
    """What the round has given so far."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[Column], *, spread: bool) -> None:
        self.columns = columns
        self.free_by_type = free_capacity_by_type(
            snapshot.nodes, snapshot.leases, snapshot.at_us, spread=spread
        )
        self.admission = Admission.of(snapshot)
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.picked: set[int] = set()
        self.extra: set[int] = set()  # jobs that were given what others could not use
        self.refused: dict[int, Refusal] = {}  # by a limit on every type that it can run on
        self.hopeless: dict[Any, Refusal | None] = {}  # jobs like one that fits nowhere, and why
        self._dropped: set[int] = set()  # leases that ended and hold no place any more

    def waits(self, job_id: int) -> bool:
        """Whether it was given nothing, and no limit of its own is why."""
        return job_id not in self.picked and job_id not in self.refused

    def refuse(self, job_id: int, refusal: Refusal | None) -> None:
        """Note that a limit keeps a job from every type, if one does."""
        if refusal is not None:
            self.refused[job_id] = refusal

    def admits(self, job: Job, kind: int) -> bool:
        """Whether no limit of its tenant or of the job keeps it from a type."""
        return self.admission.check(job, self.columns[kind].name) is None

    def available(self, kind: int) -> int:
        """GPUs of a type that may still be given in this round."""
        return self.free_by_type[self.columns[kind].name].available.total

    def choices(self, row: Row, one: Candidate) -> list[int]:
        """Where a job may run: its present type first, then the fastest."""
        here = one.lease.gpu_type if one.lease is not None else None
        return sorted(row.kinds(one.job), key=lambda kind: self.columns[kind].name != here)

    def place(self, one: Candidate, kind: int, note: str = SHARE) -> bool:
        """Give a job its gang on a type, if it may have it and it fits."""
        if not self.admits(one.job, kind):
            return False
        gpu_type, lease = self.columns[kind].name, one.lease
        free_capacity = self.free_by_type[gpu_type]
        renewed = lease is not None and lease.gpu_type == gpu_type and self._renew(lease)
        placement = None if renewed else free_capacity.place(one.job.gpus)
        if not renewed and placement is None:
            return False
        self._give(one, gpu_type, placement, note)
        return True

    def _renew(self, lease: Lease) -> bool:
        """Keep a lease in its place; one that was tried before has given its place up."""
        if lease.id in self._dropped:
            return False
        self._dropped.add(lease.id)
        return self.free_by_type[lease.gpu_type].renew(lease.placement)

    def drop(self, lease: Lease | None) -> None:
        """A lease that ended will not be renewed: its GPUs are nobody's."""
        if lease is None or lease.id in self._dropped:
            return
        self._dropped.add(lease.id)
        if lease.gpu_type in self.free_by_type:
            self.free_by_type[lease.gpu_type].drop(lease.placement)

    def _give(self, one: Candidate, gpu_type: str, placement: Placement | None, note: str) -> None:
        job, lease, order = one.job, one.lease, len(self.picked) + 1
        key = Key(None, None, note)
        if placement is not None:
            self.drop(lease)
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        elif lease is not None:
            self.renewals.append(
                Renew(order, lease.id, job.id, job.tenant, gpu_type, job.gpus, key)
            )
        self.picked.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)


def pick_all(rows: Sequence[Row], picks: Picks, reservations: Reservations, lease_us: int) -> None:
    """Serve gangs that waited too long, then rows up to their whole GPUs, then what is left."""
    _serve_reserved(rows, picks, reservations)
    chosen = _choose(rows, picks, lease_us)
    for row, one, kind in sorted(chosen, key=_larger_first):
        if not picks.place(one, kind):
            row.held[kind] -= one.job.gpus
    _offer_rest(rows, picks)
    for row in rows:
        head = next((one for one in row.queue if row.kinds(one.job)), None)
        if head is not None and picks.waits(head.id) and _is_covered(row, head):
            reservations.passed_over(head.id)


def _larger_first(chosen: tuple[Row, Candidate, int]) -> tuple[int, ...]:
    _, one, _ = chosen
    return (-one.job.gpus, *one[:3])


def _is_covered(row: Row, one: Candidate) -> bool:
    """Whether the row's whole GPUs of some type have room for the gang."""
    return any(row.real[kind] >= one.job.gpus for kind in row.kinds(one.job))


def _serve_reserved(rows: Sequence[Row], picks: Picks, reservations: Reservations) -> None:
    """A gang that waited too long goes first; where it does not fit, nodes are held back."""
    if not reservations:
        return
    held = {job_id: gpu_type for gpu_type, job_id in reservations.due()}
    kinds = {column.name: kind for kind, column in enumerate(picks.columns)}
    pending: dict[int, tuple[Row, Candidate, int]] = {}
    for row in rows:
        for one in row.queue:
            choices = row.kinds(one.job)
            if one.lease is not None or not choices:
                continue
            covered = [kind for kind in choices if row.real[kind] >= one.job.gpus]
            kind = kinds.get(held.get(one.id, ""), -1)
            pending[one.id] = (row, one, kind if kind in choices else (covered or choices)[0])
    reservations.keep({job: picks.columns[kind].name for job, (_, _, kind) in pending.items()})
    for gpu_type, job_id in reservations.due():
        row, one, kind = pending[job_id]
        if picks.columns[kind].name != gpu_type:
            reservations.served(gpu_type, job_id)  # it can no longer run there
            continue
        if picks.place(one, kind, RESERVED):
            row.held[kind] += one.job.gpus
            reservations.served(gpu_type, job_id)
        elif picks.admits(one.job, kind):
            reservations.hold(gpu_type, one.job.gpus, picks.free_by_type[gpu_type])


def _choose(rows: Sequence[Row], picks: Picks, lease_us: int) -> list[tuple[Row, Candidate, int]]:
    """Step 3: jobs and types up to each row's whole GPUs; the row that is behind most first."""
    chosen = []
    free = [picks.available(kind) for kind in range(len(picks.columns))]
    places = [0] * len(rows)
    heap = [
        (-row.deficit(lease_us), index)
        for index, row in enumerate(rows)
        if row.queue and any(row.real)
    ]
    heapify(heap)
    while heap:
        _, index = heappop(heap)
        row = rows[index]
        one = row.queue[places[index]]
        places[index] += 1
        kind = None if one.id in picks.picked else _choice(row, one, picks, free)
        if kind is not None:
            chosen.append((row, one, kind))
            row.held[kind] += one.job.gpus
            free[kind] -= one.job.gpus
        if places[index] < len(row.queue):
            heappush(heap, (-row.deficit(lease_us), index))
    return chosen


def _choice(row: Row, one: Candidate, picks: Picks, free: Sequence[int]) -> int | None:
    gpus = one.job.gpus
    for kind in picks.choices(row, one):
        room = min(free[kind], row.real[kind] - row.held[kind])
        if gpus <= room and picks.admits(one.job, kind):
            return kind
    return None


def _offer_rest(rows: Sequence[Row], picks: Picks) -> None:
    """Step 5: a job of each row in turn while anything fits: a round never frees any."""
    order = sorted(rows, key=lambda row: (not row.weight, -sum(row.deviation), *row.key))
    turns = [(row, iter([one for one in row.queue if one.id not in picks.picked])) for row in order]
    while turns:
        turns = [turn for turn in turns if _offer_one(*turn, picks)]


def _offer_one(row: Row, queue: Iterator[Candidate], picks: Picks) -> bool:
    """Place the next job of a row that fits anywhere; False when it has none."""
    return any(_offer(row, one, picks) for one in queue)


def _offer(row: Row, one: Candidate, picks: Picks) -> bool:
    kind_of_job = (row.key, one.job.gpus, one.job.gpu_types, one.job.max_price_micro)
    if one.lease is None and kind_of_job in picks.hopeless:
        picks.refuse(one.id, picks.hopeless[kind_of_job])
        return False
    choices = picks.choices(row, one)
    for kind in choices:
        own = row.real[kind] - row.held[kind] >= one.job.gpus
        if picks.place(one, kind, SHARE if own else LEFTOVER):
            if own:
                row.held[kind] += one.job.gpus
            else:
                picks.extra.add(one.id)
            return True
    picks.drop(one.lease)
    refusals = [picks.admission.check(one.job, picks.columns[kind].name) for kind in choices]
    picks.hopeless[kind_of_job] = refusals[0] if refusals and all(refusals) else None
    picks.refuse(one.id, picks.hopeless[kind_of_job])
    return False
