"""Defragmentation: move small jobs to other nodes to make room for a gang on one node.

The functions are pure: they take free GPUs and movable leases, and return moves or None. The caller
decides which jobs may move, and accounts for the cost of a move (a checkpoint and a cold start).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evenshare_core.domain.leases import Lease

# The largest job that may move, in GPUs. Other nodes rarely have more free GPUs.
MOVABLE_GPUS = 2


class LeaseMove(NamedTuple):
    """A lease whose job continues with the same number of GPUs on another node."""

    lease: int
    gpus: int
    to_node: int


class NodeRoom(NamedTuple):
    """A node that has room for the gang after these moves."""

    node: int
    moves: tuple[LeaseMove, ...]


def make_room(
    gpus: int,
    free: Mapping[int, int],
    elsewhere: Mapping[int, int],
    movable: Mapping[int, Sequence[Lease]],
    most_moves: int,
) -> NodeRoom | None:
    """Return the node and the moves that make room on it for a gang of `gpus`, or None without any.

    `free` has the GPUs by node that the gang may use. `elsewhere` has the GPUs by node that moved
    jobs may use, for all nodes of a type. `movable` has, by node, the leases that may leave it.
    Each lease is on that node only and has at most `MOVABLE_GPUS`. The node from which the fewest
    GPUs move is chosen, on ties the one with the fewest moves, then the lowest id. Every moved
    lease must have a place on another node. At most `most_moves` leases move.
    """
    choices = []
    for node, rows in movable.items():
        needed = gpus - free.get(node, 0)
        if needed <= 0 or needed > MOVABLE_GPUS * len(rows):
            continue
        leaving = _leaving(rows, needed)
        if leaving and len(leaving) <= most_moves:
            choices.append(
                (sum(row.placement[0][1] for row in leaving), len(leaving), node, leaving)
            )
    for _, _, node, leaving in sorted(choices, key=lambda one: one[:3]):
        moves = _places(leaving, node, elsewhere)
        if moves is not None:
            return NodeRoom(node, moves)
    return None


def _leaving(rows: Sequence[Lease], needed: int) -> list[Lease]:
    """Return the fewest leases that free `needed` GPUs, without excess if possible, or []."""
    chosen: list[Lease] = []
    left = needed
    for row in sorted(rows, key=lambda row: (-row.placement[0][1], row.id)):
        if left <= 0:
            break
        chosen.append(row)
        left -= row.placement[0][1]
    if left > 0:
        return []
    if left < 0:  # the last lease frees more than needed, so a smaller one may be enough
        last = chosen.pop()
        left += last.placement[0][1]
        smaller = [
            row
            for row in rows
            if left <= row.placement[0][1] < last.placement[0][1] and row not in chosen
        ]
        chosen.append(min(smaller, key=lambda row: (row.placement[0][1], row.id), default=last))
    return chosen


def _places(
    leaving: Sequence[Lease], node: int, elsewhere: Mapping[int, int]
) -> tuple[LeaseMove, ...] | None:
    """Return the best fit on another node for each lease, larger leases first, or None."""
    others = {one: count for one, count in elsewhere.items() if count > 0 and one != node}
    moves = []
    for row in sorted(leaving, key=lambda row: (-row.placement[0][1], row.id)):
        fitting = [(count, one) for one, count in others.items() if count >= row.placement[0][1]]
        if not fitting:
            return None
        _, to_node = min(fitting)
        others[to_node] -= row.placement[0][1]
        moves.append(LeaseMove(row.id, row.placement[0][1], to_node))
    return tuple(moves)
