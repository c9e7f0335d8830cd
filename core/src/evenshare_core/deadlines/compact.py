"""UniSched's program with one row per level and horizon instead of a variable per slot.

A job runs one lease at a time. If it must run L leases before lease Q, it must run at least max(0,
L - max(0, Q - q)) of them before lease q. For every q and level, the sum of these leases over all
jobs is at most the free capacity before q. The program chooses columns (job, step, option) under
these rows. No plan has more reward than the program's optimum.

The slots before a deadline are the narrowest cut if capacity does not fall and jobs are fractional
or one GPU wide. In this case, the optimum itself can be laid out as a plan. Rows are needed only at
deadlines and at changes of capacity. Between them, the left side is convex in q and the right side
is linear.

By weak duality, any non-negative prices of the rows prove an upper bound. The bound is summed in
integers, so it is valid however inaccurate the solver's prices are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.model import Counts, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import LEVELS, CellOption, useful_options
from evenshare_core.deadlines.rewards import best_effort_micro
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.units import REWARD_MICRO

PRICE_SCALE = 1024  # the unit of prices is 1/1024 of a millionth of a point
NOW = -1  # `step` of a job without a deadline


@dataclass(frozen=True, slots=True)
class CompactColumn:
    """A way to earn a reward: a job, one of its steps (NOW: a best-effort lease), and an option."""

    job: int  # index in the problem's jobs
    step: int
    option: CellOption
    reward_micro: int
    leases: int
    deadline: int
    ready: int = 0  # the first SLO lease in which the job can run

    @property
    def gpu_leases(self) -> int:
        """The number of GPUs times the number of leases."""
        return self.leases * self.option.units[0]

    @property
    def is_now(self) -> bool:
        """Whether the column uses only slot 0."""
        return self.step == NOW


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """A row: columns use at most `units` cells of `level` in the leases before `horizon`."""

    horizon: int
    level: int
    units: int
    counts_now: bool
    counts_slo: bool


@dataclass(frozen=True)
class CompactProgram:
    """The columns and rows of one problem; columns are grouped by job, the best reward first."""

    problem: SelectorProblem
    columns: tuple[CompactColumn, ...]

    @cached_property
    def jobs(self) -> NDArray[np.int64]:
        """The job index of each column."""
        return np.array([column.job for column in self.columns], dtype=np.int64)

    @cached_property
    def rewards(self) -> Counts:
        """The reward of each column, in millionths of a point."""
        return np.array([column.reward_micro for column in self.columns], dtype=np.int64)

    @cached_property
    def units(self) -> Counts:
        """The units that each column uses at each level while it runs, shape columns x levels."""
        rows = [column.option.units for column in self.columns]
        return np.array(rows, dtype=np.int64).reshape(len(rows), LEVELS)

    @cached_property
    def is_now(self) -> NDArray[np.bool_]:
        """Whether each column uses only slot 0."""
        return np.array([column.is_now for column in self.columns], dtype=np.bool_)

    @cached_property
    def rows(self) -> tuple[CapacityRow, ...]:
        """All rows that can bind, ordered by horizon and level."""
        return tuple(_rows(self.problem, self.columns))

    @cached_property
    def capacity(self) -> Counts:
        """The right side of each row, in cells of its level."""
        return np.array([row.units for row in self.rows], dtype=np.int64)

    @cached_property
    def _must(self) -> dict[int, Counts]:
        """By horizon, the leases that each SLO column must run before it; 0 for other columns."""
        leases = np.array([column.leases for column in self.columns], dtype=np.int64)
        deadlines = np.array([column.deadline for column in self.columns], dtype=np.int64)
        leases[self.is_now] = 0
        return {
            horizon: np.maximum(0, leases - np.maximum(0, deadlines - horizon))
            for horizon in {row.horizon for row in self.rows}
        }

    def usage(self, row: CapacityRow) -> Counts:
        """Return the left side of a row, one number per column."""
        times = self._must[row.horizon] if row.counts_slo else np.zeros(len(self.columns), np.int64)
        if row.counts_now:
            times = np.where(self.is_now, 1, times)
        return self.units[:, row.level] * times

    def best_by_job(self, values: Counts) -> Counts:
        """Return for each job the largest value among its columns, at least 0; shape jobs."""
        best = np.zeros(len(self.problem.jobs), dtype=np.int64)
        if len(values):
            np.maximum.at(best, self.jobs, values)
        return best

    def priced(self, prices: Sequence[tuple[int, int]]) -> Counts:
        """Return each column's reward minus its cost at `prices` (row, price), in PRICE_SCALE."""
        values = self.rewards * PRICE_SCALE
        for row, price in prices:
            values = values - price * self.usage(self.rows[row])
        return values

    def bound_micro(self, prices: Sequence[tuple[int, int]]) -> int:
        """Return an upper bound on every plan's reward, which `prices` of (row, price) prove.

        Prices are in millionths of a point x PRICE_SCALE. Without prices, the bound is the sum of
        the jobs' best rewards.

        Raises:
            ValueError: a price is negative.
        """
        if any(price < 0 for _, price in prices):
            raise ValueError("prices: must be at least 0")
        total = sum(price * self.rows[row].units for row, price in prices)
        total += int(self.best_by_job(self.priced(prices)).sum())
        return -(-total // PRICE_SCALE)


def compact_program(problem: SelectorProblem) -> CompactProgram:
    """Return the compact program of a problem, without dominated options."""
    columns: list[CompactColumn] = []
    for place, job in enumerate(problem.jobs):
        columns += sorted(_columns(problem, place, job), key=lambda one: -one.reward_micro)
    return CompactProgram(problem, tuple(columns))


def _columns(problem: SelectorProblem, place: int, job: SelectorJob) -> Iterator[CompactColumn]:
    options = useful_options(job.options)
    if not job.kind.has_deadline:
        for option in options:
            if job.kind is DeadlineClass.PROFILER:
                reward = REWARD_MICRO
            else:
                reward = best_effort_micro(option.phi_milli, job.remaining_us, problem.slot_us)
            yield CompactColumn(place, NOW, option, reward, 1, 1)
        return
    for number, step in enumerate(job.steps):
        for option in options:
            window = problem.fits(step, option, job.ready)
            if window is not None and step.reward_micro > 0:
                yield CompactColumn(place, number, option, step.reward_micro, *window, job.ready)


def _rows(problem: SelectorProblem, columns: Sequence[CompactColumn]) -> Iterator[CapacityRow]:
    lease_units = problem.lease_units
    before = lease_units.cumsum(axis=0)
    now = problem.now_units
    changes = np.flatnonzero((lease_units[1:] != lease_units[:-1]).any(axis=1)) + 1
    horizons = {column.deadline for column in columns if not column.is_now and column.leases}
    horizons |= {1, *changes.tolist()}
    has_now = any(column.is_now for column in columns)
    together = problem.is_slo_cycle and has_now
    for horizon in sorted(horizons):
        for level in range(LEVELS):
            units = int(before[horizon - 1, level])
            # in the first half of lease 0 only
            more = int(now[level] - lease_units[0, level])
            if together:
                yield CapacityRow(horizon, level, units + more, counts_now=True, counts_slo=True)
            if not together or more:
                yield CapacityRow(horizon, level, units, counts_now=False, counts_slo=True)
            if has_now and not together and horizon == 1:
                yield CapacityRow(1, level, int(now[level]), counts_now=True, counts_slo=False)
