"""Nodes of a GPU type ordered by ticket load, updated while jobs move.

Source: Gandiva_fair (EuroSys 2020), 3.5.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

# A job to move is searched for on this number of most loaded nodes.
TRIED = 8


class LoadOrder:
    """The nodes of a type by load, in heaps that may contain stale entries."""

    def __init__(
        self, load: Mapping[int, float], asked: Mapping[int, int], gpus: Mapping[int, int]
    ) -> None:
        """Keep references to tickets per GPU, requested GPUs, and GPUs, by node.

        Their values may change later.
        """
        self._load, self._asked, self._gpus = load, asked, gpus
        self._least = [(tickets, node) for node, tickets in load.items()]
        self._most = [(-tickets, node) for node, tickets in load.items() if self._is_shared(node)]
        heapify(self._least)
        heapify(self._most)

    def _is_shared(self, node: int) -> bool:
        return self._asked[node] > self._gpus[node]

    def least(self) -> int:
        """Return the least loaded node; on a tie, the one with the lowest id."""
        while self._least[0][0] != self._load[self._least[0][1]]:
            heappop(self._least)
        return self._least[0][1]

    def most_shared(self) -> list[int]:
        """Return the `TRIED` most loaded nodes of those whose jobs share GPUs in turns."""
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
