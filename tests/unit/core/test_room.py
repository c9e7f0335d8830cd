"""Test the last moment at which a gang would have fitted, and how limits change it."""

from __future__ import annotations

import random

import pytest

from evenshare_core.domain.cluster import Placement
from evenshare_core.fairness.room import PickedTerm, Room


def pick(order: int, *placement: tuple[int, int], renewed: bool = False) -> PickedTerm:
    gpus = sum(count for _, count in placement)
    return PickedTerm(order, order, 1, "v100", gpus, placement, "", is_renewal=renewed)


class TestRoom:
    def test_returns_last_moment_at_which_gang_fits(self) -> None:
        """Two nodes have 4 free GPUs each.

        The picks take two GPUs, then four, then one, so one is left.
        """
        terms = [pick(1, (1, 2)), pick(2, (2, 4)), pick(3, (1, 1))]
        room = Room((4, 4), {1: 4, 2: 4}, terms)
        assert room.end == 4
        # A gang of four fits before the second pick, a gang of two before the third.
        assert [room.last(gpus) for gpus in (1, 2, 3, 4)] == [4, 3, 2, 2]
        # A gang over several nodes needs enough free GPUs in total: there are 8, 6, 2, then 1.
        assert [room.last(gpus) for gpus in (5, 6, 7, 8, 9)] == [2, 2, 1, 1, 0]
        assert (room.fits_at_start(8), room.fits_at_start(9)) == (True, False)

    def test_spread_gangs_use_total_of_free_gpus(self) -> None:
        room = Room((4, 4), {1: 2, 2: 2}, [pick(1, (1, 1))], spread=True)
        assert [room.last(gpus) for gpus in (1, 3, 4, 5)] == [2, 2, 1, 0]

    def test_subtracts_withdrawn_gpus_from_every_node(self) -> None:
        """After the round, the nodes have 4 and 2 free GPUs.

        During the picks, a term that was withdrawn later held two of them.
        """
        free = {1: 4, 2: 2}
        assert [Room((4, 4), free, []).last(gpus) for gpus in (2, 3, 4)] == [1, 1, 1]
        room = Room((4, 4), free, [], withdrawn=2)
        assert [room.last(gpus) for gpus in (2, 3, 4)] == [1, 0, 0]

    def test_is_lower_bound_if_renewal_may_have_moved(self) -> None:
        """The renewed job may have been on node 2 first, and the granted job on node 1."""
        terms = [pick(1, (2, 2)), pick(2, (1, 2), renewed=True), pick(3, (3, 4))]
        room = Room((2, 2, 4), {1: 2, 2: 2, 3: 4}, terms)
        # The third pick took four GPUs of one node, so at least four were free there before.
        assert [room.last(gpus) for gpus in (1, 2, 3, 4)] == [3, 3, 3, 3]

    @pytest.mark.parametrize("seed", range(30))
    def test_matches_free_gpus_pick_by_pick(self, seed: int) -> None:
        """The expected result comes from the nodes' free GPUs after each pick."""
        rng = random.Random(seed)  # noqa: S311 - a seeded case, not a secret
        free = {node: rng.randint(0, 8) for node in range(1, 6)}
        left, states, terms = dict(free), [dict(free)], []
        for order in range(1, 12):
            node = rng.choice([*left])
            if not left[node]:
                continue
            place: Placement = ((node, rng.randint(1, left[node])),)
            left[node] -= place[0][1]
            terms.append(pick(order, *place))
            states.append(dict(left))
        room = Room([8] * 5, free, terms)
        for gpus in range(1, 9):
            fits = [max(state.values()) >= gpus for state in states]
            assert room.last(gpus) == sum(fits)
        for gpus in range(9, 41):
            assert room.last(gpus) == sum(sum(state.values()) >= gpus for state in states)
