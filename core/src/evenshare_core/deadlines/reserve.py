"""Reservation of slots for columns of the compact program, with at most one lease per job and slot.

The chosen columns are laid out slot by slot, least slack first, where Proposition 1 allows it.
Other columns are inserted if enough slots fit. They take the latest slots, because early slots are
in higher demand. At the end, leases move to earlier free slots, so that no GPU stays idle now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from evenshare_core.deadlines.compact import CompactColumn, CompactProgram
from evenshare_core.deadlines.model import Counts
from evenshare_core.deadlines.options import Cells
from evenshare_core.deadlines.plans import JobLeases

Row: TypeAlias = list[int]
Saved: TypeAlias = tuple[Row, list[Row], dict[int, list[int]], dict[int, int]]


@dataclass
class SlotReservations:
    """Free units, and the slots of each placed column; at most one column per job."""

    program: CompactProgram
    now: Row = field(init=False)
    leases: list[Row] = field(init=False)
    slots: dict[int, list[int]] = field(init=False, default_factory=dict)  # slots by column
    column_of: dict[int, int] = field(init=False, default_factory=dict)  # column by job

    def __post_init__(self) -> None:
        self.now = self.program.problem.now_units.tolist()
        self.leases = self.program.problem.lease_units.tolist()

    def fits(self, units: Cells, slot: int, *, is_now: bool = False) -> bool:
        """Return whether (14) still holds in a slot after these units are added."""
        if is_now:
            return _fits(self.now, units)
        if slot == 0 and self.program.problem.is_slo_cycle and not _fits(self.now, units):
            return False
        return _fits(self.leases[slot], units)

    def take(self, units: Cells, slot: int, *, is_now: bool = False, sign: int = -1) -> None:
        """Reserve units in a slot; `sign` 1 frees them."""
        rows = [self.now] if is_now else [self.leases[slot]]
        if not is_now and slot == 0 and self.program.problem.is_slo_cycle:
            rows.append(self.now)
        for row in rows:
            for level, count in enumerate(units):
                row[level] += sign * count

    def reserve(self, number: int, slots: Iterable[int]) -> None:
        column = self.program.columns[number]
        units = column.option.units
        self.slots[number] = list(slots)
        self.column_of[column.job] = number
        for slot in self.slots[number]:
            self.take(units, slot, is_now=column.is_now)

    def release(self, number: int) -> list[int]:
        column = self.program.columns[number]
        units = column.option.units
        slots = self.slots.pop(number)
        del self.column_of[column.job]
        for slot in slots:
            self.take(units, slot, is_now=column.is_now, sign=1)
        return slots

    def insert(self, number: int) -> bool:
        """Reserve a column's leases in the last slots that fit; False if there are too few."""
        column = self.program.columns[number]
        units = column.option.units
        if column.is_now:
            if self.fits(units, 0, is_now=True):
                self.reserve(number, [0])
                return True
            return False
        slots: list[int] = []
        for slot in range(column.deadline - 1, column.ready - 1, -1):
            if len(slots) == column.leases:
                break
            if slot + 1 - column.ready < column.leases - len(slots):
                return False
            if self.fits(units, slot):
                slots.append(slot)
        if len(slots) < column.leases:
            return False
        self.reserve(number, reversed(slots))
        return True

    @property
    def reward_micro(self) -> int:
        return sum(self.program.columns[number].reward_micro for number in self.slots)

    def saved(self) -> Saved:
        """Return a copy of the state, which `restore` accepts."""
        slots = {number: list(slots) for number, slots in self.slots.items()}
        return list(self.now), [list(row) for row in self.leases], slots, dict(self.column_of)

    def restore(self, saved: Saved) -> None:
        self.now, self.leases, self.slots, self.column_of = saved

    def plan(self) -> dict[int, JobLeases]:
        problem = self.program.problem
        rows = {}
        for job, number in sorted(self.column_of.items()):
            column = self.program.columns[number]
            slots = tuple(sorted(self.slots[number]))
            rows[problem.jobs[job].id] = JobLeases(
                problem.jobs[job].id, column.step, column.option, column.reward_micro, slots
            )
        return rows


def _fits(row: Row, units: Cells) -> bool:
    return units[0] <= row[0] and units[1] <= row[1] and units[2] <= row[2] and units[3] <= row[3]


def lay(reservations: SlotReservations, chosen: Sequence[int]) -> list[int]:
    """Lay out chosen columns, one per job, least slack first; return those that did not fit.

    At equal slack, the column with more GPUs goes first, then the one that comes first in `chosen`.
    """
    columns = [reservations.program.columns[number] for number in chosen]
    now = [place for place, column in enumerate(columns) if column.is_now]
    later = [place for place, column in enumerate(columns) if not column.is_now]
    missed = []
    deadlines = np.array([columns[place].deadline for place in later], dtype=np.int64)
    left = np.array([columns[place].leases for place in later], dtype=np.int64)
    ready = np.array([columns[place].ready for place in later], dtype=np.int64)
    widths = np.array([columns[place].option.units[0] for place in later], dtype=np.int64)
    state = _Laying(reservations, later, columns, left)
    for place in later:
        reservations.slots[chosen[place]] = []
        reservations.column_of[columns[place].job] = chosen[place]
    last = int(deadlines.max(initial=0))
    for slot in range(last):
        active = np.flatnonzero((left > 0) & (deadlines > slot) & (ready <= slot))
        slack = deadlines[active] - slot - left[active]
        late = active[slack < 0]
        for place in late.tolist():
            missed.append(chosen[later[place]])
            reservations.release(chosen[later[place]])
            left[place] = 0
        active, slack = active[slack >= 0], slack[slack >= 0]
        order = active[np.lexsort((-widths[active], slack))].tolist()
        if slot == 0:
            urgent = int((slack == 0).sum())
            state.run(order[:urgent], slot, chosen)
            missed += _run_now(reservations, [chosen[place] for place in now])
            state.run(order[urgent:], slot, chosen)
        else:
            state.run(order, slot, chosen)
    if not last:
        missed += _run_now(reservations, [chosen[place] for place in now])
    for place in np.flatnonzero(left > 0).tolist():
        missed.append(chosen[later[place]])
        reservations.release(chosen[later[place]])
    return missed


@dataclass
class _Laying:
    """Fills one slot of `lay`: runs jobs in order until no GPU is free."""

    reservations: SlotReservations
    later: list[int]
    columns: list[CompactColumn]
    left: Counts

    def run(self, order: Sequence[int], slot: int, chosen: Sequence[int]) -> None:
        reservations = self.reservations
        row = reservations.leases[slot]
        for place in order:
            if row[0] == 0:
                break
            units = self.columns[self.later[place]].option.units
            if reservations.fits(units, slot):
                reservations.take(units, slot)
                reservations.slots[chosen[self.later[place]]].append(slot)
                self.left[place] -= 1


def _run_now(reservations: SlotReservations, numbers: Sequence[int]) -> list[int]:
    return [number for number in numbers if not reservations.insert(number)]


def improve(reservations: SlotReservations, order: Sequence[int]) -> None:
    """Insert columns in order.

    A column replaces the present column of its job if it earns more, or earns the same with fewer
    GPU-leases.
    """
    program = reservations.program
    for number in order:
        column = program.columns[number]
        present = reservations.column_of.get(column.job)
        if present is None:
            reservations.insert(number)
        elif _is_better(column, program.columns[present]):
            slots = reservations.release(present)
            if not reservations.insert(number):
                reservations.reserve(present, slots)


def _is_better(column: CompactColumn, other: CompactColumn) -> bool:
    if column.reward_micro == other.reward_micro:
        return column.gpu_leases < other.gpu_leases
    return column.reward_micro > other.reward_micro


def advance(reservations: SlotReservations) -> None:
    """Move each job's last leases to earlier free slots, starting with the earliest deadline."""
    columns = reservations.program.columns
    numbers = [number for number in reservations.slots if not columns[number].is_now]
    numbers.sort(key=lambda number: (columns[number].deadline, columns[number].job))
    for slot, row in enumerate(reservations.leases):
        numbers = [
            number
            for number in numbers
            if (taken := reservations.slots[number]) and taken[-1] > slot
        ]
        for number in numbers:
            if row[0] == 0:
                break
            taken = reservations.slots[number]
            units = columns[number].option.units
            is_ready = columns[number].ready <= slot
            if is_ready and slot not in taken and reservations.fits(units, slot):
                reservations.take(units, taken.pop(), sign=1)
                reservations.take(units, slot)
                taken.append(slot)
                taken.sort()
