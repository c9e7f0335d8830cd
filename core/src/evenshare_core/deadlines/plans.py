"""A plan: the leases and cells of each job, and an upper bound on the reward of any plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evenshare_core.deadlines.compact import NOW
from evenshare_core.deadlines.model import Counts, SelectorProblem
from evenshare_core.deadlines.options import CellOption


@dataclass(frozen=True, slots=True)
class JobLeases:
    """A plan's leases for one job; `step` is NOW for a best-effort lease in slot 0.

    `slots` are SLO leases, counted from the first that can begin, ascending. For a job without a
    deadline they are (0,).
    """

    job: int  # job id
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
    """A feasible plan and an upper bound.

    `prices` prove the bound, and start the next solve from this solution.

    `is_complete` means that the program was solved within its limit of work. Otherwise, this is the
    best plan found up to the limit.
    """

    jobs: Mapping[int, JobLeases]  # by job id
    reward_micro: int
    bound_micro: int
    prices: tuple[tuple[int, int], ...] = ()
    is_complete: bool = True

    @property
    def gap(self) -> float:
        """The maximum distance of the reward from the optimum, as a fraction of the bound."""
        return (self.bound_micro - self.reward_micro) / self.bound_micro if self.bound_micro else 0

    def now(self, *, is_slo_cycle: bool) -> Iterator[JobLeases]:
        """Yield the leases that begin now. SLO leases begin only in an SLO cycle."""
        for row in self.jobs.values():
            if row.is_now or (is_slo_cycle and 0 in row.slots):
                yield row


def free_units(problem: SelectorProblem, plan: SelectorPlan) -> tuple[Counts, Counts]:
    """Return the units that a plan leaves free in slot 0 and in each SLO lease, by level.

    Best-effort leases use slot 0. In an SLO cycle, the first half of SLO lease 0 uses it too.
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
    """Return a plan's faults as sentences; empty if it is feasible and its bound is valid."""
    wrong = [
        fault
        for job in problem.jobs
        if job.id in plan.jobs
        for fault in _faults_of(problem, plan.jobs[job.id], job.id)
    ]
    if plan.jobs.keys() - {job.id for job in problem.jobs}:
        wrong.append("a planned job was not requested")
    last = max((slot for row in plan.jobs.values() for slot in row.slots), default=0)
    if last >= problem.leases:
        wrong.append("a planned slot is after the last")
    elif any((free < 0).any() for free in free_units(problem, plan)):
        wrong.append("a slot has more planned cells than free cells")
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
        yield f"job {number} does not have the reward of its step"
