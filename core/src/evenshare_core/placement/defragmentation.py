"""Room for a gang that fits by count and on no node: move small jobs to other nodes.

Pure: free GPUs and jobs that may be moved go in, moves come out, or None. What a move costs (a
checkpoint and a cold start) and who may be moved at all is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evenshare_core.domain.leases import Lease

# A job with more GPUs is not moved: so many GPUs of one node are seldom free elsewhere.
MOVABLE_GPUS = 2


class LeaseMove(NamedTuple):
    """A lease whose job goes on with as many GPUs of another node."""

    lease: int
    gpus: int
    to_node: int


class NodeRoom(NamedTuple):
    """A node that has room for the gang once these leases have moved."""

    node: int
    moves: tuple[LeaseMove, ...]


def make_room(
    gpus: int,
    free: Mapping[int, int],
    elsewhere: Mapping[int, int],
    movable: Mapping[int, Sequence[Lease]],
    most_moves: int,
) -> NodeRoom | None:
    """Return the node and the moves that make room on it for a gang of `gpus`; None without.

    `free`: GPUs by node that the gang may have; `elsewhere`: those that a moved job may have, of
    all nodes of a type. `movable`: by node, the leases that may leave it, each on that node alone
    and of at most `MOVABLE_GPUS`. The node is the one from which the fewest GPUs move, then with
    the fewest moves, then with the lowest id, of those whose leases all have a place elsewhere. At
    most `most_moves` leases move, and none to the node that is cleared.
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
    """The fewest leases that free so many GPUs, and no more of them than must be; [] if too few."""
    chosen: list[Lease] = []
    left = needed
    for row in sorted(rows, key=lambda row: (-row.placement[0][1], row.id)):
        if left <= 0:
            break
        chosen.append(row)
        left -= row.placement[0][1]
    if left > 0:
        return []
    if left < 0:  # the last one gives more than is needed: a smaller one may do
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
    """Best fit on the other nodes, larger leases first; None where one has no place."""
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
