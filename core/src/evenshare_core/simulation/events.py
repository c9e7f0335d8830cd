"""What is going to happen, in order of (instant, sequence): the simulator's only clock."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from heapq import heappush


class EventKind(IntEnum):
    """What happens at an event's instant."""

    ARRIVE = 0  # job `key` is submitted
    END = 1  # lease `key` has done its job's work, unless that end was put off meanwhile
    DUE = 2  # lease `key` expires, unless it was renewed or is over
    CANCEL = 3  # job `key` is taken back
    NODE = 4  # node `key` is lost or returns
    READY = 5  # job `key` may start from now on


class Events:
    """A heap of (instant in us, sequence, kind, key). Equal instants keep their push order."""

    __slots__ = ("_due", "_sequence", "coming")

    def __init__(self) -> None:
        self._due: deque[tuple[int, int]] = deque()
        self.coming: list[tuple[int, int, EventKind, int]] = []
        self._sequence = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is to come but expiries, which say nothing where no lease holds."""
        return not self.coming

    def push(self, at_us: int, kind: EventKind, key: int) -> None:
        """Let something happen at an instant."""
        self._sequence += 1
        heappush(self.coming, (at_us, self._sequence, kind, key))

    def push_due(self, at_us: int, lease: int) -> None:
        """Let a lease expire.

        All terms are of one length, but for those that protection prolongs: few need the heap.
        """
        if self._due and at_us < self._due[-1][0]:
            self.push(at_us, EventKind.DUE, lease)
        else:
            self._due.append((at_us, lease))

    def take_due(self, at_us: int, taken: list[int]) -> None:
        """Add the leases of `push_due` that expire up to and at `at_us` to those taken."""
        due = self._due
        while due and due[0][0] <= at_us:
            taken.append(due.popleft()[1])

    @property
    def next_us(self) -> int | None:
        """The instant of the earliest event; None when nothing is to come."""
        heap, due = self.coming, self._due
        if not due:
            return heap[0][0] if heap else None
        return min(heap[0][0], due[0][0]) if heap else due[0][0]
