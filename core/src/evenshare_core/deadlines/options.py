"""Allocations of a job as cells of a buddy system, and the job's speed on each.

Source: W. Gao et al., "UniSched", IEEE TC 2024, section III-C3, equation (8). Departures:
docs/unisched-paper.md.

Levels 0 to 3 are cells of 1, 2, 4 and 8 GPUs of one node. `phi_milli` is the speed relative to that
on the fewest nodes, in thousandths. As in Proposition 1, capacity is counted once per level.
`units[i]` is the part of the cells of level i and above that an option uses, in cells of level i.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from evenshare_core.units import ONE_MILLI

LEVELS = 4
NODE_GPUS = 8  # GPUs in a cell of the highest level
MOST_ENUMERATED = 16  # GPUs; a larger job gets only whole nodes
PHI_MILLI_MOST = 100 * ONE_MILLI

Cells: TypeAlias = tuple[int, int, int, int]  # counts of cells of levels 0 to 3


@dataclass(frozen=True, slots=True)
class CellOption:
    """An allocation of a job; with `one_node`, all of its GPUs are on one node.

    Several cells on one node are reserved as one block of the next power of two, minus its unused
    GPUs. `is_held` means that the job holds exactly these GPUs now.
    """

    cells: Cells
    gpus: int
    one_node: bool
    phi_milli: int
    is_held: bool = False

    def __post_init__(self) -> None:
        """Validate the option.

        Raises:
            ValueError: there is no cell, there are too few GPUs for the job, or the speed is not
                positive.
        """
        if len(self.cells) != LEVELS or min(self.cells) < 0 or self.gpus < 1:
            raise ValueError("cells: give four counts of at least 0, and gpus of at least 1")
        if gpus_of(self.cells) < self.gpus:
            raise ValueError(f"cells: {self.cells} are fewer GPUs than {self.gpus}")
        if not 1 <= self.phi_milli <= PHI_MILLI_MOST:
            raise ValueError(f"phi_milli: must be 1 to {PHI_MILLI_MOST}")

    @property
    def units(self) -> Cells:
        """The units that the option uses at each level, counted as in (14)."""
        if self.one_node and not self.is_held and sum(self.cells) > 1:
            return one_node_units(self.gpus)
        return units_of(self.cells)

    def leases(self, work: int) -> int:
        """Return ceil(L / phi): the leases needed for `work` leases at full speed."""
        return -(-work * ONE_MILLI // self.phi_milli)


Speed: TypeAlias = Callable[[Cells, bool], int]  # (cells, one_node) -> phi_milli


def gpus_of(cells: Cells) -> int:
    return sum(count << level for level, count in enumerate(cells))


def units_of(cells: Cells) -> Cells:
    """Return the units of a demand (left side of (14)) or of free cells (right side), by level."""
    c0, c1, c2, c3 = cells
    two = c2 + 2 * c3
    one = c1 + 2 * two
    return c0 + 2 * one, one, two, c3


def one_node_units(gpus: int) -> Cells:
    """Return the units of `gpus` on one node: the next power of two, minus its unused GPUs."""
    highest = (gpus - 1).bit_length()
    if highest >= LEVELS:
        raise ValueError(f"gpus: {gpus} do not fit one cell of {NODE_GPUS}")
    two, one = (-(-gpus // size) for size in (4, 2))
    return gpus, one if highest >= 1 else 0, two if highest >= 2 else 0, int(highest == LEVELS - 1)


def free_cells(free_gpus: Iterable[int]) -> Cells:
    """Return the free cells of nodes; for example, 6 free GPUs are a cell of 4 and one of 2."""
    total = [0] * LEVELS
    for gpus in free_gpus:
        total[3] += gpus // NODE_GPUS
        for level in range(LEVELS - 1):
            total[level] += gpus >> level & 1
    return total[0], total[1], total[2], total[3]


def quadruples(gpus: int) -> tuple[Cells, ...]:
    """Return all (c0, c1, c2, c3) of the paper's policy generator, the rounded-up cells first.

    For N up to 16 GPUs, these are all ways to write N as a sum of 1, 2, 4 and 8, and N rounded up
    to one block or to whole nodes. Above 16 GPUs, there are only whole nodes.

    Raises:
        ValueError: `gpus` is below 1.
    """
    if gpus < 1:
        raise ValueError("gpus: must be at least 1")
    if gpus > MOST_ENUMERATED:
        return ((0, 0, 0, -(-gpus // NODE_GPUS)),)
    exact = [
        (gpus - 8 * c3 - 4 * c2 - 2 * c1, c1, c2, c3)
        for c3 in range(gpus // 8, -1, -1)
        for c2 in range((gpus - 8 * c3) // 4, -1, -1)
        for c1 in range((gpus - 8 * c3 - 4 * c2) // 2, -1, -1)
    ]
    rounded = _rounded_up(gpus)
    return (*exact,) if rounded in exact else (rounded, *exact)


def _rounded_up(gpus: int) -> Cells:
    if gpus > NODE_GPUS:
        return 0, 0, 0, -(-gpus // NODE_GPUS)
    level = (gpus - 1).bit_length()
    return int(level == 0), int(level == 1), int(level == 2), int(level == 3)


def all_options(gpus: int, speed: Speed) -> tuple[CellOption, ...]:
    """Return the options of a job; `speed(cells, one_node)` returns phi in thousandths.

    Several cells that fit on a node give two options: on one node, and on several nodes.
    """
    options = []
    for cells in quadruples(gpus):
        one_cell = sum(cells) == 1
        if one_cell or gpus_of(cells) <= NODE_GPUS:
            options.append(CellOption(cells, gpus, True, speed(cells, True)))
        if not one_cell:
            options.append(CellOption(cells, gpus, False, speed(cells, False)))
    return tuple(options)


def two_speeds(gpus: int, spread_milli: int) -> Speed:
    """Return phi by equation (2), which has one speed on one node and one on several nodes.

    A job of more than 8 GPUs needs several nodes in any case, so it has one speed.
    """
    spread = ONE_MILLI if gpus > NODE_GPUS else spread_milli

    def speed(_cells: Cells, one_node: bool) -> int:
        return ONE_MILLI if one_node else spread

    return speed


def held_option(gpus_by_node: Mapping[int, int], phi_milli: int) -> CellOption:
    """Return the option that consists of exactly the GPUs that a job holds now, given by node."""
    cells = free_cells(gpus_by_node.values())
    gpus = sum(gpus_by_node.values())
    return CellOption(cells, gpus, len(gpus_by_node) == 1, phi_milli, is_held=True)


def useful_options(options: Iterable[CellOption]) -> tuple[CellOption, ...]:
    """Return the options without dominated ones.

    An option dominates another if it is as fast and uses no more units at any level. Of equal
    options, the held one is kept, then the one on one node, then the one with fewer cells.
    """
    ordered = sorted(
        options,
        key=lambda one: (
            *(-one.phi_milli, sum(one.units), one.units),
            *(not one.is_held, not one.one_node, sum(one.cells)),
        ),
    )
    kept: list[CellOption] = []
    for option in ordered:
        if not any(_takes_no_more(other.units, option.units) for other in kept):
            kept.append(option)
    return tuple(kept)


def _takes_no_more(units: Cells, others: Cells) -> bool:
    return all(mine <= theirs for mine, theirs in zip(units, others, strict=True))
