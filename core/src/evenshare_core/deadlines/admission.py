"""What a deadline job can be promised beside a plan: leases, or what is in the way.

The leases of the plan stay where they are. So the answer is exact: a job can be promised a deadline
if and only if enough leases before it have room, and the earliest deadline is the one by which the
last lease that it needs has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.model import Counts, SelectorProblem
from evenshare_core.deadlines.options import CellOption
from evenshare_core.deadlines.plans import SelectorPlan, free_units
from evenshare_core.domain.deadlines import DeadlineLimit

QUOTA_LEVEL = -1  # in place of a level of cells


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """GPUs that a tenant may have, and those that it has by SLO lease; the last goes on."""

    gpus: int
    used: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            ValueError: nothing is said of the first lease, or a count is negative.
        """
        if not self.used or min(self.gpus, *self.used) < 0:
            raise ValueError("gpus, used: must be at least 0, and used needs one lease at least")


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """Yes with leases and their option; or no with the limit, and the earliest deadline.

    `blocked`: SLO leases before the deadline that have no room, by the option that is nearest, with
    the level of cells that is short (QUOTA_LEVEL: the quota). `earliest`: the first deadline, in
    leases, that would do; None: none would.
    """

    slots: tuple[int, ...] = ()
    option: CellOption | None = None
    limit: DeadlineLimit | None = None
    blocked: tuple[tuple[int, int], ...] = ()
    earliest: int | None = None

    @property
    def is_yes(self) -> bool:
        """Whether the deadline can be met."""
        return self.limit is None


def admit(
    problem: SelectorProblem,
    plan: SelectorPlan,
    options: Sequence[CellOption],
    leases: int,
    deadline: int,
    *,
    quota: QuotaLimit | None = None,
    free: Counts | None = None,
) -> AdmissionAnswer:
    """Answer for `leases` of work at full speed by `deadline`, beside what is planned.

    Both count SLO leases from the first that can begin. Of several options that do, the one that
    ends first counts, then the one that takes the fewest GPU-leases. After the last lease of the
    plan the pool has what the problem's `free` says last. `free`: `free_after` of the plan, for
    callers that ask often; it reaches beyond the deadline and all that changes.

    Raises:
        ValueError: no option, no work, a negative deadline, or an option of what the job holds.
    """
    if not options or leases < 1 or deadline < 0:
        raise ValueError("options, leases, deadline: need one option, 1 lease, a deadline from 0")
    if any(option.is_held for option in options):
        raise ValueError("options: a job that asks holds nothing yet")
    changes = [len(problem.free), 1 if quota is None else len(quota.used)]
    if free is None:
        free = free_after(problem, plan, max(problem.leases, deadline, *changes) + 1)
    rows = [_OptionRoom.of(option, option.leases(leases), free, quota) for option in options]
    chances = [
        (end, row.leases * row.option.units[0], place)
        for place, row in enumerate(rows)
        if (end := row.ends) is not None
    ]
    if not chances:
        return _refusal(rows, deadline, None)
    earliest, _, place = min(chances)
    if earliest <= deadline:
        return AdmissionAnswer(rows[place].first(), rows[place].option, None, (), earliest)
    return _refusal(rows, deadline, earliest)


@dataclass(frozen=True, eq=False)
class _OptionRoom:
    """Where one option has room: shortages by lease and level, and whether the quota allows it."""

    option: CellOption
    leases: int
    is_short: NDArray[np.bool_]
    allowed: NDArray[np.bool_]

    @classmethod
    def of(
        cls, option: CellOption, leases: int, free: Counts, quota: QuotaLimit | None
    ) -> _OptionRoom:
        allowed = np.ones(len(free), dtype=np.bool_)
        if quota is not None:
            used = np.array(quota.used)[np.minimum(np.arange(len(free)), len(quota.used) - 1)]
            allowed = used + option.gpus <= quota.gpus
        return cls(option, leases, free < np.array(option.units), allowed)

    @property
    def has_cells(self) -> NDArray[np.bool_]:
        full: NDArray[np.bool_] = np.logical_or.reduce(self.is_short, axis=1)
        return ~full

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self.has_cells & self.allowed

    @property
    def ends(self) -> int | None:
        """By when the leases can have run; None: never."""
        return _end(self.fits, self.leases)

    @property
    def cells_end(self) -> int | None:
        """The same without the quota."""
        return _end(self.has_cells, self.leases)

    def first(self) -> tuple[int, ...]:
        """Return the first leases that fit."""
        return tuple(np.flatnonzero(self.fits)[: self.leases].tolist())

    def blocked(self, deadline: int) -> tuple[tuple[int, int], ...]:
        """Return the leases before a deadline without room, and the highest level that is short."""
        rows = np.flatnonzero(~self.fits[:deadline])
        short = self.is_short[rows]
        highest = short.shape[1] - 1 - short[:, ::-1].argmax(axis=1)
        levels = np.where(short.any(axis=1), highest, QUOTA_LEVEL)
        return tuple(zip(rows.tolist(), levels.tolist(), strict=True))


def _end(fits: NDArray[np.bool_], leases: int) -> int | None:
    """Return the deadline by which so many fit; the last of `fits` is of all that come later."""
    places = np.flatnonzero(fits)
    if len(places) >= leases:
        return int(places[leases - 1]) + 1
    return len(fits) + leases - len(places) if fits[-1] else None


def _refusal(rows: Sequence[_OptionRoom], deadline: int, earliest: int | None) -> AdmissionAnswer:
    if earliest is None:
        limit = DeadlineLimit.SIZE
        if any(row.cells_end is not None for row in rows):
            limit = DeadlineLimit.QUOTA
        return AdmissionAnswer(limit=limit)
    able = [row for row in rows if row.leases <= deadline]
    if not able:
        return AdmissionAnswer(limit=DeadlineLimit.LENGTH, earliest=earliest)
    limit = DeadlineLimit.CAPACITY
    nearest = max(able, key=lambda row: int(row.fits[:deadline].sum()) - row.leases)
    for row in able:
        if row.cells_end is not None and row.cells_end <= deadline:
            limit, nearest = DeadlineLimit.QUOTA, row
            break
    return AdmissionAnswer((), nearest.option, limit, nearest.blocked(deadline), earliest)


def free_after(problem: SelectorProblem, plan: SelectorPlan, leases: int) -> Counts:
    """Return free units by lease and level; the last row is of every later lease, too."""
    now, planned = free_units(problem, plan)
    if problem.is_slo_cycle:
        planned[0] = np.minimum(planned[0], now)
    free = problem.units_until(leases)
    free[: len(planned)] = planned
    return free
