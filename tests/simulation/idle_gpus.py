"""Account for idle GPUs: why each of them is idle while jobs wait.

After each round, the GPUs of a node that no lease holds are idle until the next round. They count
by the first reason that holds:

- *promised*: they are held back for a promise, and a waiting job would fit without that;
- *refused*: a limit refuses each job that would fit;
- *next round*: leases ended early on the node, so the rest of their GPUs stays unassigned in this
  round (`RoomMaker._settle`). Or only jobs fit whose own leases ended early in this round;
- *rule 3*: a larger gang fits over several nodes, but a smaller one failed first;
- *too few*: no waiting job fits on the idle GPUs of the node, or over several nodes;
- *fault*: a waiting job fits, and none of the reasons above holds.

Pools have one GPU type. GPUs that become idle between two rounds count from the next round on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from evenshare_core.domain.reasons import EndReason
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import SimulationState

NOBODY, PROMISED, REFUSED, NEXT_ROUND, RULE_3, TOO_FEW, FAULT = (
    "nobody waits", "promised", "refused", "next round", "rule 3", "too few", "fault",
)  # fmt: skip # a table
EARLY = {EndReason.PREEMPTED, EndReason.MOVED}


class IdleAccount:
    """The idle GPU-time of a run by reason, in GPU-us, and that of all GPUs as "all"."""

    def __init__(self, state: SimulationState, *, refused: bool = False) -> None:
        """`refused`: whether limits may refuse jobs, so that a job that fits is no fault."""
        self._state, self._refused = state, refused
        self._seen = 0  # leases in the books at the last round
        self._now: Counter[str] = Counter()  # GPUs by reason since the last round
        self._since_us = state.at_us
        self.gpu_us: Counter[str] = Counter()

    def note(self, _: int = 0) -> None:
        """Close the span since the last round, and count the GPUs after this one."""
        self.close(self._state.at_us)
        self._now = self._reasons()

    def close(self, at_us: int) -> None:
        span_us, self._since_us = at_us - self._since_us, at_us
        for reason, gpus in self._now.items():
            self.gpu_us[reason] += gpus * span_us

    def percent(self, reason: str) -> float:
        return 100 * self.gpu_us[reason] / self.gpu_us["all"]

    def _reasons(self) -> Counter[str]:
        state = self._state
        free = dict(state.occupancy.gpus)
        reasons = Counter({"all": sum(free.values())})
        for lease in state.leases.values():
            for node, gpus in lease.placement:
                free[node] -= gpus
        promised = policy_named(state.policy.name).promised_starts(state.memory)
        held: Counter[int] = Counter()
        for row in promised:
            held.update(row.held)
        nodes, jobs = self._ended_early()
        gangs = {state.jobs[job].gpus for job in state.queue}
        candidates = {state.jobs[job].gpus for job in state.queue - jobs}
        others = {state.jobs[job].gpus for job in state.queue - {row.job for row in promised}}
        size = max(state.occupancy.gpus.values(), default=0)
        usable = Usable(free, size, others)
        unheld = {node: gpus - held[node] for node, gpus in free.items()}
        soon, now = Usable(unheld, size, gangs), Usable(unheld, size, candidates)
        for node, idle in free.items():
            if idle <= 0:
                continue
            if not gangs:
                reasons[NOBODY] += idle
            elif now.has_use(node) and node not in nodes:
                reasons[REFUSED if self._refused else FAULT] += idle
            elif soon.has_use(node):
                reasons[NEXT_ROUND] += idle
            elif soon.spans:
                reasons[RULE_3] += idle
            else:
                reasons[PROMISED if held[node] and usable.has_use(node) else TOO_FEW] += idle
        return reasons

    def _ended_early(self) -> tuple[set[int], set[int]]:
        """Return the nodes and jobs of the leases that ended before their expiry in this round."""
        books, at_us = self._state.books.leases, self._state.at_us
        rows = [row for row in books[self._seen :] if row.end_us == at_us and row.reason in EARLY]
        self._seen = len(books)
        return {node for row in rows for node, _ in row.placement}, {row.job for row in rows}


class Usable:
    """Which idle GPUs waiting gangs could use on one node; `spans`: one fits over several nodes.

    Only a gang that is larger than all nodes may be on several. If there are smaller gangs, none of
    them fits on one node, so rule 3 places the larger one only if it is tried first.
    """

    def __init__(self, free: Mapping[int, int], size: int, gangs: Collection[int]) -> None:
        """`free`: idle GPUs by node. `size`: the GPUs of the largest node."""
        total = sum(gpus for gpus in free.values() if gpus > 0)
        self._free, self._least = free, min(gangs, default=total + 1)
        self.spans = any(size < gpus <= total for gpus in gangs)
        self._is_alone = self.spans and self._least > size

    def has_use(self, node: int) -> bool:
        return self._free[node] > 0 and (self._is_alone or self._free[node] >= self._least)


def account_for(state: SimulationState, until_us: int) -> IdleAccount:
    """Run a state until an instant, and account for its idle GPUs."""
    account = IdleAccount(state)
    result = SimulationResult(state.books, 0, state.at_us)
    run(state, result, until_us=until_us, progress=account.note)
    account.close(until_us)
    return account
