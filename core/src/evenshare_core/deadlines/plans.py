"""A plan: which jobs run on which leases, on which cells, and how far it can be from the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evenshare_core.deadlines.compact import NOW
from evenshare_core.deadlines.model import Counts, SelectorProblem
from evenshare_core.deadlines.options import CellOption


@dataclass(frozen=True, slots=True)
class JobLeases:
    """What a plan gives one job; `step` NOW: the best-effort lease in slot 0.

    `slots` are SLO leases from the first that can begin, ascending; for a job without deadline
    (0,), its slot of one best-effort lease.
    """

    job: int  # its id
    step: int
    option: CellOption
    reward_micro: int
    slots: tuple[int, ...]

    @property
    def is_now(self) -> bool:
        """Whether it is a best-effort lease in slot 0."""
        return self.step == NOW


@dataclass(frozen=True, slots=True)
class SelectorPlan:
    """A feasible plan and what no plan can exceed; `prices` prove the bound, and start the next.

    `is_complete`: the program was solved within its limit of work. If not, the plan is what there
    was at the limit, with its gap.
    """

    jobs: Mapping[int, JobLeases]  # by id
    reward_micro: int
    bound_micro: int
    prices: tuple[tuple[int, int], ...] = ()
    is_complete: bool = True

    @property
    def gap(self) -> float:
        """How far it can be from the best plan, of the bound; 0 where the bound is 0."""
        return (self.bound_micro - self.reward_micro) / self.bound_micro if self.bound_micro else 0

    def now(self, *, is_slo_cycle: bool) -> Iterator[JobLeases]:
        """Yield what begins now; without an SLO cycle, best-effort leases alone."""
        for row in self.jobs.values():
            if row.is_now or (is_slo_cycle and 0 in row.slots):
                yield row


def free_units(problem: SelectorProblem, plan: SelectorPlan) -> tuple[Counts, Counts]:
    """Return what a plan leaves free by level as (14) counts: of slot 0, and of each SLO lease.

    Slot 0 has in it both best-effort leases and, at an SLO cycle, the first half of lease 0.
    """
    now, leases = problem.now_units.copy(), problem.lease_units.copy()
    for row in plan.jobs.values():
        if row.is_now:
            now -= row.option.units
        else:
            leases[list(row.slots)] -= row.option.units
            if problem.is_slo_cycle and 0 in row.slots:
                now -= row.option.units
    return now, leases


def faults(problem: SelectorProblem, plan: SelectorPlan) -> list[str]:
    """Return what is wrong with a plan, in sentences; none: it is feasible, and its gap honest."""
    wrong = [
        fault
        for job in problem.jobs
        if job.id in plan.jobs
        for fault in _faults_of(problem, plan.jobs[job.id], job.id)
    ]
    if plan.jobs.keys() - {job.id for job in problem.jobs}:
        wrong.append("a job is planned that did not ask")
    last = max((slot for row in plan.jobs.values() for slot in row.slots), default=0)
    if last >= problem.leases:
        wrong.append("a slot is planned that is beyond the last")
    elif any((free < 0).any() for free in free_units(problem, plan)):
        wrong.append("a slot has more cells planned than are free")
    if plan.reward_micro != sum(row.reward_micro for row in plan.jobs.values()):
        wrong.append("the reward is not the sum of the jobs' rewards")
    if plan.bound_micro < plan.reward_micro:
        wrong.append("the bound is below the reward")
    return wrong


def _faults_of(problem: SelectorProblem, row: JobLeases, number: int) -> Iterator[str]:
    job = next(one for one in problem.jobs if one.id == number)
    if row.option not in job.options:
        yield f"job {number} has an option that it does not offer"
    if list(row.slots) != sorted(set(row.slots)):
        yield f"job {number} has two leases in one slot"
    if row.is_now:
        if job.kind.has_deadline or row.slots != (0,):
            yield f"job {number} is planned as if it had no deadline"
        return
    step = job.steps[row.step]
    window = problem.fits(step, row.option, job.ready)
    if window is None or len(row.slots) < window[0]:
        yield f"job {number} has too few leases"
    if row.slots and not job.ready <= row.slots[0] <= row.slots[-1] < step.deadline:
        yield f"job {number} runs before now or after its deadline"
    if row.reward_micro != step.reward_micro:
        yield f"job {number} has not the reward of its step"
