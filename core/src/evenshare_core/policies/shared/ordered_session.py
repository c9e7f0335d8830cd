"""The queue of an ordered policy, kept between rounds (`policies.session`).

Jobs that wait are alike when a round that fails one of them must fail the others behind it: of the
same tenant, GPU types, gang and maximum price. Each kind has a sorted list; a round takes the first
of all lists until their heads fail. Free GPUs and limits only shrink in a round, so that is exact.
The order of a job that waits does not change with time: what it received stands still.
"""

from __future__ import annotations

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
Entry = tuple[tuple[Any, ...], int]  # order, job


class OrderedSession:
    """Rounds of the policy that `rule` makes of what tenants hold."""

    outlasts_renewals = False

    def __init__(self, rule: Callable[[KeptRound], QueueRule], *, borrows: bool = True) -> None:
        """`borrows`: a job that fits starts, whatever its tenant holds."""
        self._rule, self._borrows = rule, borrows
        self._waiting: dict[Kind, list[Entry]] = {}
        self._entries: dict[int, tuple[Kind, Entry]] = {}
        self._given: list[int] = []
        self._candidates: QueueCandidates | None = None  # of the pool's own capacity, which moves

    def decide(self, view: KeptRound) -> SessionDecision:
        """Answer a round as `decide_in_order` answers its snapshot."""
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
            for gpu_type in gpu_types:  # a type whose nodes are all gone
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
        """Time alone changes nothing: neither order nor free GPUs."""
        return None

    def _candidate(self, view: KeptRound, job_id: int, lease: Lease | None) -> QueuedJob:
        if self._candidates is None:
            self._candidates = QueueCandidates(view.sums.capacity)
        return self._candidates.of(view.jobs[job_id], view.sums.jobs[job_id], lease)

    def _listen(self, view: KeptRound, rule: QueueRule) -> None:
        """Put jobs that began to wait into their list, and take out those that were given GPUs."""
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
        """Try the first of all kinds, and of `ended` leases, until nothing is left to try."""
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
        """Push the next of a list; those that are over or run by now are taken out of it."""
        while index < len(entries):
            order, job_id = entries[index]
            if job_id in view.waiting:
                heappush(heap, (order, job_id, entries, index))
                return
            del entries[index]
            del self._entries[job_id]
