"""Future events by (time, sequence), which are the simulator's only clock."""

from collections import deque
from enum import IntEnum
from heapq import heappush


class EventKind(IntEnum):
    """The kind of an event."""

    ARRIVE = 0  # job `key` is submitted
    END = 1  # lease `key` completes its job's work, unless the end was postponed
    DUE = 2  # lease `key` expires, unless it was renewed or has ended
    CANCEL = 3  # job `key` is cancelled
    NODE = 4  # node `key` is lost or returns
    READY = 5  # job `key` may start from now on


class Events:
    """A heap of (time in us, sequence, kind, key). At equal times, the push order decides."""

    __slots__ = ("_due", "_sequence", "coming")

    def __init__(self) -> None:
        self._due: deque[tuple[int, int]] = deque()
        self.coming: list[tuple[int, int, EventKind, int]] = []
        self._sequence = 0

    @property
    def is_over(self) -> bool:
        """Whether only expiries remain; these have no effect if no lease is running."""
        return not self.coming

    def push(self, at_us: int, kind: EventKind, key: int) -> None:
        self._sequence += 1
        heappush(self.coming, (at_us, self._sequence, kind, key))

    def push_due(self, at_us: int, lease: int) -> None:
        """Add the expiry of a lease.

        Only a term that protection has prolonged needs the heap. All other terms have equal lengths
        and expire in push order.
        """
        if self._due and at_us < self._due[-1][0]:
            self.push(at_us, EventKind.DUE, lease)
        else:
            self._due.append((at_us, lease))

    def take_due(self, at_us: int, taken: list[int]) -> None:
        """Append to `taken` the leases from `push_due` that expire at or before `at_us`."""
        due = self._due
        while due and due[0][0] <= at_us:
            taken.append(due.popleft()[1])

    @property
    def next_us(self) -> int | None:
        """Return the instant of the earliest event; None if there is no event."""
        heap, due = self.coming, self._due
        if not due:
            return heap[0][0] if heap else None
        return min(heap[0][0], due[0][0]) if heap else due[0][0]
