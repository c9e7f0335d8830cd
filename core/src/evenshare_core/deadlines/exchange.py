"""Exchanges slots so that shorter jobs run first, while every job still meets its deadline.

`lay` runs jobs by least slack. In a crowded pool, all jobs then take turns and end just at their
deadlines, so a job that takes longer than estimated is late. Here, a job with less work left
exchanges its last slot for another job's slot 0, and both still meet their deadlines. A best-effort
job gives up slot 0 and gets no other slot.
"""

from collections.abc import Collection

from evenshare_core.deadlines.reserve import SlotReservations


def shortest_now(reservations: SlotReservations, first: Collection[int]) -> None:
    """Allow jobs in `first` to give their last slot for slot 0 of jobs with more work left."""
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
    """Take slot 0 from longer jobs for a column; return the columns that gave it up."""
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
