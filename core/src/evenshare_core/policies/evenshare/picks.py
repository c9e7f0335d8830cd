"""One round: rules 1 to 3, and where a job does not fit, room for it by rules 4 to 6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import End, Grant, Key, Preemption, Renew
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import JobService
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.placement.stability import keep_placements
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.queues import (
    ClaimKey,
    Entry,
    EvenCandidate,
    JobLine,
    JobOrder,
    Kind,
    KindList,
    Kinds,
    TenantStanding,
)
from evenshare_core.policies.evenshare.room import RoomMaker
from evenshare_core.policies.shared.admission import Admission, Refusal
from evenshare_core.policies.shared.session import NO_KEY

# Notes of picks that were not made by rule 1's order.
LEFT_OVER, GUARANTEE, PAYS, DEFRAGMENTED, MOVED, LARGE_GANG = (
    "left over",
    "guarantee",
    "pays",
    "defragmented",
    "moved",
    "large gang",
)


class RoundPool(NamedTuple):
    """What a round looks at, from a snapshot or from a state that is kept.

    `queues` have the jobs that wait; `ended` the jobs whose lease ends, each with its rank by
    `order`. `standing` makes the numbers of a claim; `running` gives the leases that go on;
    `gpus` are those of each node that may be scheduled now.
    `is_waiting`: None where all jobs of the queues do. `may_be_overfull`: some nodes may have fewer
    GPUs than leases hold there.
    """

    at_us: int
    lease_us: int
    jobs: Mapping[int, Job]
    sums: Mapping[int, JobService]
    profiles: Mapping[int, Profile]
    gpus: Mapping[int, int]
    queues: Mapping[ClaimKey, Kinds]
    order: JobOrder
    ended: Sequence[tuple[Entry, EvenCandidate]]
    standing: Callable[[ClaimKey], TenantStanding]
    running: Callable[[], Collection[Lease]]
    free_by_type: dict[str, FreeCapacity]
    admission: Admission
    is_waiting: Callable[[int], bool] | None = None
    may_be_overfull: bool = True
    explains: bool = True


class Standings(dict[ClaimKey, TenantStanding]):
    """The claims that a round looked at, made as they turn up."""

    def __init__(self, make: Callable[[ClaimKey], TenantStanding]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: ClaimKey) -> TenantStanding:
        row = self[key] = self._make(key)
        return row


class EvenPicks:
    """What the round has given so far, and whom it takes GPUs from."""

    def __init__(self, pool: RoundPool, options: EvenshareOptions) -> None:
        self.pool, self.options = pool, options
        self.standings = Standings(pool.standing)
        self.free_by_type, self.admission = pool.free_by_type, pool.admission
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.ends: list[End] = []  # of leases that had not expired
        self.preemptions: list[Preemption] = []
        self.refused: dict[int, Refusal] = {}
        self.fixed: set[int] = set()  # jobs whose place must stay: leases end for it
        self._failed: dict[str, int] = {}  # by type: the least gang that did not fit
        self._types: dict[tuple[str, tuple[str, ...], int], tuple[str, ...]] = {}
        self._room = RoomMaker(self)
        self._order = 0

    # Rule 1.

    def run(self) -> None:
        """Serve tenants below what they deserve, then all that is left."""
        lines, ended = self._lines()
        self._serve_tenants(lines, ended)
        rest = JobLine(self.pool.order, is_waiting=self.pool.is_waiting)
        for line in lines.values():
            rest.join(line)
        while rest:
            self._serve(rest, ended, LEFT_OVER)

    def _lines(self) -> tuple[dict[ClaimKey, JobLine], dict[int, EvenCandidate]]:
        pool = self.pool
        renewing: dict[ClaimKey, list[Entry]] = {}
        ended: dict[int, EvenCandidate] = {}
        for entry, one in pool.ended:
            renewing.setdefault((one.sums.tenant, one.sums.gpu_type), []).append(entry)
            ended[one.job.id] = one
        lines = {}
        for key, kinds in pool.queues.items():
            lists = self._lists(key, kinds)
            if not lists and key not in renewing:
                continue
            line = JobLine(pool.order, lists, renewing.pop(key, ()), pool.is_waiting)
            if line:
                lines[key] = line
        for key, entries in renewing.items():
            lines[key] = JobLine(pool.order, ended=entries)
        return lines, ended

    def _lists(self, key: ClaimKey, kinds: Kinds) -> list[KindList]:
        """The jobs of a claim by kind; grouped where a price that binds nobody tells them apart."""
        able = [kind for kind, rows in kinds.items() if rows and self._may_ever(key, kind)]
        groups: dict[Kind, Kind] = {}
        if any(kind[2] is not None for kind in able):
            may_bind = self.admission.price_may_refuse
            groups = {
                kind: (*kind[:2], None, *kind[3:])
                for kind in able
                if kind[2] is None or not may_bind(kind[2], kind[1])
            }
        counts = Counter(groups.values())
        return [
            KindList(
                kinds[kind],
                (key, kind[0], kind[5]) if kind[5] else None,
                (key, group) if (group := groups.get(kind)) and counts[group] > 1 else None,
            )
            for kind in able
        ]

    def _may_ever(self, key: ClaimKey, kind: Kind) -> bool:
        """Whether the pool and the tenant's limits have room for such a gang at all.

        The first of a tenant's jobs decides ties, so one that no round may start is none of them.
        """
        gpus, accepted = kind[0], kind[1]
        for gpu_type in accepted or self.free_by_type:
            free = self.free_by_type.get(gpu_type)
            if free is not None and gpus <= free.capacity:
                most = self.admission.most(key[0], gpu_type)
                if most is None or gpus <= most:
                    return True
        return False

    def _key(self, key: ClaimKey) -> float:
        row = self.standings[key]
        return row.tight_key() if self.options.is_tight else row.key()

    def _serve_tenants(
        self, lines: dict[ClaimKey, JobLine], ended: dict[int, EvenCandidate]
    ) -> None:
        """The first tier: as long as some tenant's key is below 1, the lowest one's first job."""
        heap = [(self._key(key), line.head[1:], key) for key, line in lines.items()]
        heapify(heap)
        while heap and heap[0][0] < 1:
            value, head, key = heap[0]
            line = lines[key]
            now = self._key(key)
            if (now, line.head[1:]) != (value, head):  # a job of it was served on another type
                heapreplace(heap, (now, line.head[1:], key))
                continue
            self._serve(line, ended, "")
            if line:
                heapreplace(heap, (self._key(key), line.head[1:], key))
            else:
                heappop(heap)

    def _serve(self, line: JobLine, ended: dict[int, EvenCandidate], note: str) -> None:
        """Try the head; where it fails, those behind it that must fail too are left out."""
        job_id = line.head[2]
        one = ended.get(job_id)
        if one is None:
            pool = self.pool
            one = EvenCandidate(pool.jobs[job_id], pool.sums[job_id], None)
        if self.try_job(one, note) or self._room.may_differ(one):
            line.step()
        else:
            line.drop()

    # Rule 3.

    def try_job(self, one: EvenCandidate, note: str) -> bool:
        """Give a candidate its gang: where it is, where nobody is, or where room is made."""
        job, lease = one.job, one.lease
        if lease is not None:
            refusal = self._refusal(job, lease.gpu_type)
            if refusal is not None:
                self.refused[job.id] = refusal
                self.free_by_type[lease.gpu_type].drop(lease.placement)
                return False
            if self.free_by_type[lease.gpu_type].renew(lease.placement):
                self._renew(lease, note)
                return True
        types = self.types_of(one)
        if not types:
            return False  # its profile runs on none of those that it accepts
        refusals = [self._refusal(job, gpu_type) for gpu_type in types]
        allowed = [name for name, refusal in zip(types, refusals, strict=True) if refusal is None]
        if not allowed:
            self.refused[job.id] = next(refusal for refusal in refusals if refusal)
            return False
        if len(allowed) > 1:  # within quota before it borrows
            allowed.sort(key=lambda name: not self.admission.is_own(job, name))
        for gpu_type in allowed:
            if job.gpus >= self._failed.get(gpu_type, job.gpus + 1) and lease is None:
                continue
            placement = self.free_by_type[gpu_type].place(job.gpus)
            if placement is not None:
                self.give(job, gpu_type, placement, note)
                return True
            self._failed[gpu_type] = min(job.gpus, self._failed.get(gpu_type, job.gpus))
        return self._room.make(one, allowed)

    def types_of(self, one: EvenCandidate) -> tuple[str, ...]:
        """The types that a candidate is tried on: the held one, else the claimed one, first."""
        job = one.job
        first = one.lease.gpu_type if one.lease is not None else one.sums.gpu_type
        key = (first, job.gpu_types, job.profile)
        types = self._types.get(key)
        if types is None:
            profile = self.pool.profiles.get(job.profile)
            types = self._types[key] = tuple(
                name
                for name in accepted_types(job, self.free_by_type, first=first)
                if profile is None or profile.speed_milli(name)
            )
        return types

    def _refusal(self, job: Job, gpu_type: str) -> Refusal | None:
        if job.gpus > self.free_by_type[gpu_type].capacity:
            return Refusal(Reason.TOO_LARGE)
        return self.admission.check(job, gpu_type)

    def order(self) -> tuple[int, ...]:
        """Return who would be served when, if every gang had its GPUs."""
        lines, _ = self._lines()
        order: list[int] = []
        heap = [(self._key(key), line.head[1:], key) for key, line in lines.items()]
        heapify(heap)
        while heap and heap[0][0] < 1:
            _, (_, job_id), key = heap[0]
            line, standing = lines[key], self.standings[key]
            gpus = self.pool.jobs[job_id].gpus
            standing.given += gpus
            standing.granted_us += gpus * self.pool.lease_us
            order.append(job_id)
            line.step()
            if line:
                heapreplace(heap, (self._key(key), line.head[1:], key))
            else:
                heappop(heap)
        rest = JobLine(self.pool.order, is_waiting=self.pool.is_waiting)
        for line in lines.values():
            rest.join(line)
        while rest:
            order.append(rest.head[2])
            rest.step()
        return tuple(order)

    # What is given.

    def give(self, job: Job, gpu_type: str, placement: Placement, note: str) -> None:
        """Grant a gang on GPUs that are taken already, and charge its tenant."""
        standing = self.standings[job.tenant, gpu_type]
        self._order += 1
        key = self._pick_key(standing, note)
        self.grants.append(Grant(self._order, job.id, job.tenant, gpu_type, placement, key))
        self._charge(standing, job.gpus, gpu_type)

    def move(self, lease: Lease, node: int) -> None:
        """Grant a moved job its new place; what its tenant holds stays."""
        self._order += 1
        key = Key(None, None, MOVED) if self.pool.explains else NO_KEY
        place = ((node, lease.gpus),)
        self.grants.append(Grant(self._order, lease.job, lease.tenant, lease.gpu_type, place, key))
        self.admission.take(lease.tenant, lease.gpu_type, lease.gpus)
        self.fixed.add(lease.job)

    def end(self, lease: Lease, rule: PreemptionRule, job: Job, numbers: dict[str, int]) -> None:
        """End a lease before its expiry."""
        reason = EndReason.MOVED if rule is PreemptionRule.DEFRAGMENT else EndReason.PREEMPTED
        self.ends.append(End(lease.id, lease.job, lease.tenant, reason))
        self.preemptions.append(
            Preemption(lease.id, lease.job, lease.tenant, rule, job.id, job.tenant, numbers)
        )
        if reason is EndReason.PREEMPTED:
            self.standings[lease.tenant, lease.gpu_type].kept -= lease.gpus

    def _renew(self, lease: Lease, note: str) -> None:
        standing = self.standings[lease.tenant, lease.gpu_type]
        self._order += 1
        key = self._pick_key(standing, note)
        self.renewals.append(
            Renew(self._order, lease.id, lease.job, lease.tenant, lease.gpu_type, lease.gpus, key)
        )
        self._charge(standing, lease.gpus, lease.gpu_type)

    def _pick_key(self, standing: TenantStanding, note: str) -> Key:
        if not self.pool.explains:
            return NO_KEY
        value = standing.tight_key() if self.options.is_tight else standing.key()
        return Key(None if value == float("inf") else value, None, note)

    def _charge(self, standing: TenantStanding, gpus: int, gpu_type: str) -> None:
        """Rule 1: one lease of GPU-time, for the rest of this round only."""
        self.admission.take(standing.tenant, gpu_type, gpus)
        standing.given += gpus
        standing.granted_us += gpus * self.pool.lease_us


def stay(picks: EvenPicks, due: Iterable[Lease]) -> tuple[list[Grant], list[Renew]]:
    """Let jobs stay where they are, but for those that leases ended for, or that moved."""
    free = [grant for grant in picks.grants if grant.job not in picks.fixed]
    grants, renewals = keep_placements(free, picks.renewals, due)
    if len(free) < len(picks.grants):
        grants += [grant for grant in picks.grants if grant.job in picks.fixed]
        grants.sort(key=lambda grant: grant.order)
    return grants, renewals
