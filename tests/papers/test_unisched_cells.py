"""UniSched's options, Proposition 1 by brute force, placement of cells, and renewals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.deadlines.cells import CellDemand, place_cells
from evenshare_core.deadlines.model import SelectorProblem
from evenshare_core.deadlines.options import (
    Cells,
    all_options,
    free_cells,
    held_option,
    one_node_units,
    two_speeds,
    units_of,
    useful_options,
)
from evenshare_core.deadlines.picks import picks_now
from evenshare_core.formulations.selector import select
from evenshare_core.units import ONE_MILLI
from tests.papers.proposition_1 import fits_cells

from .selector_cases import best_effort, options


class TestOptions:
    @pytest.mark.parametrize("gpus", [1, 2, 4, 8])
    def test_friendly_jobs_try_one_node_before_single_gpus(self, gpus: int) -> None:
        rows = useful_options(options(gpus))
        assert rows[0].one_node
        assert [row.cells for row in rows[1:]] == ([(gpus, 0, 0, 0)] if gpus > 1 else [])

    def test_cells_that_fit_one_node_have_two_options(self) -> None:
        twice = [row.cells for row in options(6) if sum(row.cells) > 1]
        assert all(twice.count(cells) == 2 for cells in twice)
        assert all(not row.one_node for row in options(16))

    def test_one_node_units_are_block_minus_rest(self) -> None:
        assert one_node_units(6) == (6, 3, 2, 1)
        for gpus in range(1, 9):
            size = 1 << (gpus - 1).bit_length()
            block, rest = (units_of(free_cells([count])) for count in (size, size - gpus))
            assert one_node_units(gpus) == tuple(a - b for a, b in zip(block, rest, strict=True))

    def test_job_larger_than_node_has_one_speed(self) -> None:
        assert {row.phi_milli for row in options(12, 500)} == {ONE_MILLI}

    def test_low_phi_needs_more_leases(self) -> None:
        row = next(one for one in options(6, 800) if not one.one_node)
        assert [row.leases(work) for work in (1, 4, 5)] == [2, 5, 7]

    @given(st.integers(1, 16), st.integers(1, 1000))
    def test_dropped_options_are_dominated(self, gpus: int, phi: int) -> None:
        every = all_options(gpus, two_speeds(gpus, phi))
        kept = useful_options(every)
        assert set(kept) <= set(every)
        for row in every:
            assert any(
                other.phi_milli >= row.phi_milli
                and all(a <= b for a, b in zip(other.units, row.units, strict=True))
                for other in kept
            )


def by_brute_force(demand: list[int], free: list[int]) -> bool:
    """Return whether cells of these sizes fit nodes with these free GPUs, each on one node."""
    if not demand:
        return True
    return any(
        by_brute_force(demand[1:], [*free[:node], count - demand[0], *free[node + 1 :]])
        for node, count in enumerate(free)
        if count >= demand[0]
    )


class TestPropositionOne:
    def test_matches_brute_force_on_two_nodes(self) -> None:
        """Compare all states of two nodes of 8 GPUs, with up to 3, 2, 2, 2 cells of each size."""
        for free in product(range(0, 9, 1), repeat=2):
            for demand in product(range(4), range(3), range(3), range(3)):
                sizes = [1 << level for level in (3, 2, 1, 0) for _ in range(demand[level])]
                assert fits_cells(_cells(demand), free_cells(free)) == by_brute_force(
                    sizes, list(free)
                )

    @given(
        st.lists(st.integers(0, 8), min_size=1, max_size=5),
        st.lists(st.tuples(st.integers(1, 16), st.integers(0, 40)), max_size=8),
    )
    def test_places_all_demands_that_fit(
        self, free: list[int], asked: list[tuple[int, int]]
    ) -> None:
        demands = []
        left = units_of(free_cells(free))
        for job, (gpus, which) in enumerate(asked):
            rows = options(gpus)
            option = rows[which % len(rows)]
            if all(a <= b for a, b in zip(option.units, left, strict=True)):
                left = _cells(tuple(b - a for a, b in zip(option.units, left, strict=True)))
                demands.append(CellDemand(job, option))
        placed = place_cells(dict(enumerate(free)), demands)
        assert placed.unplaced == ()
        for demand in demands:
            row = placed.gpus[demand.job]
            assert sum(row.values()) == demand.option.gpus
            assert len(row) == 1 or not demand.option.one_node
        for node, count in enumerate(free):
            assert sum(row.get(node, 0) for row in placed.gpus.values()) <= count


def _cells(counts: tuple[int, ...]) -> Cells:
    first, second, third, fourth = counts
    return first, second, third, fourth


class TestPlacement:
    def test_uses_small_cell_before_splitting_larger(self) -> None:
        placed = place_cells({1: 8, 2: 2, 3: 4}, [CellDemand(1, options(2)[0])])
        assert placed.gpus == {1: {2: 2}}

    def test_spread_job_uses_one_node_if_it_fits(self) -> None:
        spread = next(row for row in options(6) if row.cells == (6, 0, 0, 0) and not row.one_node)
        assert place_cells({1: 2, 2: 4, 3: 7}, [CellDemand(1, spread)]).gpus == {1: {3: 6}}
        assert place_cells({1: 2, 2: 4, 3: 3}, [CellDemand(1, spread)]).gpus == {1: {2: 4, 1: 2}}


class TestRenewal:
    def test_job_keeps_its_gpus(self) -> None:
        option = options(4)[0]
        demands = [CellDemand(2, option), CellDemand(1, option, {7: 4})]
        placed = place_cells({5: 4, 7: 4}, demands)
        assert placed.gpus == {1: {7: 4}, 2: {5: 4}}

    def test_renews_six_gpus_without_free_cell_of_eight(self) -> None:
        held = held_option({3: 6}, ONE_MILLI)
        job = replace(best_effort(1, 6, 60), options=(*options(6, 500), held))
        problem = SelectorProblem([job], (free_cells([6]),))
        plan = select(problem)
        assert plan.jobs[1].option == held
        assert picks_now(problem, plan, {3: 6}, {1: {3: 6}}).gpus == {1: {3: 6}}

    def test_pinned_job_moves_if_other_would_not_fit(self) -> None:
        """Each node has two free GPUs.

        If a job took one GPU of each node, no node would fit a pair.
        """
        pair = next(row for row in options(2) if not row.one_node)
        demands = [CellDemand(1, pair, {1: 1, 2: 1}), CellDemand(2, options(2)[0])]
        placed = place_cells({1: 2, 2: 2}, demands)
        assert placed.unplaced == ()
        assert placed.gpus == {1: {2: 2}, 2: {1: 2}}

    def test_required_pin_stays_and_other_job_waits(self) -> None:
        held = held_option({1: 6}, ONE_MILLI)
        demands = [CellDemand(1, held, {1: 6}), CellDemand(2, options(8)[0])]
        placed = place_cells({1: 8, 2: 7}, demands)
        assert placed.gpus == {1: {1: 6}}
        assert placed.unplaced == (2,)

    def test_rejects_held_option_without_its_gpus(self) -> None:
        with pytest.raises(ValueError, match="held"):
            place_cells({1: 8}, [CellDemand(1, held_option({1: 6}, ONE_MILLI))])
