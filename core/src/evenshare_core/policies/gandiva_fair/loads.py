"""The nodes of a GPU type by ticket load, while jobs move from the most to the least loaded.

Source: Gandiva_fair (EuroSys 2020), 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

# The number of most loaded nodes that are searched for a movable job.
TRIED = 8


class LoadOrder:
    """The nodes of a type by load, while jobs move: heaps that may hold stale entries."""

    def __init__(
        self, load: Mapping[int, float], asked: Mapping[int, int], gpus: Mapping[int, int]
    ) -> None:
        """Take tickets per GPU, requested GPUs, and GPUs, by node; the mappings may change."""
        self._load, self._asked, self._gpus = load, asked, gpus
        self._least = [(tickets, node) for node, tickets in load.items()]
        self._most = [(-tickets, node) for node, tickets in load.items() if self._is_shared(node)]
        heapify(self._least)
        heapify(self._most)

    def _is_shared(self, node: int) -> bool:
        return self._asked[node] > self._gpus[node]

    def least(self) -> int:
        """Return the node of least load, on ties the lowest id."""
        while self._least[0][0] != self._load[self._least[0][1]]:
            heappop(self._least)
        return self._least[0][1]

    def most_shared(self) -> list[int]:
        """Return the first `TRIED` nodes whose jobs share time, the most loaded first."""
        loaded: dict[int, float] = {}
        while self._most and len(loaded) < TRIED:
            load, node = heappop(self._most)
            if -load == self._load[node] and self._is_shared(node):
                loaded[node] = load
        for node, load in loaded.items():
            heappush(self._most, (load, node))
        return list(loaded)

    def changed(self, *nodes: int) -> None:
        """Update nodes whose jobs have changed."""
        for node in nodes:
            load = self._load[node]
            heappush(self._least, (load, node))
            heappush(self._most, (-load, node))
