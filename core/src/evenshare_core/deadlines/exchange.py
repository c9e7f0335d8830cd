"""Exchange of slots: shorter jobs first, if their plans allow it.

`lay` runs jobs by least slack. In a crowded pool all of them then take turns and end at their
deadlines, and a job that takes longer than estimated is late. A job with less work left can
exchange its last slot for another job's slot 0, and both keep their deadlines. A best-effort job
gives slot 0 up without an exchange.
"""

from __future__ import annotations

from collections.abc import Collection

from evenshare_core.deadlines.reserve import SlotReservations


def shortest_now(reservations: SlotReservations, first: Collection[int]) -> None:
    """Give slot 0 to jobs of `first` with fewer GPU-leases left, for their last slot."""
    columns, slots = reservations.program.columns, reservations.slots
    problem = reservations.program.problem
    left = {number: _gpu_leases(reservations, number) for number in slots}
    begun = [number for number in slots if slots[number] and slots[number][0] == 0]
    begun.sort(key=lambda number: (-left[number], columns[number].job))
    waiting = [
        number
        for number, taken in slots.items()
        if taken
        and taken[0]
        and not columns[number].ready
        and problem.jobs[columns[number].job].id in first
    ]
    waiting.sort(key=lambda number: (left[number], columns[number].job))
    for number in waiting:
        longer = [other for other in begun if left[other] > left[number]]
        for other in _exchanged(reservations, number, longer):
            begun.remove(other)


def _gpu_leases(reservations: SlotReservations, number: int) -> int:
    """Return the total work left of a column's job, in GPUs times leases."""
    problem, column = reservations.program.problem, reservations.program.columns[number]
    job = problem.jobs[column.job]
    if column.is_now:
        lease_us = problem.slot_us * problem.slots
        return -(-job.remaining_us // lease_us) * column.option.units[0]
    return column.option.leases(job.steps[column.step].leases) * column.option.units[0]


def _exchanged(reservations: SlotReservations, number: int, longer: list[int]) -> list[int]:
    """Give a column slot 0 instead of longer ones; return the columns that gave it up."""
    columns, slots = reservations.program.columns, reservations.slots
    before = reservations.saved()
    units, last = columns[number].option.units, slots[number][-1]
    reservations.take(units, last, sign=1)
    gave = []
    for other in longer:
        if reservations.fits(units, 0):
            break
        column = columns[other]
        if column.is_now:
            reservations.release(other)
        elif last < column.deadline and last not in slots[other]:
            if not reservations.fits(column.option.units, last):
                continue
            reservations.take(column.option.units, 0, sign=1)
            reservations.take(column.option.units, last)
            slots[other] = sorted([*slots[other][1:], last])
        else:
            continue
        gave.append(other)
    if not reservations.fits(units, 0):
        reservations.restore(before)
        return []
    reservations.take(units, 0)
    slots[number] = [0, *slots[number][:-1]]
    return gave
