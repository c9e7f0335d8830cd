"""Admission control: whether a job's deadline can be promised in addition to an existing plan.

The plan's leases do not move, so the answer is exact. A deadline can be promised if and only if the
job fits in enough leases before it. The earliest possible deadline is the end of the last lease
that the job needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.model import Counts, SelectorProblem
from evenshare_core.deadlines.options import CellOption, Cells
from evenshare_core.deadlines.plans import SelectorPlan, free_units
from evenshare_core.domain.deadlines import DeadlineLimit

QUOTA_LEVEL = -1  # in `blocked`, the limit is the quota; other numbers are levels of cells


@dataclass(frozen=True)
class QuotaLimit:
    """A tenant's GPU limit, and the GPUs that it uses in each SLO lease.

    The last value holds for all later leases.
    """

    gpus: int
    used: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Validate the numbers.

        Raises:
            ValueError: `used` is empty, or a count is negative.
        """
        if not self.used or min(self.gpus, *self.used) < 0:
            raise ValueError("gpus, used: must be at least 0, and used needs at least one lease")

    @cached_property
    def _used(self) -> Counts:
        return np.array(self.used, dtype=np.int64)

    def allows(self, gpus: int, leases: int) -> NDArray[np.bool_]:
        """Return in which of the first `leases` leases the tenant may hold `gpus` more GPUs."""
        used = self._used[:leases]
        allowed = np.full(leases, self.used[-1] + gpus <= self.gpus)
        allowed[: len(used)] = used + gpus <= self.gpus
        return allowed


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The answer to a request: leases and their option, or the limit that prevents the promise.

    `blocked` has the SLO leases before the deadline in which the closest option does not fit. Each
    comes with the level that has too few cells, or QUOTA_LEVEL if the quota is too small.
    `earliest` is the first possible deadline, in leases; None if no deadline is possible.
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


@dataclass(eq=False)
class FreeRoom:
    """Free units by lease and level, and the leases in which each option fits.

    The last row holds for every later lease. The leases that fit are computed once for each
    `units`, then updated.
    """

    free: Counts
    _fitting: dict[Cells, NDArray[np.bool_]] = field(default_factory=dict)

    def fitting(self, units: Cells) -> NDArray[np.bool_]:
        """Return for each lease whether these units are free, by condition (14)."""
        known = self._fitting.get(units)
        if known is None:
            known = np.ones(len(self.free), dtype=np.bool_)
            for level, count in enumerate(units):
                known &= self.free[:, level] >= count
            self._fitting[units] = known
        return known

    def take(self, units: Cells, slots: Sequence[int]) -> None:
        places = list(slots)
        self.free[places] -= units
        left = self.free[places]
        for asked, fits in self._fitting.items():
            fits[places] = (left >= asked).all(axis=1)


def admit(
    problem: SelectorProblem,
    plan: SelectorPlan,
    options: Sequence[CellOption],
    leases: int,
    deadline: int,
    *,
    quota: QuotaLimit | None = None,
    room: FreeRoom | None = None,
) -> AdmissionAnswer:
    """Return whether `leases` of work at full speed fit by `deadline`, in addition to a plan.

    `leases` and `deadline` count SLO leases from the first that can begin. Of several feasible
    options, the one that ends first is used, then the one with the fewest GPU-leases. After the
    last lease of the plan, the pool has the last entry of the problem's `free`. Callers with many
    requests pass `room`, the `free_after` of the plan; it must extend beyond the deadline and all
    changes.

    Raises:
        ValueError: there is no option or no work, the deadline is negative, or an option is held.
    """
    if not options or leases < 1 or deadline < 0:
        raise ValueError(
            "options, leases, deadline: need at least 1 option, 1 lease and a"
            " deadline of at least 0"
        )
    if any(option.is_held for option in options):
        raise ValueError("options: a job that requests a deadline holds no GPUs yet")
    changes = [len(problem.free), 1 if quota is None else len(quota.used)]
    if room is None:
        room = FreeRoom(free_after(problem, plan, max(problem.leases, deadline, *changes) + 1))
    rows = [_OptionRoom.of(option, option.leases(leases), room, quota) for option in options]
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
    """The leases in which one option fits: its units are free and the quota allows its GPUs."""

    option: CellOption
    leases: int
    room: FreeRoom
    fits: NDArray[np.bool_]

    @classmethod
    def of(
        cls, option: CellOption, leases: int, room: FreeRoom, quota: QuotaLimit | None
    ) -> _OptionRoom:
        fits = room.fitting(option.units)
        if quota is not None:
            fits = fits & quota.allows(option.gpus, len(fits))
        return cls(option, leases, room, fits)

    @cached_property
    def ends(self) -> int | None:
        """The first deadline by which all leases fit; None if they never fit."""
        return _end(self.fits, self.leases)

    @property
    def cells_end(self) -> int | None:
        """The first deadline by which all leases fit without the quota; None if they never fit."""
        return _end(self.room.fitting(self.option.units), self.leases)

    def first(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.fits)[: self.leases].tolist())

    def blocked(self, deadline: int) -> tuple[tuple[int, int], ...]:
        """Return leases without room before a deadline, each with the highest short level."""
        rows = np.flatnonzero(~self.fits[:deadline])
        short = self.room.free[rows] < np.array(self.option.units)
        highest = short.shape[1] - 1 - short[:, ::-1].argmax(axis=1)
        levels = np.where(short.any(axis=1), highest, QUOTA_LEVEL)
        return tuple(zip(rows.tolist(), levels.tolist(), strict=True))


def _end(fits: NDArray[np.bool_], leases: int) -> int | None:
    """Return the first deadline by which `leases` fit; `fits[-1]` holds for later leases."""
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
    """Return a plan's free units by lease and level; the last row holds for later leases."""
    now, planned = free_units(problem, plan)
    if problem.is_slo_cycle:
        planned[0] = np.minimum(planned[0], now)
    free = problem.units_until(leases)
    free[: len(planned)] = planned
    return free
