"""The paper's program slot by slot, linearised. HiGHS solves small cases exactly.

Source: W. Gao et al., "UniSched", IEEE TC 2024, (4) to (14), with (7) and (12) as >=, and (11) and
(14) per slot.

    z[i, p, k]   1 if job i has lease k on option p
    y[i, p]      its option
    s[i, f]      its step

    max  sum V s   (a job without deadline: sum of its option's reward times z[i, p, 0])
    z[i, p, k] <= y[i, p];  sum_p y[i, p] <= 1;  sum_f s[i, f] <= 1
    sum_p sum_{k < Q_f} phi_p z[i, p, k] >= L_f s[i, f]
    for each slot and level i: sum of sum_{g >= i} 2^(g-i) A(g) z <= sum_{g >= i} 2^(g-i) free(g)

It has all options and a variable per slot. It shares only the rewards with the compact program. It
cannot solve thousands of jobs, see benchmarks/unisched_selector.py.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from evenshare_core.deadlines.model import SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import LEVELS
from evenshare_core.deadlines.rewards import best_effort_micro
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.formulations.lp import ConstraintRows
from evenshare_core.formulations.selector_whole import solve_whole
from evenshare_core.units import ONE_MILLI, REWARD_MICRO


@dataclass(frozen=True, slots=True)
class LiteralOptimum:
    """The best reward found and an upper bound, in millionths of a point."""

    reward_micro: int
    bound_micro: int


@dataclass
class _Literal:
    """The program under construction."""

    problem: SelectorProblem
    rewards: list[int] = field(default_factory=list)
    rows: ConstraintRows = field(default_factory=ConstraintRows)
    # (half, slot, level): its terms. Half 0 is slot 0, which best-effort leases share.
    taken: dict[tuple[str, int, int], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def column(self, reward_micro: int = 0) -> int:
        self.rewards.append(reward_micro)
        return len(self.rewards) - 1

    def row(self, terms: list[tuple[int, int]], *, lower: float, upper: float) -> None:
        columns, values = zip(*terms, strict=True)
        self.rows.add(np.array(columns), np.array(values, dtype=float), lower, upper)

    def add(self, job: SelectorJob) -> None:
        if not job.kind.has_deadline:
            self._add_now(job)
            return
        last = max(step.deadline for step in job.steps)
        leases: list[list[tuple[int, int]]] = [[] for _ in range(last)]
        chosen = []
        for option in job.options:
            y = self.column()
            chosen.append((y, 1))
            for slot in range(job.ready, last):
                z = self.column()
                leases[slot].append((z, option.phi_milli))
                self.row([(z, 1), (y, -1)], lower=-np.inf, upper=0.0)
                self._take("lease", slot, option.units, z)
                if slot == 0 and self.problem.is_slo_cycle:
                    self._take("now", 0, option.units, z)
        self.row(chosen, lower=-np.inf, upper=1.0)
        steps = [self.column(step.reward_micro) for step in job.steps]
        self.row([(s, 1) for s in steps], lower=-np.inf, upper=1.0)
        for s, step in zip(steps, job.steps, strict=True):
            done = [term for slot in leases[: step.deadline] for term in slot]
            self.row([*done, (s, -ONE_MILLI * step.leases)], lower=0.0, upper=np.inf)

    def _add_now(self, job: SelectorJob) -> None:
        chosen = []
        for option in job.options:
            reward = (
                REWARD_MICRO
                if job.kind is DeadlineClass.PROFILER
                else best_effort_micro(option.phi_milli, job.remaining_us, self.problem.slot_us)
            )
            z = self.column(reward)
            chosen.append((z, 1))
            self._take("now", 0, option.units, z)
        self.row(chosen, lower=-np.inf, upper=1.0)

    def _take(self, which: str, slot: int, units: tuple[int, ...], z: int) -> None:
        for level in range(LEVELS):
            if units[level]:
                self.taken[which, slot, level].append((z, units[level]))

    def close(self) -> None:
        """Add (14) for each slot and level."""
        free = {"lease": self.problem.lease_units, "now": self.problem.now_units[np.newaxis]}
        for (which, slot, level), terms in self.taken.items():
            self.row(terms, lower=-np.inf, upper=float(free[which][slot, level]))


def literal_optimum(problem: SelectorProblem, *, seconds: float | None = None) -> LiteralOptimum:
    """Solve the literal program. With `seconds`, benchmarks stop the solver before the optimum.

    Raises:
        ValueError: a deadline is beyond the horizon.
        SolverError: HiGHS stops without an optimum for a reason other than the limit.
    """
    if any(step.deadline > problem.horizon for job in problem.jobs for step in job.steps):
        raise ValueError("horizon: the literal program has all slots to the last deadline")
    literal = _Literal(problem)
    for job in problem.jobs:
        literal.add(job)
    literal.close()
    if not literal.rewards:
        return LiteralOptimum(0, 0)
    rewards = np.array(literal.rewards)
    taken, most, is_optimal = solve_whole(rewards / REWARD_MICRO, literal.rows, seconds=seconds)
    reward = 0 if taken is None else int(rewards[taken].sum())
    bound = reward if is_optimal else int(most * REWARD_MICRO) + 1
    return LiteralOptimum(reward, bound)
