"""The evenshare policy on sums, queues and free GPUs that are kept between rounds."""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any

from evenshare_core.domain.leases import Lease
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.evenshare.calm import Calm, calm_of
from evenshare_core.policies.evenshare.memory import DecayedSums, with_parts
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.picks import EvenPicks
from evenshare_core.policies.evenshare.progress import RoundPool
from evenshare_core.policies.evenshare.promises import StartPromise, read_promises
from evenshare_core.policies.evenshare.queues import (
    AttainedOrder,
    ClaimKey,
    Entry,
    EstimateOrder,
    EvenCandidate,
    JobOrder,
    Kinds,
    TenantStanding,
    insert,
    queue_up,
    waits_since,
)
from evenshare_core.policies.evenshare.quiet import stays_until
from evenshare_core.policies.evenshare.restarts import read_restarts, restart_rows
from evenshare_core.policies.shared.session import KeptRound, SessionDecision, uncontested
from evenshare_core.policies.shared.terms import ends_of

SWEEP_ROUNDS = 64  # empty lists are removed after this number of rounds


class IncrementalEvenshare:
    """The kept queues of one pool.

    They can be kept because, without estimates, a waiting job's rank does not change.
    """

    outlasts_renewals = True

    def __init__(self, options: EvenshareOptions) -> None:
        self._options = options
        self._sums = DecayedSums(options.window_us)
        self._queues: dict[ClaimKey, Kinds] = {}
        self._entries: dict[int, tuple[list[Entry], Entry]] = {}
        self._given: list[int] = []
        self._last: tuple[EvenPicks, KeptRound] | None = None  # the last round that tried jobs
        self._calm: Calm | None = None  # set after a round that only renewed leases
        self._sweep_in = SWEEP_ROUNDS
        self._memory: dict[str, Any] = {}  # what the last round returned
        self._by_wait: dict[ClaimKey, list[tuple[int, int]]] = {}  # (since when, job), sorted

    def decide(self, view: KeptRound) -> SessionDecision:
        """Decide a round with the same result as `Evenshare.decide` on its snapshot."""
        # Until the next mark, unchanged claims need no update.
        is_still = view.is_still and view.at_us < self._sums.next_mark_us
        claims = () if is_still else view.sums.claims.values()
        memory = self._sums.memory if view.memory is self._memory else view.memory
        self._sums.begin(memory, claims, view.at_us, view.round_us)
        rows, restarts = view.memory.get("promises", []), self._restarts(view)
        memory = with_parts(self._sums.memory, rows, restarts)
        answer = None if rows else uncontested(view, memory)
        if answer is not None:
            self._memory = answer.memory
            self._last = self._calm = None
            return answer
        if self._calm is not None and view.is_still and self._calm.only_renews(view):
            self._memory = memory
            return SessionDecision((), view.due, (), self._memory)
        picks = EvenPicks(self._pool(view, read_promises(view.memory)), self._options)
        progress = picks.run()
        self._last = (picks, view)
        self._memory = with_parts(self._sums.memory, picks.promised.memory(), picks.restarts())
        grants, renewals = progress.stay(view.due, picks.promised.rows.values())
        self._given = [grant.job for grant in grants]
        renewed = {renewal.lease for renewal in renewals}
        ends, early = ends_of(view.due, view.gpus, renewed, progress.refused), progress.ends
        is_calm = not (grants or ends or early or view.is_limited)
        sums = view.sums.claims
        self._calm = calm_of(picks, sums, self._sums.next_mark_us) if is_calm else None
        return SessionDecision(
            grants,
            [lease for lease in view.due if lease.id in renewed],
            sorted([*ends, *early], key=lambda end: end.lease) if early else ends,
            self._memory,
            progress.preemptions,
        )

    def quiet_until(self, at_us: int) -> int | None:
        """Return the time, in us, until which rounds would grant nothing."""
        if self._calm is not None:
            return self._calm.until_us
        if self._last is None or self._last[0].progress.renewals:
            return at_us
        picks, view = self._last
        return stays_until(picks, view.sums.claims, self._sums.next_mark_us)

    def _pool(self, view: KeptRound, promises: list[StartPromise]) -> RoundPool:
        at_us, options = view.at_us, self._options
        free_by_type = view.free_capacity()
        jobs, sums, claims = view.jobs, view.sums.jobs, view.sums.claims
        for _, gpu_type in claims:  # a type that no longer has nodes
            if gpu_type not in free_by_type:
                free_by_type[gpu_type] = FreeCapacity({}, {}, {})
        due: dict[ClaimKey, int] = {}
        for lease in view.due:
            key = (lease.tenant, lease.gpu_type)
            due[key] = due.get(key, 0) + lease.gpus

        def standing(key: ClaimKey) -> TenantStanding:
            row = claims.get(key)
            now = self._sums.sums(row) if row is not None else (0, 0)
            return TenantStanding(row, key[0], now, view.held(*key) - due.get(key, 0))

        def running() -> Collection[Lease]:
            over = {lease.id for lease in view.due}
            if not over:
                return view.leases
            return [lease for lease in view.leases if lease.id not in over]

        order: JobOrder
        if options.estimates == "given":
            order = EstimateOrder(claims.__getitem__, None, at_us)
            waiting = [(jobs[job], sums[job]) for job in view.waiting]
            queues = queue_up(waiting, order)
            self._note_waits(view)
            view.joined.clear()
        else:
            order = AttainedOrder(claims.__getitem__, None, at_us, view.lease_us)
            self._listen(view, order)
            queues = self._queues
        ended = [EvenCandidate(jobs[row.job], sums[row.job], row) for row in view.due]
        return RoundPool(
            at_us=at_us,
            lease_us=view.lease_us,
            jobs=jobs,
            sums=sums,
            profiles=view.profiles,
            gpus=view.gpus,
            queues=queues,
            order=order,
            ended=[((order.rank(one), one.job.submitted_us, one.job.id), one) for one in ended],
            standing=standing,
            running=running,
            free_by_type=free_by_type,
            admission=view.admission(),
            round_us=view.round_us,
            promises=promises,
            memory=view.memory,
            longest_waiting=lambda claim: self._longest_waiting(view, claim),
            is_waiting=view.waiting.__contains__,
            may_be_overfull=view.is_limited,
            explains=False,
        )

    def _restarts(self, view: KeptRound) -> list[list[int]]:
        """Return the counted early ends of the jobs that have not ended, as rows of the memory."""
        rows = read_restarts(view.memory) if self._options.paid_us else {}
        return restart_rows(rows, view.sums.jobs.keys()) if rows else []

    def _note_waits(self, view: KeptRound) -> None:
        """Insert jobs that started to wait into the lists by waiting time."""
        if not self._options.promises:
            return
        for job_id in (*self._given, *view.joined):
            if job_id in view.waiting:
                sums = view.sums.jobs[job_id]
                rows = self._by_wait.setdefault((sums.tenant, sums.gpu_type), [])
                row = (waits_since(view.jobs[job_id], sums), job_id)
                index = bisect_left(rows, row)
                if index == len(rows) or rows[index] != row:
                    rows.insert(index, row)

    def _longest_waiting(self, view: KeptRound, claim: ClaimKey) -> Iterator[tuple[int, int]]:
        """Yield (since when, job) of a claim's waiting jobs; remove jobs that do not wait there."""
        rows, index = self._by_wait.get(claim, []), 0
        while index < len(rows):
            since_us, job_id = rows[index]
            sums = view.sums.jobs.get(job_id)
            if (
                sums is None
                or job_id not in view.waiting
                or (sums.tenant, sums.gpu_type) != claim
                or waits_since(view.jobs[job_id], sums) != since_us
            ):
                del rows[index]
                continue
            yield rows[index]
            index += 1

    def _listen(self, view: KeptRound, order: JobOrder) -> None:
        """Insert jobs that started to wait into their lists, and remove jobs that got GPUs."""
        self._note_waits(view)
        for job_id in (*self._given, *view.joined):
            kept = self._entries.pop(job_id, None)
            if kept is not None:
                entries, entry = kept
                index = bisect_left(entries, entry)
                if index < len(entries) and entries[index] == entry:
                    del entries[index]
            if job_id not in view.waiting:
                continue
            one = EvenCandidate(view.jobs[job_id], view.sums.jobs[job_id], None)
            entry = (order.rank(one), one.job.submitted_us, job_id)
            self._entries[job_id] = (insert(self._queues, one, entry), entry)
        view.joined.clear()
        self._given = []
        self._sweep_in -= 1
        if not self._sweep_in:
            self._sweep_in = SWEEP_ROUNDS
            for kinds in self._queues.values():
                for kind in [kind for kind, entries in kinds.items() if not entries]:
                    del kinds[kind]
