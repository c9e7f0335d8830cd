"""Check UniSched's Proposition 1: cells that satisfy (14) each fit on one node."""

from evenshare_core.deadlines.options import Cells, units_of


def fits_cells(demand: Cells, free: Cells) -> bool:
    asked, there = units_of(demand), units_of(free)
    return all(mine <= theirs for mine, theirs in zip(asked, there, strict=True))
