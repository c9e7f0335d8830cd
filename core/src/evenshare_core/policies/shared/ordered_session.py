"""The queue of an ordered policy, kept between rounds (`policies.session`).

Waiting jobs are of one kind if, when one of them fails in a round, all behind it must fail too.
They share tenant, GPU types, gang and maximum price. Each kind has a sorted list. A round tries the
first jobs of the lists in order, until all fail. The result is exact, because within a round free
GPUs only decrease and limits only get stricter. A waiting job receives no GPU-time, so its order
does not change with time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from evenshare_core.domain.leases import Lease
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.shared.ordered import (
    OrderedPicks,
    QueueCandidates,
    QueuedJob,
    QueueRule,
)
from evenshare_core.policies.shared.session import KeptRound, SessionDecision, uncontested
from evenshare_core.policies.shared.terms import ends_of

Kind = tuple[int, tuple[str, ...], int, int | None]
Entry = tuple[tuple[Any, ...], int]  # sort key, job id


class OrderedSession:
    """The rounds of a pool by the rule that `rule` builds from a view."""

    outlasts_renewals = False

    def __init__(self, rule: Callable[[KeptRound], QueueRule], *, borrows: bool = True) -> None:
        """`borrows`: whether a job that fits may start, however many GPUs its tenant holds."""
        self._rule, self._borrows = rule, borrows
        self._waiting: dict[Kind, list[Entry]] = {}
        self._entries: dict[int, tuple[Kind, Entry]] = {}
        self._given: list[int] = []
        # built with the pool's capacity dict, which is updated in place
        self._candidates: QueueCandidates | None = None

    def decide(self, view: KeptRound) -> SessionDecision:
        """Decide a round with the same result as `decide_in_order` on its snapshot."""
        rule = self._rule(view)
        if self._borrows or not view.waiting:
            answer = uncontested(
                view, view.memory, whole_nodes=rule.whole_nodes, spread=rule.spread
            )
            if answer is not None:
                return answer
        self._listen(view, rule)
        free_by_type = view.free_capacity(spread=rule.spread)
        ended = [self._candidate(view, lease.job, lease) for lease in view.due]
        for gpu_types in {one.gpu_types for one in ended} | {kind[1] for kind in self._waiting}:
            for gpu_type in gpu_types:  # a type that no longer has nodes
                free_by_type.setdefault(gpu_type, FreeCapacity({}, {}, {}))
        picks = OrderedPicks(rule, free_by_type, view.admission())
        if not rule.preempts:
            picks.renew_all(ended)
            ended = []
        self._take(view, rule, picks, ended)
        self._given = [grant.job for grant in picks.grants]
        renewed = {row.lease for row in picks.renewals}
        kept = [lease for lease in view.due if lease.id in renewed]
        ends = ends_of(view.due, view.gpus, renewed, picks.refused)
        return SessionDecision(picks.grants, kept, ends, view.memory)

    def quiet_until(self, at_us: int) -> int | None:  # noqa: ARG002 - the protocol's
        """Return None, because time changes neither the order nor the free GPUs."""
        return None

    def _candidate(self, view: KeptRound, job_id: int, lease: Lease | None) -> QueuedJob:
        if self._candidates is None:
            self._candidates = QueueCandidates(view.sums.capacity)
        return self._candidates.of(view.jobs[job_id], view.sums.jobs[job_id], lease)

    def _listen(self, view: KeptRound, rule: QueueRule) -> None:
        """Insert jobs that started to wait into their lists, and remove jobs that got GPUs."""
        for job_id in (*self._given, *view.joined):
            if job_id in self._entries:
                kind, entry = self._entries.pop(job_id)
                entries = self._waiting[kind]
                del entries[bisect_left(entries, entry)]
            if job_id not in view.waiting:
                continue
            one = self._candidate(view, job_id, None)
            types = tuple(sorted(one.gpu_types))
            kind = (one.job.tenant, types, one.job.gpus, one.job.max_price_micro)
            entry = (rule.order(one), job_id)
            insort(self._waiting.setdefault(kind, []), entry)
            self._entries[job_id] = (kind, entry)
        view.joined.clear()
        self._given = []

    def _take(
        self, view: KeptRound, rule: QueueRule, picks: OrderedPicks, ended: list[QueuedJob]
    ) -> None:
        """Try the first job of each kind, and the `ended` leases, until no job is left."""
        heap: list[tuple[tuple[Any, ...], int, list[Entry], int]] = []
        for entries in self._waiting.values():
            self._next(view, heap, entries, 0)
        by_job = {one.job.id: one for one in ended}
        heap += [(rule.order(one), one.job.id, [], 0) for one in ended]
        heapify(heap)
        while heap:
            _, job_id, entries, index = heappop(heap)
            if picks.consider(by_job.get(job_id) or self._candidate(view, job_id, None)):
                self._next(view, heap, entries, index + 1)

    def _next(
        self,
        view: KeptRound,
        heap: list[tuple[tuple[Any, ...], int, list[Entry], int]],
        entries: list[Entry],
        index: int,
    ) -> None:
        """Push the next entry of a list; remove entries of jobs that no longer wait."""
        while index < len(entries):
            order, job_id = entries[index]
            if job_id in view.waiting:
                heappush(heap, (order, job_id, entries, index))
                return
            del entries[index]
            del self._entries[job_id]
