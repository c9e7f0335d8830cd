"""Test the rounding of shares: capacity, remainders, small gangs, and averages over many rounds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.placement.rounding import ShareRequest, deviation, round_shares

UNIT = 1_000_000
Rows = list[tuple[str, ...]]


def want(*gpus: str, gangs: tuple[int, ...] | None = None, most: int = 99) -> ShareRequest:
    wants = tuple(int(Fraction(one) * UNIT) for one in gpus)
    return ShareRequest(wants, gangs or (1,) * len(gpus), most)


class TestSingleRound:
    @pytest.mark.parametrize(
        ("wants", "capacity", "real"),
        [
            (("1", "2", "1"), 4, [1, 2, 1]),
            (("1.2", "1.5", "1.3"), 4, [1, 2, 1]),  # the largest remainder gets the GPU
            (("0.5", "0.5"), 1, [1, 0]),  # on ties the first row gets it
            (("0.25", "0.25", "0.5"), 1, [0, 0, 1]),
            (("-0.5", "1.5"), 1, [0, 1]),
            (("2", "2.4"), 3, [1, 2]),  # demands exceed the capacity
            (("3", "0"), 4, [4, 0]),  # a row without demand gets nothing
        ],
    )
    def test_gives_remaining_gpus_by_largest_remainder(
        self, wants: tuple[str, ...], capacity: int, real: list[int]
    ) -> None:
        found = round_shares([want(one) for one in wants], [capacity], UNIT)
        assert [gpus for (gpus,) in found] == real

    def test_limits_row_to_usable_gpus(self) -> None:
        rows = [want("2.5", "2.5", most=5), want("0.5", "0.5")]
        assert round_shares(rows, [3, 3], UNIT) == [(2, 3), (1, 0)]
        assert round_shares([want("0.5", most=1), want("0.2", most=2)], [8], UNIT) == [(1,), (2,)]


class TestGangs:
    def test_row_below_gang_size_passes_gpus_to_next(self) -> None:
        rows = [want("1.6", gangs=(2,)), want("1.2", gangs=(4,)), want("1.2")]
        # Rounding gives 2, 1, 1. The second row is below its gang of 4, and the third still lacks
        # 0.2.
        assert round_shares(rows, [4], UNIT) == [(2,), (0,), (2,)]

    def test_one_of_two_competing_gangs_runs(self) -> None:
        rows = [want("1", gangs=(2,)), want("1", gangs=(2,))]
        rows = [ShareRequest((2 * UNIT,), one.gangs, one.most) for one in rows]
        assert round_shares(rows, [2], UNIT) == [(2,), (0,)]

    def test_surplus_is_taken_from_rows_without_gangs(self) -> None:
        """With one GPU less, the gang could not run at all.

        So a row without a gang gets one GPU less.
        """
        rows = [want("4.5", gangs=(4,)), want("1.9"), want("1.9")]
        assert round_shares(rows, [5], UNIT) == [(4,), (1,), (0,)]

    def test_gang_does_not_mix_gpu_types(self) -> None:
        """Two GPUs of different types cannot hold a gang of 2, because a lease has one GPU type."""
        rows = [want("1", "1", gangs=(2, 2)), want("1", "1")]
        assert round_shares(rows, [2, 2], UNIT) == [(0, 0), (2, 2)]

    def test_gang_gets_no_gpus_of_unusable_type(self) -> None:
        assert round_shares([want("2", "2", gangs=(0, 1))], [4, 4], UNIT) == [(0, 4)]


def play(
    ideals: list[int], gangs: list[int], capacity: int, rounds: int
) -> tuple[list[int], list[int]]:
    """Play rounds of one GPU type as in the paper; return the sums of GPUs and the deviations."""
    devs, sums = [0] * len(ideals), [0] * len(ideals)
    for _ in range(rounds):
        rows = [
            ShareRequest((ideal + dev,), (gang,), 999)
            for ideal, dev, gang in zip(ideals, devs, gangs, strict=True)
        ]
        real = [gpus for (gpus,) in round_shares(rows, [capacity], UNIT)]
        assert sum(real) <= capacity
        for index, gpus in enumerate(real):
            assert gpus == 0 or gpus >= gangs[index]
            bound = max(gangs) * UNIT
            devs[index] = deviation(devs[index], ideals[index], gpus * UNIT, bound)
            sums[index] += gpus
    return sums, devs


def plain_shares(
    rows: Sequence[ShareRequest], capacity: Sequence[int], unit: int
) -> list[tuple[int, ...]]:
    """Apply the paper's rules as printed, which check every row for every GPU."""
    left = [row.most for row in rows]
    columns = []
    for column in reversed(range(len(capacity))):
        wants = [row.wants[column] for row in rows]
        gangs = [row.gangs[column] for row in rows]
        real = plain_division(wants, gangs, left, capacity[column], unit)
        left = [most - gpus for most, gpus in zip(left, real, strict=True)]
        columns.append(real)
    return [tuple(row) for row in zip(*reversed(columns), strict=True)]


def plain_division(
    wants: list[int], gangs: list[int], left: list[int], capacity: int, unit: int
) -> list[int]:
    every = range(len(wants))
    real = [min(max(0, wants[i] // unit), left[i]) if gangs[i] else 0 for i in every]

    def less(i: int) -> int:
        return real[i] - 1 if real[i] - 1 >= gangs[i] else 0

    while sum(real) > capacity:  # rule 1
        taken = min((wants[i] - less(i) * unit, -i) for i in every if real[i])
        real[-taken[1]] = less(-taken[1])
    out: set[int] = set()
    while True:
        while sum(real) < capacity:  # rule 2
            more = [
                (real[i] * unit - wants[i], i)
                for i in every
                if i not in out and gangs[i] and wants[i] > 0 and real[i] < left[i]
            ]
            if not more:
                break
            real[min(more)[1]] += 1
        below = [(wants[i], -i) for i in every if 0 < real[i] < gangs[i]]  # rule 3
        if not below:
            return real
        out.add(-min(below)[1])
        real[-min(below)[1]] = 0


ROW = st.builds(
    lambda wants, gangs, most: ShareRequest(
        tuple(quarters * UNIT // 4 for quarters in wants), gangs, most
    ),
    st.tuples(st.integers(-4, 24), st.integers(-4, 24)),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.integers(0, 9),
)


class TestRules:
    @given(st.lists(ROW, min_size=1, max_size=6), st.tuples(st.integers(0, 12), st.integers(0, 12)))
    def test_shares_match_plain_implementation(
        self, rows: list[ShareRequest], capacity: tuple[int, int]
    ) -> None:
        assert round_shares(rows, capacity, UNIT) == plain_shares(rows, capacity, UNIT)

    @pytest.mark.parametrize(
        ("before", "ideal", "real", "after"),
        [(2, 3, 4, 1), (2, 9, 4, 5), (-2, 1, 4, -5), (0, 0, 0, 0), (-5, 5, 0, 0)],
    )
    def test_deviation_carries_difference_within_bound(
        self, before: int, ideal: int, real: int, after: int
    ) -> None:
        assert deviation(before, ideal, real, bound=5) == after


class TestManyRounds:
    def test_two_halves_alternate_on_one_gpu(self) -> None:
        assert play([UNIT // 2, UNIT // 2], [1, 1], 1, 10)[0] == [5, 5]

    def test_gang_accumulates_share_until_it_fits(self) -> None:
        assert play([UNIT // 4, UNIT * 7 // 4], [2, 1], 2, 80)[0] == [20, 140]

    @given(
        st.lists(st.tuples(st.integers(1, 50), st.sampled_from([1, 1, 2, 4])), min_size=1,
                 max_size=6),
        st.integers(4, 16),
    )  # fmt: skip
    def test_average_stays_within_three_gangs_of_ideal(
        self, tenants: list[tuple[int, int]], capacity: int
    ) -> None:
        """The ideals use all GPUs of the type. The limit on deviations adds an error."""
        total = sum(weight for weight, _ in tenants)
        ideals = [weight * capacity * UNIT // total for weight, _ in tenants]
        ideals[0] += capacity * UNIT - sum(ideals)
        gangs = [gang for _, gang in tenants]
        rounds = 60
        sums, _ = play(ideals, gangs, capacity, rounds)
        for index, given_ in enumerate(sums):
            assert abs(rounds * ideals[index] - given_ * UNIT) <= 3 * max(gangs) * UNIT
