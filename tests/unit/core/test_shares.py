"""Test shares under all rules: formulations agree, promises hold, errors name the invalid field."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.formulations import oef_cooperative, oef_fast, oef_highs, shares
from evenshare_core.formulations.problems import (
    Array,
    ShareError,
    ShareProblem,
    ShareRule,
    SolverError,
    virtual_tenants,
)
from evenshare_core.formulations.shares import BACKENDS, solve_shares

CHECKS = ("highs", "ortools", "pyomo")
PROGRAMS = (
    ShareRule.NONCOOPERATIVE,
    ShareRule.COOPERATIVE,
    ShareRule.GAVEL,
    ShareRule.MAX_EFFICIENCY,
)


def problem(
    seed: int, tenants: int = 5, types: int = 3, *, weighted: bool = True, capped: bool = False
) -> ShareProblem:
    chance = np.random.default_rng(seed)
    faster = np.cumsum(chance.uniform(0, 3, (tenants, types - 1)), axis=1)
    some = chance.uniform(size=tenants) < 0.4
    return ShareProblem(
        np.hstack([np.ones((tenants, 1)), 1 + faster]),
        chance.integers(1, 9, types).astype(float),
        chance.integers(1, 4, tenants).astype(float) if weighted else None,
        np.where(some, chance.integers(0, 5, tenants), np.inf) if capped else None,
    )


def ask(speedups: Any, capacity: Any, weights: Any = None, caps: Any = None) -> ShareProblem:
    return ShareProblem(speedups, capacity, weights, caps)


def envy(asked: ShareProblem, found: Array) -> Array:
    seen = asked.speedups @ (found / asked.pi[:, None]).T
    return np.asarray(seen - seen.diagonal()[:, None])


class TestFormulations:
    @pytest.mark.parametrize("backend", CHECKS)
    @pytest.mark.parametrize("rule", PROGRAMS)
    @pytest.mark.parametrize("capped", [False, True], ids=["free", "capped"])
    def test_backends_agree_with_fast_backend(
        self, rule: ShareRule, backend: str, capped: bool
    ) -> None:
        for seed in range(8):
            asked = problem(seed, capped=capped)
            fast, other = (solve_shares(asked, rule, name) for name in ("fast", backend))
            assert (fast.fallback, other.fallback) == ("", "")
            assert fast.total == pytest.approx(other.total, rel=1e-6)
            if rule is ShareRule.MAX_EFFICIENCY and capped:
                continue  # On the slowest type all speeds are equal, so several shares are optimal.
            np.testing.assert_allclose(fast.throughputs, other.throughputs, rtol=1e-6, atol=1e-7)

    def test_agree_for_ordered_ratios_and_missing_types(self) -> None:
        for seed in range(30):
            chance = np.random.default_rng(seed)
            ratios = np.sort(chance.uniform(1, 2, (7, 3)), axis=0)
            speedups = np.hstack([np.ones((7, 1)), np.cumprod(ratios, axis=1)])
            asked = ask(
                chance.permutation(speedups),
                chance.integers(0, 4, 4) + np.array([0, 1, 0, 0]),
                chance.uniform(1, 3, 7),
            )
            for rule in (ShareRule.NONCOOPERATIVE, ShareRule.COOPERATIVE, ShareRule.GAVEL):
                fast, full = (solve_shares(asked, rule, name) for name in ("fast", "highs"))
                np.testing.assert_allclose(fast.throughputs, full.throughputs, rtol=1e-6)

    @pytest.mark.parametrize("rule", [ShareRule.COOPERATIVE, ShareRule.NONCOOPERATIVE])
    def test_agree_for_many_tenants(self, rule: ShareRule) -> None:
        """With more tenants than `SMALL`, a sample of them is solved first."""
        asked = problem(3, tenants=100, types=4)
        fast, full = (solve_shares(asked, rule, name) for name in ("fast", "highs"))
        by = {ShareRule.COOPERATIVE: "fast", ShareRule.NONCOOPERATIVE: "ortools"}
        assert (fast.backend, full.backend) == (by[rule], "highs")
        np.testing.assert_allclose(fast.throughputs, full.throughputs, rtol=1e-6)

    def test_price_equals_gain_of_additional_gpu(self) -> None:
        for rule in (ShareRule.NONCOOPERATIVE, ShareRule.COOPERATIVE, ShareRule.MAX_EFFICIENCY):
            asked = problem(5)
            found = solve_shares(asked, rule)
            assert found.prices is not None
            for kind, price in enumerate(found.prices):
                more = asked.capacity + 1e-3 * (np.arange(3) == kind)
                grown = solve_shares(ask(asked.speedups, more, asked.pi), rule)
                assert (grown.total - found.total) / 1e-3 == pytest.approx(price, rel=1e-3)

    @pytest.mark.parametrize("order", list(permutations(["highs", "ortools", "pyomo"])))
    def test_backends_load_in_one_process_in_any_order(self, order: tuple[str, ...]) -> None:
        """OR-Tools and highspy include different versions of one library."""
        program = (
            "import sys; from evenshare_core.formulations.shares import *\n"
            "for name in sys.argv[1:]:\n"
            "    s = solve_shares(ShareProblem([[1, 2], [1, 5]], [1, 1]), 'cooperative', name)\n"
            "    print(s.backend, round(s.total, 6), s.fallback)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, *order], check=True, capture_output=True, text=True
        )
        assert done.stdout.split("\n")[:-1] == [f"{name} 5.25 " for name in order]


class TestEveryRule:
    @given(data=st.data(), rule=st.sampled_from(list(ShareRule)))
    def test_respects_capacity_caps_and_zero_speeds(
        self, data: st.DataObject, rule: ShareRule
    ) -> None:
        tenants = data.draw(st.integers(1, 6))
        types = data.draw(st.integers(1, 4))
        speed = st.sampled_from([0.0, 1.0, 1.5, 2.0, 4.0])
        rows = st.lists(speed, min_size=types, max_size=types)
        asked = ask(
            data.draw(st.lists(rows, min_size=tenants, max_size=tenants)),
            data.draw(st.lists(st.integers(0, 8), min_size=types, max_size=types)),
            data.draw(st.lists(st.integers(1, 4), min_size=tenants, max_size=tenants)),
            data.draw(
                st.lists(
                    st.sampled_from([0.0, 1.0, 3.5, np.inf]), min_size=tenants, max_size=tenants
                )
            ),
        )
        found = solve_shares(asked, rule)
        assert (found.status, found.fallback) == ("optimal", "")
        assert (found.shares >= 0).all()
        assert (found.shares.sum(axis=0) <= asked.capacity * (1 + 1e-6)).all()
        assert (found.shares.sum(axis=1) <= asked.cap * (1 + 1e-6) + 1e-7).all()
        assert not found.shares[asked.speedups == 0].any()

    @pytest.mark.parametrize("rule", list(ShareRule))
    def test_is_deterministic_and_independent_of_row_order(self, rule: ShareRule) -> None:
        for seed in range(10):
            asked = problem(seed, capped=seed % 2 == 1)
            order = np.random.default_rng(seed).permutation(5)
            turned = ask(asked.speedups[order], asked.capacity, asked.pi[order], asked.cap[order])
            first, again, other = (solve_shares(p, rule) for p in (asked, asked, turned))
            assert first.shares.tobytes() == again.shares.tobytes()
            np.testing.assert_allclose(other.shares, first.shares[order], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("rule", list(ShareRule))
    def test_depends_only_on_ratio_of_weights(self, rule: ShareRule) -> None:
        """Multiplication by a power of two does not round, so the bits are equal."""
        for seed in range(5):
            asked = problem(seed, capped=seed % 2 == 1)
            expected = solve_shares(asked, rule)
            for power in (-30, 30):
                scaled = asked.pi * 2.0**power
                found = solve_shares(ask(asked.speedups, asked.capacity, scaled, asked.cap), rule)
                assert found.shares.tobytes() == expected.shares.tobytes()
                assert (found.status, found.fallback) == ("optimal", "")

    @pytest.mark.parametrize("rule", list(ShareRule))
    def test_equal_rows_get_throughput_by_weight(self, rule: ShareRule) -> None:
        asked = ask([[1, 2], [1, 3], [1, 2], [1, 2]], [3, 2], [1, 1, 1, 2])
        found = solve_shares(asked, rule).throughputs
        assert found[0] == pytest.approx(found[2], rel=1e-9)
        assert found[3] == pytest.approx(2 * found[0], rel=1e-9)

    def test_gives_nothing_to_rows_without_usable_gpus(self) -> None:
        asked = ask([[1, 2], [0, 3], [0, 0], [1, 5]], [4, 0], caps=[9, 9, 9, 0])
        for rule in ShareRule:
            np.testing.assert_allclose(
                solve_shares(asked, rule).shares, [[4, 0], [0, 0], [0, 0], [0, 0]], atol=1e-9
            )

    def test_total_is_zero_without_gpus(self) -> None:
        for rule in ShareRule:
            found = solve_shares(ask([[1, 2]], [0, 0]), rule)
            assert (found.total, found.status) == (0.0, "optimal")


class TestCaps:
    def test_noncooperative_rule_raises_uncapped_tenants(self) -> None:
        """A capped tenant keeps its throughput.

        The others stay equal to each other, and get more than before.
        """
        asked = ask([[1, 2], [1, 3], [1, 4]], [6, 6], caps=[1, np.inf, np.inf])
        found = solve_shares(asked, ShareRule.NONCOOPERATIVE)
        np.testing.assert_allclose(found.shares[0].sum(), 1, rtol=1e-6)
        assert found.throughputs[0] < found.throughputs[1]
        assert found.throughputs[1] == pytest.approx(found.throughputs[2], rel=1e-6)
        np.testing.assert_allclose(found.shares.sum(axis=0), [6, 6], rtol=1e-6)

    def test_uncapped_tenants_keep_envy_freeness_and_incentive(self) -> None:
        for seed in range(25):
            asked = problem(seed, capped=True)
            found = solve_shares(asked, ShareRule.COOPERATIVE)
            free = np.isinf(asked.cap)
            assert envy(asked, found.shares)[free].max(initial=0.0) <= 1e-6
            if not (asked.cap > 0).all():
                continue
            split = asked.speedups @ asked.capacity * asked.pi / asked.pi.sum()
            assert (found.throughputs[free] >= split[free] * (1 - 1e-6)).all()

    def test_capped_tenant_gets_usable_part_of_equal_split(self) -> None:
        """Without this minimum, the most efficient shares would give the slowest tenant nothing."""
        asked = ask([[1, 1.1], [1, 9]], [4, 4], caps=[1, np.inf])
        found = solve_shares(asked, ShareRule.COOPERATIVE)
        assert found.throughputs[0] == pytest.approx(1.1, rel=1e-6)

    def test_gavel_raises_lowest_level_up_to_caps(self) -> None:
        """The cap does not change the equal split: the second tenant gets all that it can use."""
        found = solve_shares(
            ask(
                [[0, 800, 0], [0, 1, 0], [1, 75, 0], [1, 0, 1]],
                [16, 8, 16],
                [1, 1, 1000, 1],
                [4, 2, 10, 10],
            ),
            ShareRule.GAVEL,
        )
        # The equal-split rates are 1/1003 of 8, 8, 616 and 32, times 1000 for the heavy tenant.
        # It is at its maximum: it has 2 slow GPUs and all 8 fast ones, less the cost of
        # level 0.9996 for the others.
        parts = np.array([6400, 8, 616 * 1000, 32]) / 1003
        assert (found.throughputs / parts).min() == pytest.approx(found.throughputs[2] / parts[2])
        assert found.shares[2].sum() == pytest.approx(10)


class TestFailingBackend:
    def failing(self, *_: Any, **__: Any) -> Any:
        raise SolverError("HiGHS ended with 'Time limit reached'")

    def test_falls_back_to_highs_and_records_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(oef_cooperative, "solve", self.failing)
        found = solve_shares(problem(1), ShareRule.COOPERATIVE)
        assert (found.backend, found.status) == ("highs", "optimal")
        assert found.fallback == "fast: HiGHS ended with 'Time limit reached'"

    def test_falls_back_to_equal_split_if_highs_fails(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for solver in (oef_highs.Highs, oef_fast.Fast):
            monkeypatch.setattr(solver, "levels", self.failing)
        asked = problem(2)
        found = solve_shares(asked, ShareRule.NONCOOPERATIVE)
        assert (found.backend, found.status, found.prices) == ("equal split", "fallback", None)
        assert found.fallback.count("Time limit") == 2
        split = solve_shares(asked, ShareRule.MAX_MIN)
        assert found.shares.tobytes() == split.shares.tobytes()

    def test_rejects_shares_that_break_constraints(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """OR-Tools has returned zeros without an error; other backends may exceed the capacity."""
        honest = shares._max_efficiency

        def twice(*given_: Any) -> Any:
            answer = honest(*given_)
            return type(answer)(
                answer.shares * 2, answer.prices, answer.cap_prices, answer.level_prices, "x"
            )

        monkeypatch.setitem(shares.SOLVE, ShareRule.MAX_EFFICIENCY, twice)
        found = solve_shares(problem(1), ShareRule.MAX_EFFICIENCY)
        assert found.status == "fallback"
        assert "exceed the capacity" in found.fallback


class TestExtremeSpeeds:
    """Problems with extreme speeds, found at random.

    In the first, the interior point method cycled around the optimum.
    """

    def test_simplex_solves_problem_if_interior_point_cycles(self) -> None:
        asked = ask(
            [
                [0.002914091818866565, 138.08637973210443, 0.07803828280483557],
                [0.017648520466985805, 0.8458095381577895, 0.7952591753659061],
                [614.0191605092458, 32.73619486694492, 0.5764141072944525],
            ],
            [0.1644227011577322, 91.67626455627605, 523.2829587815764],
            [24.050173504360664, 1.3025650642598188, 0.01261740540932919],
        )
        found = solve_shares(asked, ShareRule.GAVEL, "highs")
        checked = solve_shares(asked, ShareRule.GAVEL, "ortools")
        assert (found.backend, found.fallback) == ("highs", "")
        np.testing.assert_allclose(found.throughputs, checked.throughputs, rtol=1e-5)

    @pytest.mark.parametrize("rule", [ShareRule.NONCOOPERATIVE, ShareRule.GAVEL])
    def test_accepts_speeds_beyond_float_precision(self, rule: ShareRule) -> None:
        found = solve_shares(
            ask([[1e-2, 1e2], [1, 1e-9], [1e6, 1e-9]], [0.1, 200], [1e-6, 1e-3, 1]), rule
        )
        assert found.throughputs.shape == (3,)
        found = solve_shares(ask([[1, 1e12], [1, 1e-12]], [1, 1], [1e-12, 1e12]), rule)
        assert found.status in {"optimal", "fallback"}

    def test_accepts_optimum_without_duals(self) -> None:
        found = solve_shares(
            ask(
                [[2e-6, 611812], [1e-3, 2559], [0, 2e-3], [8e-3, 2e-5], [4e-9, 73073]],
                [38920952.7, 67770221],
                [5e-9, 7e-8, 2.7, 2559466, 6e-2],
            ),
            ShareRule.COOPERATIVE,
        )
        assert found.status in {"optimal", "fallback"}


class TestClean:
    def test_removes_solver_tolerances(self) -> None:
        """Tiny and negative shares are removed.

        Shares that exceed a type's GPUs are scaled down.
        """
        left = np.array([[3.0, 1e-12, -1e-10], [1.0, 2.5, 1.0]]) * (1 + 1e-9)
        cleaned = oef_highs.clean(left, np.array([4.0, 2.5, 2.0]))
        assert (cleaned.sum(axis=0) <= np.array([4.0, 2.5, 2.0]) * (1 + 1e-15)).all()
        np.testing.assert_allclose(cleaned, [[3.0, 0.0, 0.0], [1.0, 2.5, 1.0]], rtol=2e-9, atol=0.0)
        assert cleaned[1, 2] == left[1, 2], "below its type's GPUs: as it was"


class TestShareProblem:
    @pytest.mark.parametrize(
        ("fields", "field", "reason"),
        [
            ({"speedups": [[1, 2], [1]]}, "speedups", "rows of equal length"),
            ({"speedups": [1, 2]}, "speedups", "one per tenant"),
            ({"speedups": []}, "speedups", "one per tenant"),
            ({"speedups": [[]]}, "speedups", "a row per tenant"),
            ({"speedups": [[1, -2], [1, 2]]}, "speedups", r"negative; \[0\]\[1\]"),
            ({"speedups": [[1, float("nan")], [1, 2]]}, "speedups", "not a number"),
            ({"speedups": [[1, float("inf")], [1, 2]]}, "speedups", "not finite"),
            ({"speedups": [["a", 2], [1, 2]]}, "speedups", "of numbers"),
            ({"capacity": [1]}, "capacity", "1 values for 2 GPU types"),
            ({"capacity": [1, -1]}, "capacity", r"negative; \[1\] is"),
            ({"weights": [1]}, "weights", "1 values for 2 tenants"),
            ({"weights": [1, 0]}, "weights", r"above 0; \[1\] is not"),
            ({"caps": [1, -1]}, "caps", "negative"),
            ({"caps": [1, 2, 3]}, "caps", "3 values for 2 tenants"),
        ],
    )
    def test_error_names_invalid_field(
        self, fields: dict[str, Any], field: str, reason: str
    ) -> None:
        good = {"speedups": [[1, 2], [1, 3]], "capacity": [1, 1]}
        with pytest.raises(ShareError, match=reason) as caught:
            ShareProblem(**{**good, **fields})
        assert caught.value.field == field

    def test_rejects_unknown_rule_and_backend(self) -> None:
        asked = problem(1)
        with pytest.raises(ShareError, match="none of cooperative") as caught:
            solve_shares(asked, "fair")
        assert caught.value.field == "rule"
        with pytest.raises(ShareError, match=f"none of {', '.join(BACKENDS)}") as caught:
            solve_shares(asked, "max_min", "glpk")
        assert caught.value.field == "backend"

    def test_divides_tenant_weight_by_job_type_priority(self) -> None:
        rows, weights, owners = virtual_tenants(
            [[[1, 2], [1, 3]], [], [[1, 5]]], weights=[3, 1, 2], priorities=[[2, 1], [], [1]]
        )
        assert rows.tolist() == [[1, 2], [1, 3], [1, 5]]
        assert weights.tolist() == [2, 1, 2]
        assert owners.tolist() == [0, 0, 2]
        with pytest.raises(ShareError, match=r"\[0\] needs 2 values"):
            virtual_tenants([[[1, 2], [1, 3]]], priorities=[[1]])
