"""Jobs and free cells of UniSched's program, with leases, reward steps and slots.

Source: W. Gao et al., "UniSched", IEEE TC 2024, section III-C. Departures: docs/unisched-paper.md.

| paper | here | unit |
|---|---|---|
| V_f | `RewardStep.reward_micro` | millionths of a point; at most 100 points |
| Q_f | `RewardStep.deadline` | SLO leases from the first that can begin |
| L | `RewardStep.leases` | SLO leases at full speed; one per step, as T_sr differs |
| A, phi-bar (8) | `SelectorJob.options` | cells, thousandths |
| N^cell | `SelectorProblem.free` | free cells by slot of one best-effort lease |

A slot is a best-effort lease (5 minutes), and slot 0 begins now. An SLO lease is two
slots in the paper, here `SelectorProblem.slots`. Outside an SLO cycle, the first SLO lease begins
in slot 1. Best-effort jobs and profilers compete only for slot 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.options import LEVELS, CellOption, Cells, units_of
from evenshare_core.domain.deadlines import MOST_REWARD_MICRO, DeadlineClass
from evenshare_core.units import COUNT_MAX, MINUTE_US

BEST_EFFORT_LEASE_US = 5 * MINUTE_US
HORIZON_MOST = 4032  # SLO leases: four weeks
HORIZON = 1008  # SLO leases planned by default: a week

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RewardStep:
    """A reward for completing `leases` of work (at full speed) within `deadline` leases."""

    reward_micro: int
    deadline: int
    leases: int


@dataclass(frozen=True, slots=True)
class SelectorJob:
    """A job and its options; without a deadline, it can only get the next best-effort lease.

    `remaining_us` is the estimated work of a best-effort job, which determines its reward. `ready`
    is the first SLO lease that it can begin; above 0, the job cannot start now.
    """

    id: int
    kind: DeadlineClass
    options: tuple[CellOption, ...]
    steps: tuple[RewardStep, ...] = ()
    remaining_us: int = 0
    ready: int = 0

    def __post_init__(self) -> None:
        """Validate the job.

        Raises:
            ValueError: there is no option, steps do not match the class, a reward exceeds the
                class's maximum, or a count is negative.
        """
        if not self.options:
            raise ValueError(f"job {self.id}: options: give at least one")
        if min(self.remaining_us, self.ready) < 0:
            raise ValueError(f"job {self.id}: remaining_us, ready: must be at least 0")
        if self.kind.has_deadline != bool(self.steps):
            raise ValueError(f"job {self.id}: steps: only jobs with deadlines have them")
        most = MOST_REWARD_MICRO[self.kind]
        for step in self.steps:
            if not 0 <= step.reward_micro <= most:
                raise ValueError(
                    f"job {self.id}: reward_micro: must be 0 to {most} for a {self.kind} job"
                )
            if step.deadline < 0 or not 1 <= step.leases <= COUNT_MAX:
                raise ValueError(
                    f"job {self.id}: deadline, leases: must be at least 0 and 1, in leases"
                )


@dataclass(frozen=True)
class SelectorProblem:
    """The inputs of a scheduling cycle: the jobs, and the free cells in each slot from now on.

    The last entry of `free` holds for all later slots. `is_slo_cycle`: SLO leases may begin now, so
    they compete with best-effort leases for slot 0. `horizon` is the maximum number of planned SLO
    leases; if a deadline is later, only the leases that must run before the horizon are planned.
    `slots` is the number of slots in an SLO lease. `slot_us` is the length of a slot, which scales
    best-effort rewards.
    """

    jobs: Sequence[SelectorJob]
    free: Sequence[Cells]
    is_slo_cycle: bool = True
    horizon: int = HORIZON
    slots: int = 2
    slot_us: int = BEST_EFFORT_LEASE_US

    def __post_init__(self) -> None:
        """Validate the problem.

        Raises:
            ValueError: a job is given twice, there is no slot, a count is negative, or the horizon
                is out of range.
        """
        ids = [job.id for job in self.jobs]
        if len(set(ids)) < len(ids):
            raise ValueError("jobs: give each job once")
        if not self.free:
            raise ValueError("free: give at least what is free in slot 0")
        if any(len(cells) != LEVELS or min(cells) < 0 for cells in self.free):
            raise ValueError("free: give four counts of at least 0 for each slot")
        if not 1 <= self.horizon <= HORIZON_MOST:
            raise ValueError(f"horizon: must be 1 to {HORIZON_MOST} leases")
        if self.slots < 1 or self.slot_us < 1:
            raise ValueError("slots, slot_us: must be at least 1")

    @cached_property
    def leases(self) -> int:
        """The number of planned SLO leases: to the last deadline, within the horizon."""
        last = max((step.deadline for job in self.jobs for step in job.steps), default=1)
        return max(1, min(last, self.horizon))

    @cached_property
    def now_units(self) -> Counts:
        """The units that are free in slot 0, by level, counted as in (14)."""
        return np.array(units_of(self.free[0]), dtype=np.int64)

    @cached_property
    def lease_units(self) -> Counts:
        """The units that are free in all slots of each SLO lease, shape leases x levels."""
        return self.units_until(self.leases)

    def units_until(self, leases: int) -> Counts:
        """Return the units that are free in each of `leases` SLO leases, shape leases x levels."""
        first = 0 if self.is_slo_cycle else 1
        rows = np.array([units_of(cells) for cells in self.free], dtype=np.int64)
        slots = np.minimum(first + np.arange(self.slots * leases), len(rows) - 1)
        free: Counts = rows[slots].reshape(leases, self.slots, LEVELS).min(axis=1)
        return free

    def fits(self, step: RewardStep, option: CellOption, ready: int = 0) -> tuple[int, int] | None:
        """Return (leases to plan, their deadline) for a step and option; None if time is too short.

        Leases that can run after the horizon are not planned. `ready` is as in `SelectorJob`.
        """
        leases = option.leases(step.leases)
        if leases > step.deadline - ready:
            return None
        later = max(0, step.deadline - max(ready, self.horizon))
        return max(0, leases - later), min(step.deadline, self.horizon)
