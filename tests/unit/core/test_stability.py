"""Test exchanges of places, which avoid unnecessary moves and change nothing else."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.decision import Grant, Key
from evenshare_core.domain.leases import Lease
from evenshare_core.placement.stability import keep_placements

KEY = Key(None, None)


def grant(order: int, job: int, *places: tuple[int, int]) -> Grant:
    return Grant(order, job, 1, "v100", places, KEY)


def lease(job: int, *places: tuple[int, int]) -> Lease:
    return Lease(100 + job, job, 1, "v100", places, 0, 10, 1, 0, 0, 0)


class TestKeepPlacements:
    def test_swaps_placements_of_two_picks(self) -> None:
        grants, renewals = keep_placements(
            [grant(1, 1, (7, 2)), grant(2, 2, (8, 2))], [], [lease(2, (7, 2))]
        )
        assert grants == [grant(1, 1, (8, 2))]
        assert [(renewal.order, renewal.lease) for renewal in renewals] == [(2, 102)]

    def test_moves_small_jobs_to_placement_of_large_job(self) -> None:
        small = [grant(i, i, (7, 1)) for i in (1, 2, 3, 4)]
        grants, renewals = keep_placements([*small, grant(5, 5, (8, 4))], [], [lease(5, (7, 4))])
        assert {one.placement for one in grants} == {((8, 1),)}
        assert [renewal.job for renewal in renewals] == [5]

    def test_keeps_two_jobs_that_swapped_placements(self) -> None:
        grants, renewals = keep_placements(
            [grant(1, 1, (8, 2)), grant(2, 2, (7, 2))], [], [lease(1, (7, 2)), lease(2, (8, 2))]
        )
        assert grants == []
        assert {renewal.job for renewal in renewals} == {1, 2}

    def test_job_moves_if_larger_gang_took_its_gpus(self) -> None:
        picks = [grant(1, 1, (7, 8)), grant(2, 2, (8, 1))]
        assert keep_placements(picks, [], [lease(2, (7, 1))]) == (picks, [])

    def test_does_not_change_gangs_over_several_nodes(self) -> None:
        picks = [grant(1, 1, (7, 8)), grant(2, 2, (8, 8), (9, 8))]
        assert keep_placements(picks, [], [lease(2, (7, 8), (9, 8))]) == (picks, [])


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Grant], list[Lease]]:
    """Return random single-node picks on a few nodes; some of their jobs held a lease."""
    picks, leases = [], []
    for job in range(1, draw(st.integers(1, 14)) + 1):
        gpus = draw(st.sampled_from((1, 1, 1, 2, 4, 8)))
        picks.append(grant(job, job, (draw(st.integers(1, 4)), gpus)))
        if draw(st.booleans()):
            leases.append(lease(job, (draw(st.integers(1, 4)), gpus)))
    return picks, leases


@given(rounds())
def test_keeps_use_per_node_and_set_of_picks(case: tuple[list[Grant], list[Lease]]) -> None:
    picks, leases = case
    grants, renewals = keep_placements(picks, [], leases)
    before: Counter[int] = Counter()
    after: Counter[int] = Counter()
    for pick in picks:
        before.update(dict(pick.placement))
    for pick in grants:
        after.update(dict(pick.placement))
    homes = {one.id: one.placement for one in leases}
    for renewal in renewals:
        after.update(dict(homes[renewal.lease]))
    assert before == after
    picked = sorted((pick.order, pick.job) for pick in picks)
    kept = [(one.order, one.job) for one in grants] + [(one.order, one.job) for one in renewals]
    assert sorted(kept) == picked


@given(rounds())
def test_is_independent_of_lease_order(case: tuple[list[Grant], list[Lease]]) -> None:
    picks, leases = case
    assert keep_placements(picks, [], leases) == keep_placements(picks, [], leases[::-1])
