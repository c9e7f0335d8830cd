"""Local search that improves a plan by moving leases and by replacing jobs for more reward.

Its limit is a number of checks of (14) instead of a time, so the same input always gives the same
plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from evenshare_core.deadlines.options import Cells
from evenshare_core.deadlines.reserve import SlotReservations

KICKS = 400  # how often some jobs are removed at random and placed again
MOST_OUT = 4  # maximum number of jobs that are removed at a time
DEPTH = 2  # maximum number of chained moves to make room for one lease


@dataclass
class Repair:
    """A search that improves reservations until `effort` checks are spent."""

    reservations: SlotReservations
    effort: int
    # column, from slot, to slot
    _moves: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, order: Sequence[int], most_micro: int) -> None:
        """Place columns in order and replace jobs; then remove some at random and repeat.

        The search ends when the reward reaches `most_micro`, or when the effort is spent.
        """
        state = self.reservations
        self._climb(order, most_micro)
        chance = Random(0)  # noqa: S311 - the same on every run; nothing is secret
        shuffled = list(order)
        for _ in range(KICKS):
            if self.effort <= 0 or state.reward_micro >= most_micro:
                return
            saved, before = state.saved(), state.reward_micro
            placed = sorted(state.slots)
            for number in chance.sample(placed, min(len(placed), chance.randint(1, MOST_OUT))):
                state.release(number)
            chance.shuffle(shuffled)
            self._climb(shuffled, most_micro)
            if state.reward_micro < before:
                state.restore(saved)
                self._moves.clear()

    def _climb(self, order: Sequence[int], most_micro: int) -> None:
        state = self.reservations
        for number in order:
            if self.effort <= 0 or state.reward_micro >= most_micro:
                return
            self._better(number)
        while self.effort > 0 and state.reward_micro < most_micro:
            if not any(self._trade(number, order) for number in order):
                return

    def _better(self, number: int) -> bool:
        state = self.reservations
        present = self._present(number)
        if self._gain(number) <= 0:
            return False
        slots = None if present is None else state.release(present)
        if self._place(number):
            return True
        if present is not None and slots is not None:
            state.reserve(present, slots)
        return False

    def _present(self, number: int) -> int | None:
        columns = self.reservations.program.columns
        return self.reservations.column_of.get(columns[number].job)

    def _gain(self, number: int) -> int:
        columns = self.reservations.program.columns
        present = self._present(number)
        return columns[number].reward_micro - (
            0 if present is None else columns[present].reward_micro
        )

    def _place(self, number: int) -> bool:
        """Reserve a column's leases; if too few slots fit, move other leases."""
        state = self.reservations
        column = state.program.columns[number]
        units, is_now = column.option.units, column.is_now
        slots = [0] if is_now else list(range(column.deadline - 1, column.ready - 1, -1))
        self.effort -= len(slots)
        fitting = [slot for slot in slots if state.fits(units, slot, is_now=is_now)]
        fitting = fitting[: column.leases]
        state.reserve(number, sorted(fitting))
        if len(fitting) == column.leases:
            return True
        began = len(self._moves)
        for slot in slots:
            if slot in fitting or not self._make_room(units, slot, number, (), is_now=is_now):
                continue
            state.take(units, slot, is_now=is_now)
            state.slots[number] = sorted([*state.slots[number], slot])
            if len(state.slots[number]) == column.leases:
                return True
        state.release(number)
        self._undo(began)
        return False

    def _make_room(
        self, units: Cells, slot: int, mover: int, blocked: tuple[int, ...], *, is_now: bool = False
    ) -> bool:
        """Move other jobs' leases out of a slot, one after the other, until `units` fit.

        `blocked` has the slots that this chain of moves is emptying; no lease may move to them.
        """
        state = self.reservations
        columns = state.program.columns
        began = len(self._moves)
        others = [
            number
            for number, slots in state.slots.items()
            if slot in slots and number != mover and not columns[number].is_now
        ]
        others.sort(key=lambda number: columns[number].option.units[::-1], reverse=True)
        for other in others:
            if self.effort <= 0:
                break
            if self._move(other, slot, mover, (*blocked, slot)) and state.fits(
                units, slot, is_now=is_now
            ):
                return True
        self._undo(began)
        return False

    def _move(self, other: int, slot: int, mover: int, blocked: tuple[int, ...]) -> bool:
        """Move one lease to a slot where it fits, or where other leases can make room for it."""
        state = self.reservations
        column = state.program.columns[other]
        theirs, taken = column.option.units, state.slots[other]
        free = [
            place
            for place in range(column.ready, column.deadline)
            if place not in (*taken, *blocked)
        ]
        self.effort -= 1 + len(free)
        to = next((place for place in free if state.fits(theirs, place)), None)
        if to is None and len(blocked) < DEPTH:
            to = next(
                (place for place in free if self._make_room(theirs, place, mover, blocked)), None
            )
        if to is None or slot not in state.slots[other] or to in state.slots[other]:
            return False
        self._shift(other, slot, to)
        self._moves.append((other, slot, to))
        return True

    def _shift(self, number: int, slot: int, to: int) -> None:
        state = self.reservations
        units = state.program.columns[number].option.units
        state.take(units, slot, sign=1)
        state.take(units, to)
        slots = [place for place in state.slots[number] if place != slot]
        state.slots[number] = sorted([*slots, to])

    def _undo(self, began: int) -> None:
        while len(self._moves) > began:
            number, slot, to = self._moves.pop()
            self._shift(number, to, slot)

    def _trade(self, number: int, order: Sequence[int]) -> bool:
        """Replace another job by this column and fill the freed room, if the reward rises."""
        state = self.reservations
        gain = self._gain(number)
        if gain <= 0 or self.effort <= 0:
            return False
        columns = state.program.columns
        mine = columns[number].job
        before = state.reward_micro
        victims = [other for other in state.slots if columns[other].job != mine]
        victims.sort(key=lambda other: (columns[other].reward_micro, -len(state.slots[other])))
        for victim in victims:
            if self.effort <= 0:
                return False
            saved = state.saved()
            state.release(victim)
            if self._better(number):
                self._refill(columns[victim].job, order, before + gain)
                if state.reward_micro > before:
                    return True
            state.restore(saved)
            self._moves.clear()
        return False

    def _refill(self, job: int, order: Sequence[int], most_micro: int) -> None:
        """Place the replaced job again, then any other, until `most_micro` is reached."""
        state = self.reservations
        columns = state.program.columns
        theirs = [number for number in order if columns[number].job == job]
        for number in (*theirs, *order):
            if state.reward_micro >= most_micro or self.effort <= 0:
                return
            if number not in state.slots:
                self._better(number)
