"""Check of the order of picks: the tenant with the least received over deserved is served first.

Each pick is compared with every tenant that could have been served at the same moment. Such a
tenant has a waiting job, or one whose lease ended, that fitted the free GPUs and that no limit
refused. None of these tenants may have a lower received over deserved than the picked one. At the
end of the round, no waiting job may fit the GPUs that stay idle. So the check includes tenants
without any pick. It ignores the decision's reasons and uses only what can be recomputed
(`evenshare_core.fairness.room` and `limits`).

A round may skip a tenant for these reasons:

| reason | checked by |
|---|---|
| its gang fits nowhere | the GPUs of each node, and the picks before |
| quota, price or credit refuse it | the same rules, computed again from the snapshot |
| others keep their idle quota | the same rules, from pick to pick |
| GPUs are kept for a gang | that gang waits, did not fit, and was skipped for long enough according to the snapshot's memory |
| a limit withdrew the term | that limit, on the round's final allocation |
| line 17: its tenant's first job did not fit | a job of the tenant that does not fit |
| it accepts several types and came later on this one | quota and room on the others |

Source: LTGF, Algorithm 1, lines 4-17; ADR 0200.
"""  # noqa: E501 - the table

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement, capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import ClaimKey
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import windowed
from evenshare_core.fairness.limits import RoundLimits
from evenshare_core.fairness.room import PickedTerm, Room, free_at_start, picked_terms

Rank = tuple[float, float, int]


class KeptGpus(NamedTuple):
    """GPUs that a round reserves for a waiting gang."""

    gpu_type: str
    job: int
    holds: Placement


class OrderRule(NamedTuple):
    """A policy's rule for serving the tenant with the least received over deserved first.

    - `by_quota`: deserved is the quota itself, eq. (16), else min(demand, quota), eq. (8).
    - `is_tied`: tenants without quota tie after all others, else they are served by the GPU-time
      that they received.
    - `work_conserving`: if a job does not fit, its tenant stays in the round; else the tenant
      leaves the round (line 17).
    - `spread`: gangs that fit on one node may be spread over several.
    - `passed_since`: jobs that were first in line and did not fit, each with the instant since
      when, at the round's start.
    - `late_us`: a job skipped since before this instant goes first, with the note `late_note`.
    - `kept`: GPUs that may be reserved for such a job.
    """

    by_quota: bool = False
    is_tied: bool = False
    work_conserving: bool = True
    spread: bool = False
    passed_since: Mapping[int, int] = {}
    late_us: int | None = None
    late_note: str = ""
    kept: tuple[KeptGpus, ...] = ()

    def is_late(self, job: int) -> bool:
        """Return whether a job has waited so long that it goes first."""
        return self.late_us is not None and self.passed_since.get(job, self.late_us) < self.late_us


class OrderCheck(NamedTuple):
    """The result of the check.

    - `picks`, `jobs`: the numbers of picks and of waiting jobs that were checked.
    - `early`: tenants served before one that had received less and could have been served,
      sorted.
    - `idle`: tenants that could have been served with GPUs that stay idle, sorted.
    - `passed`: the first skipped tenant, and the tenant served instead, which is None if GPUs
      stayed idle. The pair is None if no tenant was skipped.
    - `largest`: the largest waiting gang that fits the GPUs that stay idle.
    """

    picks: int
    jobs: int
    early: tuple[int, ...]
    idle: tuple[int, ...]
    passed: tuple[int, int | None] | None
    largest: int


class _Kind(NamedTuple):
    """Interchangeable jobs of a round: tenant, gang, accepted types, maximum price.

    `held_type` is the type of the lease that ended; "" if there was none.
    """

    tenant: int
    gpus: int
    gpu_types: tuple[str, ...]
    max_price_micro: int | None
    held_type: str


class _Until(NamedTuple):
    """The last moment at which each claim could have been served."""

    last: dict[ClaimKey, int]
    largest: int  # the largest gang that fits at the end


def check_order(snapshot: Snapshot, decision: Decision, rule: OrderRule) -> OrderCheck:
    """Compare each pick of a round with all tenants that could have been served instead."""
    return _Order(snapshot, decision, rule).check()


class _Order:
    """A round, its picks by GPU type, and the waiting jobs."""

    def __init__(self, snapshot: Snapshot, decision: Decision, rule: OrderRule) -> None:
        self._snapshot, self._decision, self._rule = snapshot, decision, rule
        self._capacity = capacity_by_type(snapshot.nodes)
        self._accepted: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._terms = picked_terms(snapshot, decision)
        self._picks: dict[str, list[PickedTerm]] = {name: [] for name in self._capacity}
        for term in self._terms:
            self._picks.setdefault(term.gpu_type, []).append(term)
        at_us = snapshot.at_us
        kept = [lease for lease in snapshot.leases if not lease.ends_by(at_us)]
        free = free_at_start(snapshot.nodes, kept)
        unused = {name: sum(nodes.values()) for name, nodes in free.items()}
        self._limits = RoundLimits(snapshot, decision, kept, unused)
        self._started = {
            (row.tenant, row.gpu_type): self._limits.use(row.tenant, row.gpu_type).idle
            for row in snapshot.entitlements
        }
        self._limits.take(self._terms)
        self._running = {lease.job for lease in kept}
        self._served = {term.job: term for term in self._terms}
        self._last_plain = max((term.order for term in self._terms if not term.note), default=0)
        self._withdrawn, withdrawn_jobs = self._find_withdrawn()
        self._busy = self._running | self._served.keys() | withdrawn_jobs
        for (tenant, gpu_type), gpus in self._withdrawn.items():
            self._limits.withdraw(tenant, gpu_type, gpus)
        self._rooms = {name: self._room(name, nodes) for name, nodes in free.items()}

    @cached_property
    def _jobs(self) -> dict[int, Job]:
        return {job.id: job for job in self._snapshot.jobs}

    def _find_withdrawn(self) -> tuple[dict[ClaimKey, int], set[int]]:
        """Return the GPUs by claim, and the jobs, of picks that a limit was right to withdraw."""
        gpus: Counter[ClaimKey] = Counter()
        jobs = set[int]()
        for skip in self._decision.skips:
            gpu_type = skip.numbers.get("gpu_type")
            if not skip.numbers.get("withdrawn") or gpu_type not in self._picks:
                continue
            for job_id in skip.jobs:
                job = self._jobs.get(job_id)
                if job is None or job_id in self._running or job_id in self._served:
                    continue
                ask = (job.tenant, gpu_type, job.gpus)
                end = len(self._picks[gpu_type]) + 1
                if (
                    self._limits.refuses(*ask, job.max_price_micro, settled=True)
                    or self._limits.open_until(*ask, end) < end
                ):
                    gpus[job.tenant, gpu_type] += job.gpus
                    jobs.add(job_id)
        return dict(gpus), jobs

    def _room(self, gpu_type: str, free: dict[int, int]) -> Room:
        sizes = [row.gpus for row in self._snapshot.nodes if row.gpu_type == gpu_type]
        terms, spread = self._picks[gpu_type], self._rule.spread
        withdrawn = sum(count for (_, name), count in self._withdrawn.items() if name == gpu_type)
        withdrawn += self._kept_in_vain(gpu_type)
        room = Room(sizes, free, terms, withdrawn=withdrawn, spread=spread)
        held = dict(free)
        for kept in self._rule.kept:
            if kept.gpu_type == gpu_type and self._is_kept(kept, room):
                for node, gpus in kept.holds:
                    held[node] = max(0, held.get(node, 0) - gpus)
        if held == free:
            return room
        return Room(sizes, held, terms, withdrawn=withdrawn, spread=spread)

    def _is_kept(self, kept: KeptGpus, room: Room) -> bool:
        """Return whether GPUs were rightly kept for a gang that waited too long and did not fit."""
        job = self._jobs.get(kept.job)
        return (
            job is not None
            and kept.job not in self._busy
            and kept.gpu_type in self._types(job.gpu_types)
            and self._rule.is_late(kept.job)
            and sum(gpus for _, gpus in kept.holds) <= job.gpus
            and not room.fits_at_start(job.gpus)
        )

    def _kept_in_vain(self, gpu_type: str) -> int:
        """Return the GPUs that may have been kept for gangs that then started on another type."""
        if self._rule.late_us is None or len(self._capacity) < 2:
            return 0
        late = (job for job in self._rule.passed_since if self._rule.is_late(job))
        return sum(
            self._jobs[job].gpus
            for job in late
            if job in self._served
            and job in self._jobs
            and self._served[job].gpu_type != gpu_type
            and gpu_type in self._types(self._jobs[job].gpu_types)
        )

    def _types(self, accepted: tuple[str, ...]) -> tuple[str, ...]:
        types = self._accepted.get(accepted)
        if types is None:
            there = (name for name in accepted or self._capacity if name in self._capacity)
            types = self._accepted[accepted] = tuple(sorted(there))
        return types

    # ---- claims that could have been served, and until when ----

    def _kinds(self) -> tuple[dict[_Kind, int], int]:
        """Return how many jobs of each kind got no pick, and the total."""
        running = self._running
        ended = {row.job: row.gpu_type for row in self._snapshot.leases if row.job not in running}
        busy, held = self._busy, ended.get
        kinds = Counter(
            (job.tenant, job.gpus, job.gpu_types, job.max_price_micro, held(job.id, ""))
            for job in self._snapshot.jobs
            if job.id not in busy
        )
        return {_Kind(*kind): count for kind, count in kinds.items()}, kinds.total()

    def _until(self, kinds: Iterable[_Kind]) -> _Until:
        """Return for each claim the last moment at which one of its jobs could have been served."""
        last: dict[ClaimKey, int] = {}
        for name, terms in self._picks.items():
            for moment, term in enumerate(terms, start=1):
                if self._is_judged(term):
                    last[term.tenant, name] = moment
        first_unfit: dict[ClaimKey, int] = {}  # line 17 of Algorithm 1
        waiting: dict[ClaimKey, int] = {}
        largest: dict[ClaimKey, int] = {}  # the largest gang that fits at the end
        for kind in kinds:
            for name in self._types(kind.gpu_types):
                key, room = (kind.tenant, name), self._rooms[name]
                fits = room.last(kind.gpus)
                first_unfit[key] = min(fits, first_unfit.get(key, room.end))
                moment = self._last_moment(kind, name, fits)
                waiting[key] = max(moment, waiting.get(key, 0))
                if moment == room.end:
                    largest[key] = max(kind.gpus, largest.get(key, 0))
        if not self._rule.work_conserving:
            self._served_elsewhere(first_unfit)
        for key, moment in waiting.items():
            unfit = moment if self._rule.work_conserving else first_unfit[key]
            last[key] = max(min(moment, unfit), last.get(key, 0))
        left = (gpus for key, gpus in largest.items() if last[key] == self._rooms[key[1]].end)
        return _Until(last, max(left, default=0))

    def _last_moment(self, kind: _Kind, gpu_type: str, fits: int) -> int:
        """Return the last moment at which a job of a kind could have been served; 0 if never."""
        if not fits:
            return 0
        tenant, gpus, end = kind.tenant, kind.gpus, self._rooms[gpu_type].end
        if self._limits.refuses(tenant, gpu_type, gpus, kind.max_price_micro):
            return 0
        moment = min(fits, self._limits.open_until(tenant, gpu_type, gpus, end))
        if moment < end and self._may_come_later(kind, gpu_type):
            return 0
        return moment

    def _may_come_later(self, kind: _Kind, gpu_type: str) -> bool:
        """Return whether this type may have been the last one tried for a job with several types.

        A running job stays on its type. A job does not borrow on any type while its tenant's quota
        of another type has room for it.
        """
        types = self._types(kind.gpu_types)
        if len(types) < 2:
            return False
        if kind.held_type:
            return kind.held_type != gpu_type
        if self._limits.is_own(kind.tenant, gpu_type, kind.gpus):
            return False
        return any(
            kind.gpus <= self._started.get((kind.tenant, name), 0)
            and self._rooms[name].fits_at_start(kind.gpus)
            for name in types
            if name != gpu_type
        )

    def _served_elsewhere(self, first_unfit: dict[ClaimKey, int]) -> None:
        """Apply line 17 to jobs that may have been first on this type until another served them."""
        for term in self._terms:
            job = self._jobs.get(term.job)
            for name in self._types(job.gpu_types) if job is not None else ():
                if name != term.gpu_type:
                    key, fits = (term.tenant, name), self._rooms[name].last(term.gpus)
                    first_unfit[key] = min(fits, first_unfit.get(key, fits))

    # ---- the order of picks ----

    def _is_judged(self, term: PickedTerm) -> bool:
        """Return whether a pick must be in order: its note gives no valid excuse.

        A job is excused if it waited too long, or if it accepts several types and came after all
        picks that are in order.
        """
        if not term.note:
            return True
        if term.note == self._rule.late_note:
            return not self._rule.is_late(term.job)
        job = self._jobs.get(term.job)
        came_last = term.order > self._last_plain
        return not came_last or job is None or len(self._types(job.gpu_types)) < 2

    def check(self) -> OrderCheck:
        kinds, jobs = self._kinds()
        until = self._until(kinds)
        by_type: dict[str, dict[int, int]] = {}
        for (tenant, name), moment in until.last.items():
            by_type.setdefault(name, {})[tenant] = moment
        early, idle = set[int](), set[int]()
        passed: list[tuple[int, int | None]] = []
        for name in sorted(by_type):
            last = by_type[name]
            end = self._rooms[name].end if name in self._rooms else 0
            pairs = list(self._out_of_order(name, last))
            early.update(served for _, served in pairs)
            passed += pairs[:1]
            unserved = sorted(tenant for tenant, moment in last.items() if end and moment == end)
            idle.update(unserved)
            passed += [(tenant, None) for tenant in unserved[:1]]
        first = min(passed, key=lambda pair: pair[1] is None, default=None)
        return OrderCheck(
            len(self._terms), jobs, tuple(sorted(early)), tuple(sorted(idle)), first, until.largest
        )

    def _out_of_order(self, gpu_type: str, last: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield (skipped tenant, tenant served before it), in the order of the picks."""
        terms = self._picks[gpu_type]
        tenants = last.keys() | {term.tenant for term in terms}
        sums = self._sums(gpu_type, tenants)
        heap = [(sums[tenant].most(), tenant) for tenant in last]
        heapify(heap)
        for moment, term in enumerate(terms, start=1):
            if self._is_judged(term):
                least = _least(heap, last, sums, moment)
                if least is not None and least[0] < sums[term.tenant].least():
                    yield least[1], term.tenant
            sums[term.tenant].take(term.gpus * self._snapshot.lease_us)

    def _sums(self, gpu_type: str, tenants: Collection[int]) -> dict[int, _ClaimSums]:
        at_us = self._decision.service.at_us
        rows = {
            row.tenant: row
            for row in self._decision.service.claims
            if row.gpu_type == gpu_type and row.tenant in tenants
        }
        sums = {}
        for tenant in tenants:
            alloc = fair = quota = 0
            if tenant in rows:
                alloc, fair = windowed(rows[tenant], at_us, by_quota=self._rule.by_quota)
                quota = rows[tenant].quota
            unseen = self._withdrawn.get((tenant, gpu_type), 0) * self._snapshot.lease_us
            sums[tenant] = _ClaimSums(alloc, fair, quota, unseen, self._rule.is_tied)
        return sums


def _least(
    heap: list[tuple[Rank, int]],
    last: Mapping[int, int],
    sums: Mapping[int, _ClaimSums],
    moment: int,
) -> tuple[Rank, int] | None:
    """Return the lowest rank among the tenants that could be served; ranks only rise in a round."""
    while heap:
        rank, tenant = heap[0]
        if last[tenant] < moment:
            heappop(heap)
        elif (now := sums[tenant].most()) != rank:
            heapreplace(heap, (now, tenant))
        else:
            return heap[0]
    return None


class _ClaimSums:
    """A tenant's received and deserved GPU-time, in GPU-microseconds.

    `unseen` is the GPU-time that withdrawn picks added from an unknown moment on.
    """

    __slots__ = ("alloc", "fair", "is_tied", "quota", "unseen")

    def __init__(self, alloc: int, fair: int, quota: int, unseen: int, is_tied: bool) -> None:
        self.alloc, self.fair, self.quota, self.unseen = alloc, fair, quota, unseen
        self.is_tied = is_tied

    def take(self, gpu_us: int) -> None:
        self.alloc += gpu_us

    def least(self) -> Rank:
        """Return the lowest possible rank, which leaves out the unseen amount."""
        return self._rank(self.alloc)

    def most(self) -> Rank:
        return self._rank(self.alloc + self.unseen)

    def _rank(self, alloc: int) -> Rank:
        """Return the sort key of a claim; the claim with the lowest key is served first.

        A claim that deserves nothing comes first if it received no GPU-time, and otherwise last, by
        quota. Claims without quota follow, by GPU-time.
        """
        if self.fair:
            return alloc / self.fair, 0.0, 0
        if not alloc:
            return 0.0, 0.0, 0
        if self.quota:
            return inf, alloc / self.quota, 0
        return inf, inf, 0 if self.is_tied else alloc
