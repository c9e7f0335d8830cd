"""Test which nodes are kept for owners, compared with a search of all nodes for each owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.leases import Lease
from evenshare_core.policies.market.clearing import ClearingNodes

NOW_US, GPUS = 100, 8
held = st.tuples(st.integers(1, 4), st.integers(1, 9))  # (GPUs, the time until their lease ends)
pools = st.lists(st.lists(held, max_size=4), min_size=1, max_size=4)


def lease(number: int, node: int, gpus: int) -> Lease:
    return Lease(number, number, 1, "v100", ((node, gpus),), 0, 0, 1, 0, gpus, 0)


def clear_at(room: int, ends: list[tuple[int, int]], needed: int) -> int | None:
    """Return the first time at which a node has `needed` GPUs free as leases end, or None."""
    instants = [NOW_US, *sorted(NOW_US + after for _, after in ends)]
    for instant in instants:
        if room + sum(gpus for gpus, after in ends if NOW_US + after <= instant) >= needed:
            return instant
    return None


@given(pools, st.lists(st.integers(1, GPUS), max_size=6))
def test_keeps_earliest_clear_node_for_each_owner(
    pool: list[list[tuple[int, int]]], gangs: list[int]
) -> None:
    nodes = {number: ends[:] for number, ends in enumerate(pool, start=1)}
    for ends in nodes.values():
        while sum(gpus for gpus, _ in ends) > GPUS:
            ends.pop()
    borrowed = [
        (lease(number, node, gpus), NOW_US + after)
        for number, (node, gpus, after) in enumerate(
            (node, gpus, after) for node, ends in nodes.items() for gpus, after in ends
        )
    ]
    clearing = ClearingNodes([Node(node, "v100", GPUS) for node in nodes], (), borrowed, NOW_US)
    kept = dict.fromkeys(nodes, 0)
    for gpus in gangs:
        free = {node: GPUS - sum(gpus for gpus, _ in ends) for node, ends in nodes.items()}
        ranks = [
            (instant, -free[node], node)
            for node, ends in nodes.items()
            if (instant := clear_at(free[node], ends, gpus + kept[node])) is not None
        ]
        expected = min(ranks)[2] if ranks else None
        assert clearing.keep(gpus) == expected
        if expected is not None:
            kept[expected] += gpus
