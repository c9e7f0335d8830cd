"""Test consolidated placement: fewest nodes, best fit, and free GPUs before ended leases' GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.leases import Lease
from evenshare_core.placement.consolidated import FreeCapacity, FreeGpus, free_capacity_by_type


def least_nodes(free: dict[int, int], gpus: int) -> int:
    """Return the smallest number of nodes for the gang, found greedily by most free GPUs."""
    count, left = 0, gpus
    for size in sorted(free.values(), reverse=True):
        if left <= 0:
            break
        left -= size
        count += 1
    return count


class TestFind:
    @pytest.mark.parametrize(
        ("free", "gpus", "expected"),
        [
            # among the nodes that fit, the one with the fewest free GPUs; on ties the lowest id
            ({1: 8, 2: 4, 3: 4}, 4, ((2, 4),)),
            ({1: 8, 2: 3}, 4, ((1, 4),)),
            ({1: 3, 2: 3}, 4, None),  # the gang fits a node, so it is not split
            # the rest goes to the node with the fewest free GPUs that still fits it
            ({1: 8, 2: 8, 3: 4}, 12, ((1, 8), (3, 4))),
            ({1: 8, 2: 6, 3: 3, 4: 3}, 16, ((1, 8), (2, 6), (3, 2))),
            ({1: 8, 2: 7}, 16, None),
        ],
    )
    def test_returns_expected_placement(
        self, free: dict[int, int], gpus: int, expected: Placement | None
    ) -> None:
        assert FreeGpus(free, 8).find(gpus) == expected

    def test_spread_may_split_gang_that_fits_one_node(self) -> None:
        free = FreeGpus({1: 3, 2: 3, 3: 1}, 8)
        assert free.find(4, spread=True) == ((1, 3), (3, 1))
        assert free.find(8, spread=True) is None

    @given(st.lists(st.integers(0, 8), min_size=1, max_size=8), st.data())
    def test_uses_fewest_nodes_within_free_gpus(
        self, counts: list[int], data: st.DataObject
    ) -> None:
        free = FreeGpus(dict(enumerate(counts)), 8)
        given_back: list[Placement] = []
        for _ in range(data.draw(st.integers(1, 10))):
            gpus, spread = data.draw(st.integers(1, 24)), data.draw(st.booleans())
            placement = free.find(gpus, spread=spread)
            assert (placement is not None) == free.fits(gpus, spread=spread)
            if placement is None:
                one_node = gpus <= 8 and not spread
                assert (max(free.free.values()) if one_node else free.total) < gpus
                continue
            assert sum(count for _, count in placement) == gpus
            assert all(0 < count <= free.free[node] for node, count in placement)
            assert len(placement) == least_nodes(free.free, gpus)
            free.take(placement)
            given_back.append(placement)
            if data.draw(st.booleans()):
                free.give(given_back.pop())
            assert free.total == sum(free.free.values())
            assert free.largest_free() == max(free.free.values())

    def test_take_rejects_gpus_that_are_not_free(self) -> None:
        with pytest.raises(ValueError, match="node 1"):
            FreeGpus({1: 3}, 8).take(((1, 4),))


def free_capacity(
    gpus: dict[int, int], kept: dict[int, int], ended: dict[int, int]
) -> FreeCapacity:
    return FreeCapacity(gpus, kept, ended)


class TestFreeCapacity:
    def test_uses_free_gpus_before_those_of_ended_leases(self) -> None:
        a = free_capacity({1: 8, 2: 8}, {}, {1: 4})
        assert a.place(4) == ((1, 4),)  # the free half of node 1, not the GPUs of the ended lease
        assert a.renew(((1, 4),))

    def test_uses_ended_leases_only_if_needed(self) -> None:
        a = free_capacity({1: 8}, {}, {1: 8})
        assert a.place(4) == ((1, 4),)
        assert not a.renew(((1, 8),))  # the gang took some of this lease's GPUs
        assert a.unheld.total == 4  # no other job takes the rest of the lease's GPUs

    def test_dropped_lease_frees_its_gpus(self) -> None:
        a = free_capacity({1: 8}, {1: 2}, {1: 6})
        assert a.unheld.total == 0
        a.drop(((1, 6),))
        assert a.unheld.total == 6

    def test_does_not_renew_on_drained_node(self) -> None:
        assert not free_capacity({1: 0, 2: 8}, {}, {1: 4}).renew(((1, 4),))

    def test_adds_up_gpus_held_back_on_node(self) -> None:
        a = free_capacity({1: 8}, {}, {})
        a.hold_back(((1, 3),))
        a.hold_back(((1, 2),))
        assert a.held_back == {1: 5}
        assert a.would_fit_unheld(8)

    def test_held_back_gpus_are_not_available(self) -> None:
        a = free_capacity({1: 8, 2: 8}, {2: 4}, {1: 8})
        a.hold_back(((1, 6),))
        assert a.held_back == {1: 6}
        assert (a.available.total, a.unheld.total) == (6, 4)
        assert not a.renew(((1, 8),))
        assert a.would_fit_unheld(8)
        assert not a.would_fit_unheld(13)

    def test_counts_leases_per_type_by_expiry(self) -> None:
        def lease(number: int, node: int, expires_us: int, protected_us: int = 0) -> Lease:
            return Lease(
                number, number, 1, "a", ((node, 2),), 0, expires_us, 1, 2, 0, 0, protected_us
            )

        found = free_capacity_by_type(
            [Node(1, "a", 8), Node(2, "b", 4)],
            [lease(1, 1, 10), lease(2, 1, 11), lease(3, 1, 10, 20), lease(4, 9, 10)],
            at_us=10,
        )
        assert (found["a"].available.total, found["a"].unheld.total) == (4, 2)
        assert found["b"].available.total == 4
