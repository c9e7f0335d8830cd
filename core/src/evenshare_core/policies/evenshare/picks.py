"""The picks of a round: rules 1 to 3, and room by rules 5 and 6 for a job that does not fit."""

from collections import Counter
from collections.abc import Collection
from heapq import heapify, heappop, heapreplace

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.evenshare.backfilling import Backfilling
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.progress import (
    LEFT_OVER,
    PickState,
    RoundPool,
    RoundProgress,
)
from evenshare_core.policies.evenshare.promised_starts import PromisedStarts
from evenshare_core.policies.evenshare.queues import (
    ClaimKey,
    Entry,
    EvenCandidate,
    JobLine,
    Kind,
    KindList,
    Kinds,
)
from evenshare_core.policies.evenshare.restarts import restart_rows
from evenshare_core.policies.evenshare.room import RoomMaker
from evenshare_core.policies.shared.admission import Refusal


class EvenPicks:
    """The part of a round that decides which job has the next turn, and which GPUs it gets."""

    def __init__(self, pool: RoundPool, options: EvenshareOptions) -> None:
        self._pool, self._options = pool, options
        self.progress = RoundProgress(pool, options)
        self._standings = self.progress.standings
        self._free_by_type, self._admission = pool.free_by_type, pool.admission
        self._failed: dict[str, int] = {}  # the smallest gang that did not fit, by type
        self._is_waiting = pool.is_waiting
        self._types: dict[tuple[str, tuple[str, ...], int], tuple[str, ...]] = {}
        self.promised = PromisedStarts(self.progress, self._key, self._refusal)
        self._room = RoomMaker(self.progress, self.promised.spared)

    # Rule 1, the order of tenants.

    def run(self) -> RoundProgress:
        """Serve tenants below their deserved GPU-time first, then all tenants by rule 2."""
        if self._options.promises:
            self.promised.begin()
            self._leave_out(self.promised.started)
        lines, ended = self._lines()
        self._serve_tenants(lines, ended)
        rest = JobLine(self._pool.order, is_waiting=self._is_waiting)
        for line in lines.values():
            rest.join(line)
        while rest:
            self._serve(rest, ended, LEFT_OVER)
        backfilling = Backfilling(self.progress, self.promised.rows)
        if backfilling.is_possible:
            self._backfill(backfilling)
        return self.progress

    def restarts(self) -> list[list[int]]:
        """Return the counted early ends as rows of the policy's memory."""
        return restart_rows(self.progress.restarts.ends, self._pool.sums.keys())

    def _leave_out(self, started: Collection[int]) -> None:
        """Take jobs that rule 4 has started out of the lists of waiting jobs."""
        is_waiting = self._is_waiting
        if started:
            self._is_waiting = lambda job: (
                job not in started and (is_waiting is None or is_waiting(job))
            )

    def _backfill(self, backfilling: Backfilling) -> None:
        """Give held GPUs to waiting jobs in the order of rule 2, until promises need them."""
        lines, ended = self._lines()
        rest = JobLine(self._pool.order, is_waiting=self._is_waiting)
        for line in lines.values():
            rest.join(line)
        while rest:
            one = self._candidate(rest.head[2], ended)
            entry = self.progress.entries.get(one.job.id)
            had_turn = entry is not None and entry.state is not PickState.NOMINATED
            is_barred, own = had_turn or one.lease is not None, self.promised.rows.get(one.job.id)
            names = () if is_barred else self._allowed(one)[0]
            is_given = any(backfilling.backfill(one.job, name) for name in names)
            if is_barred or is_given or own is not None:
                rest.step()
            else:
                rest.drop()

    def _lines(self) -> tuple[dict[ClaimKey, JobLine], dict[int, EvenCandidate]]:
        pool = self._pool
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
            line = JobLine(pool.order, lists, renewing.pop(key, ()), self._is_waiting)
            if line:
                lines[key] = line
        for key, entries in renewing.items():
            lines[key] = JobLine(pool.order, ended=entries)
        return lines, ended

    def _lists(self, key: ClaimKey, kinds: Kinds) -> list[KindList]:
        """Return a claim's waiting jobs, one list per kind.

        Kinds that differ only in their maximum price share a group, unless the price may refuse
        them.
        """
        able = [kind for kind, rows in kinds.items() if rows and self._may_ever(key, kind)]
        groups: dict[Kind, Kind] = {}
        if any(kind[2] is not None for kind in able):
            may_bind = self._admission.price_may_refuse
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
        """Return whether a gang of this kind could ever fit the pool and its tenant's limits.

        Jobs that can never start are left out, because a tie between tenants is decided by their
        first jobs.
        """
        gpus, accepted = kind[0], kind[1]
        for gpu_type in accepted or self._free_by_type:
            free = self._free_by_type.get(gpu_type)
            if free is not None and gpus <= free.capacity:
                most = self._admission.most(key[0], gpu_type)
                if most is None or gpus <= most:
                    return True
        return False

    def _key(self, key: ClaimKey) -> float:
        row = self._standings[key]
        return row.tight_key() if self._options.is_tight else row.key()

    def _serve_tenants(
        self, lines: dict[ClaimKey, JobLine], ended: dict[int, EvenCandidate]
    ) -> None:
        """Serve the first job of the tenant with the lowest key, as long as that key is below 1."""
        heap = [(self._key(key), line.head[1:], key) for key, line in lines.items()]
        heapify(heap)
        while heap and heap[0][0] < 1:
            value, head, key = heap[0]
            line = lines[key]
            now = self._key(key)
            # a job of this line was served on another type in the meantime
            if (now, line.head[1:]) != (value, head):
                heapreplace(heap, (now, line.head[1:], key))
                continue
            self._serve(line, ended, "")
            if line:
                heapreplace(heap, (self._key(key), line.head[1:], key))
            else:
                heappop(heap)

    def _serve(self, line: JobLine, ended: dict[int, EvenCandidate], note: str) -> None:
        """Try the first job of a line. If it fails, drop the jobs behind it that must fail too."""
        one = self._candidate(line.head[2], ended)
        if self._try(one, note) or self._room.may_differ(one):
            line.step()
        else:
            line.drop()

    def _candidate(self, job_id: int, ended: dict[int, EvenCandidate]) -> EvenCandidate:
        pool = self._pool
        return ended.get(job_id) or EvenCandidate(pool.jobs[job_id], pool.sums[job_id], None)

    # Rule 3, placement.

    def _try(self, one: EvenCandidate, note: str) -> bool:
        """Give a job its gang: on its present GPUs, on free GPUs, or on nodes cleared for it."""
        job, lease = one.job, one.lease
        self.progress.nominate(job)
        if lease is not None:
            self.promised.show(lease)
            refusal = self._refusal(job, lease.gpu_type)
            if refusal is not None:
                self.progress.skip(job, refusal)
                self._free_by_type[lease.gpu_type].drop(lease.placement)
                self.promised.take_back(lease)
                return False
            if self._free_by_type[lease.gpu_type].renew(lease.placement):
                self.progress.renew(lease, note)
                return True
            self.promised.take_back(lease)
        allowed, refusal = self._allowed(one)
        if refusal is not None:
            self.progress.skip(job, refusal)
        for gpu_type in allowed:
            if job.gpus >= self._failed.get(gpu_type, job.gpus + 1) and lease is None:
                continue
            placement = self._free_by_type[gpu_type].place(job.gpus)
            if placement is not None:
                self.progress.give(job, gpu_type, placement, note)
                return True
            self._failed[gpu_type] = min(job.gpus, self._failed.get(gpu_type, job.gpus))
        return bool(allowed) and self._room.make(one, allowed)

    def _allowed(self, one: EvenCandidate) -> tuple[list[str], Refusal | None]:
        """Return the types to try, and why all are refused, or None.

        If the job's profile has no speed on the types that the job accepts, there are neither.
        """
        job = one.job
        types = self._types_of(one)
        refusals = [self._refusal(job, gpu_type) for gpu_type in types]
        allowed = [name for name, refusal in zip(types, refusals, strict=True) if refusal is None]
        if len(allowed) > 1:  # types on which the quota has room come first
            allowed.sort(key=lambda name: not self._admission.is_own(job, name))
        refusal = None if allowed else next((one for one in refusals if one is not None), None)
        return allowed, refusal

    def _types_of(self, one: EvenCandidate) -> tuple[str, ...]:
        """Return the types to try.

        The first one is the type of the lease; without a lease, the claimed type.
        """
        job = one.job
        first = one.lease.gpu_type if one.lease is not None else one.sums.gpu_type
        key = (first, job.gpu_types, job.profile)
        types = self._types.get(key)
        if types is None:
            profile = self._pool.profiles.get(job.profile)
            types = self._types[key] = tuple(
                name
                for name in accepted_types(job, self._free_by_type, first=first)
                if profile is None or profile.speed_milli(name)
            )
        return types

    def _refusal(self, job: Job, gpu_type: str) -> Refusal | None:
        if job.gpus > self._free_by_type[gpu_type].capacity:
            return Refusal(Reason.TOO_LARGE)
        return self._admission.check(job, gpu_type)

    def order(self) -> tuple[int, ...]:
        """Return the jobs in the order of service, as if every gang got its GPUs."""
        order = self.promised.first_jobs() if self._options.promises else []
        self._leave_out(self.promised.started)
        lines, _ = self._lines()
        heap = [(self._key(key), line.head[1:], key) for key, line in lines.items()]
        heapify(heap)
        while heap and heap[0][0] < 1:
            _, (_, job_id), key = heap[0]
            line = lines[key]
            self._standings[key].charge(self._pool.jobs[job_id].gpus, self._pool.lease_us)
            order.append(job_id)
            line.step()
            if line:
                heapreplace(heap, (self._key(key), line.head[1:], key))
            else:
                heappop(heap)
        rest = JobLine(self._pool.order, is_waiting=self._is_waiting)
        for line in lines.values():
            rest.join(line)
        while rest:
            order.append(rest.head[2])
            rest.step()
        return tuple(order)
