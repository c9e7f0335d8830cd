"""Placement of cells on nodes by the construction that proves Proposition 1.

Source: W. Gao et al., "UniSched", IEEE TC 2024, section III-C4, (14).

A node's free GPUs are treated as cells: 6 GPUs are a cell of 4 and a cell of 2. Cells are placed
from the largest level down, and a node with room at a level takes just one cell of it. So the
construction never fails if (14) holds. Jobs that renew are placed first on the GPUs that they hold,
and this can break the rule. In that case, only jobs whose option requires their held GPUs keep
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenshare_core.deadlines.options import LEVELS, CellOption

GpusByNode = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CellDemand:
    """A job that starts now, its option, and the GPUs by node that it holds if it is renewed."""

    job: int
    option: CellOption
    held: Mapping[int, int] = field(default_factory=dict)

    @property
    def can_keep(self) -> bool:
        """Whether its held GPUs satisfy the option: the same count, on one node if required."""
        enough = sum(self.held.values()) == self.option.gpus
        return enough and (len(self.held) == 1 or not self.option.one_node)


@dataclass(frozen=True, slots=True)
class CellPlacement:
    """GPUs by node for each job; `unplaced` jobs wait, because renewed jobs kept their cells."""

    gpus: Mapping[int, GpusByNode]
    unplaced: tuple[int, ...]


def place_cells(free_gpus: Mapping[int, int], demands: Sequence[CellDemand]) -> CellPlacement:
    """Place the jobs that start now; renewed jobs keep their GPUs if all jobs fit that way.

    `free_gpus` are by node, including those of renewed jobs. Jobs are served in the given order. A
    job that may be spread gets the fewest possible nodes.

    Raises:
        ValueError: a job is given twice, or has a held option without the GPUs for it.
    """
    if len({demand.job for demand in demands}) < len(demands):
        raise ValueError("demands: give each job once")
    if any(demand.option.is_held and not demand.can_keep for demand in demands):
        raise ValueError("held: a held option needs the GPUs that the job has")
    placed = _place(free_gpus, demands, [demand for demand in demands if demand.can_keep])
    if placed.unplaced:
        only = [demand for demand in demands if demand.option.is_held]
        without = _place(free_gpus, demands, only)
        if len(without.unplaced) < len(placed.unplaced):
            return without
    return placed


def _place(
    free_gpus: Mapping[int, int], demands: Sequence[CellDemand], pinned: Sequence[CellDemand]
) -> CellPlacement:
    nodes = _FreeNodes(dict(sorted(free_gpus.items())))
    gpus: dict[int, dict[int, int]] = {}
    unplaced = []
    for demand in pinned:
        if nodes.has(demand.held):
            gpus[demand.job] = dict(sorted(demand.held.items()))
            for node, count in demand.held.items():
                nodes.free[node] -= count
        else:
            unplaced.append(demand.job)
    done = {demand.job for demand in pinned}
    rest = [demand for demand in demands if demand.job not in done]
    for level in range(LEVELS - 1, -1, -1):
        for demand in rest:
            row = gpus.setdefault(demand.job, {})
            if demand.job not in unplaced and not nodes.serve(demand.option, level, row):
                unplaced.append(demand.job)
                nodes.give_back(row)
    return CellPlacement(
        {job: row for job, row in gpus.items() if job not in unplaced}, tuple(unplaced)
    )


@dataclass
class _FreeNodes:
    free: dict[int, int]

    def has(self, held: GpusByNode) -> bool:
        return all(self.free.get(node, 0) >= count for node, count in held.items())

    def give_back(self, row: dict[int, int]) -> None:
        for node, count in row.items():
            self.free[node] += count
        row.clear()

    def serve(self, option: CellOption, level: int, row: dict[int, int]) -> bool:
        """Place the cells of an option at one level; return False if a cell has no node."""
        able = [node for node, count in self.free.items() if count >= 1 << level]
        if option.one_node:
            if level != (option.gpus - 1).bit_length():
                return True
            able = [node for node, count in self.free.items() if count >= option.gpus]
            if able:
                self._take(
                    min(able, key=lambda one: self._waste(one, option.gpus)), option.gpus, row
                )
            return bool(able)
        for _ in range(option.cells[level]):
            able = [node for node in able if self.free[node] >= 1 << level]
            if not able:
                return False
            need = option.gpus - sum(row.values())
            node = min(able, key=lambda one: (one not in row, *self._nearness(one, need)))
            self._take(node, min(need, 1 << level), row)
        return True

    def _take(self, node: int, gpus: int, row: dict[int, int]) -> None:
        self.free[node] -= gpus
        row[node] = row.get(node, 0) + gpus

    def _waste(self, node: int, gpus: int) -> tuple[bool, int, int]:
        """Return a sort key: first nodes where no larger cell is split, then fewest free GPUs."""
        count, larger = self.free[node], 1 << gpus.bit_length()
        return count // larger != (count - gpus) // larger, count, node

    def _nearness(self, node: int, need: int) -> tuple[bool, int, int]:
        """Return a sort key: the smallest node with room for all GPUs, or else the largest node."""
        count = self.free[node]
        return count < need, count if count >= need else -count, node
