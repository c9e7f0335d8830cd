"""Rounding of fractional shares to whole GPUs.

Deviations are carried over, so that averages are exact.

Source: OEF (Middleware 2024), 4.3. In each round, for each GPU type, `real = round(ideal + dev)`,
then `dev += ideal - real`. All values are integers, with `unit` for one GPU, so that every machine
rounds equally.

1. A row gets the whole GPUs of its demand (`ideal + dev`). If the sum exceeds the capacity, each
   excess GPU is taken from the row that then misses the least.
2. The remaining GPUs go to the rows with the largest remainders, if they want any of the type and
   can use more.
3. A row that got less than its smallest gang is set to 0, and its GPUs go to the next largest
   remainders in the same round. Rows with the smallest demand are set to 0 first. The missing
   amount stays in the row's deviation, which grows until a gang fits.

On a tie, the earlier row comes first. Departure: the paper compares a tenant's sum over all types
with its smallest gang, because it may place a gang over several types. A lease has one GPU type, so
the comparison is made type by type
(tests/unit/core/test_rounding.py::TestGangs::test_gang_does_not_mix_gpu_types).
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class ShareRequest(NamedTuple):
    """A row of a division. Tuples have an entry per GPU type, slowest type first.

    `wants` is ideal + deviation, in units. `gangs` has the smallest gang that may run on each type,
    in GPUs; 0 if no gang may. `most` is the number of GPUs that the row can use over all types.
    """

    wants: tuple[int, ...]
    gangs: tuple[int, ...]
    most: int


def round_shares(
    rows: Sequence[ShareRequest], capacity: Sequence[int], unit: int
) -> list[tuple[int, ...]]:
    """Return whole GPUs per row and type. The sum of each type is at most its capacity.

    Rows are in the order of their ids. The fastest type is rounded first, so that a row reaches
    `most` on its fastest types.
    """
    given = [[0] * len(capacity) for _ in rows]
    left = [row.most for row in rows]
    for type_index in reversed(range(len(capacity))):
        one = _TypeDivision(rows, type_index, left, unit)
        one.take_back(capacity[type_index])
        one.give_out(capacity[type_index])
        for index, gpus in enumerate(one.real):
            given[index][type_index] = gpus
            left[index] -= gpus
    return [tuple(row) for row in given]


def deviation(before: int, ideal: int, real: int, bound: int) -> int:
    """Return `dev + ideal - real`, limited to +-`bound`. All are in units.

    The bound is the largest gang of any row, which is the most that a row gives up for a gang.
    """
    return max(-bound, min(bound, before + ideal - real))


class _TypeDivision:
    """The division of one GPU type. `real` has the whole GPUs of each row."""

    def __init__(
        self, rows: Sequence[ShareRequest], type_index: int, left: Sequence[int], unit: int
    ) -> None:
        self._wants = [row.wants[type_index] for row in rows]
        self._gangs = [row.gangs[type_index] for row in rows]
        self._left = left
        self._unit = unit
        self.real = [
            min(max(0, row.wants[type_index] // unit), left[index]) if row.gangs[type_index] else 0
            for index, row in enumerate(rows)
        ]
        self._total = sum(self.real)

    def _missing(self, index: int) -> int:
        """Return the amount that a row still wants, in units; negative if the row got more."""
        return self._wants[index] - self.real[index] * self._unit

    def take_back(self, capacity: int) -> None:
        """Take GPUs from the rows that then miss the least, until the capacity is enough."""
        heap = [self._less(index) for index, gpus in enumerate(self.real) if gpus > 0]
        heapify(heap)
        while self._total > capacity:
            _, negative, gpus = heappop(heap)
            self._total -= self.real[-negative] - gpus
            self.real[-negative] = gpus
            if gpus:
                heappush(heap, self._less(-negative))

    def _less(self, index: int) -> tuple[int, int, int]:
        """Return the sort key for taking a GPU from a row: (missing afterwards, -row, GPUs left).

        A row with fewer GPUs than its smallest gang keeps 0.
        """
        gpus = self.real[index] - 1
        if gpus < self._gangs[index]:
            gpus = 0
        return (self._wants[index] - gpus * self._unit, -index, gpus)

    def give_out(self, capacity: int) -> None:
        """Give GPUs to the largest remainders. Rows below their smallest gang return their GPUs."""
        heap = [
            (-self._missing(index), index)
            for index in range(len(self.real))
            if self._may_have_more(index)
        ]
        heapify(heap)
        # (wants, -row): the smallest demand first, on a tie the last row
        below: list[tuple[int, int]] = []
        for index in range(len(self.real)):
            self._note(index, below)
        out: set[int] = set()
        while True:
            while self._total < capacity and heap:
                _, index = heappop(heap)
                if index in out or not self._may_have_more(index):
                    continue
                self.real[index] += 1
                self._total += 1
                self._note(index, below)
                heappush(heap, (-self._missing(index), index))
            smallest = self._below(below)
            if smallest is None:
                return
            out.add(smallest)
            self._total -= self.real[smallest]
            self.real[smallest] = 0

    def _may_have_more(self, index: int) -> bool:
        if not self._gangs[index] or self._wants[index] <= 0:
            return False
        return self.real[index] < self._left[index]

    def _note(self, index: int, below: list[tuple[int, int]]) -> None:
        """Record a row with fewer GPUs than its smallest gang. The row may get more later."""
        if 0 < self.real[index] < self._gangs[index]:
            heappush(below, (self._wants[index], -index))

    def _below(self, below: list[tuple[int, int]]) -> int | None:
        while below:
            index = -heappop(below)[1]
            if 0 < self.real[index] < self._gangs[index]:
                return index
        return None
