"""Gavel (OSDI 2020), max-min fairness as published: computed by hand, and compared with scipy.

E3 of OEF is in `tests/papers/test_oef.py`. Throughputs of max-min fairness are unique. Shares may
differ, but are unique in the instances computed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.optimize import linprog

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.fairness.certificate import Property, Verdict
from evenshare_core.fairness.properties import sharing_incentive
from evenshare_core.formulations.problems import Array, ShareProblem
from evenshare_core.formulations.shares import solve_shares
from evenshare_core.policies.base import certify_round, decide_round, round_ideals
from evenshare_core.policies.sharing.base import FORMER
from tests.papers.mixed_pool import TYPES, cluster, profile, queue, rounds
from tests.unit.core.certificates import line

F = Fraction
INF = float("inf")
BACKENDS = ("fast", "highs", "ortools", "pyomo")
RTOL = 1e-6


class Golden(NamedTuple):
    name: str
    rows: Sequence[Sequence[float]]
    capacity: Sequence[float]
    weights: Sequence[float]
    caps: Sequence[float]
    shares: Sequence[Sequence[F | int]]


GOLDEN = [
    # X = (2/3, 2/3) is scaled down to (1/2, 1/2), which gives 3/2, 2 and 5/2. With f_l of the fast
    # GPUs and 1 - f_l of the slow ones, 1 + (w_l - 1) f_l = t (1 + w_l) / 2. As sum f_l = 2, t =
    # 23/20.
    Golden(
        "more GPUs than jobs", [[1, 2], [1, 3], [1, 4]], [2, 2], [1, 1, 1], [1, 1, 1],
        [[F(11, 40), F(29, 40)], [F(7, 20), F(13, 20)], [F(3, 8), F(5, 8)]],
    ),
    # X = (5, 1/2) gives 10 and 15. The first can use one GPU, of which y is fast: (1 + 9 y) / 10 =
    # (29 - 19 y) / 15 = 56/65.
    Golden(
        "one job beside many", [[1, 10], [1, 20]], [10, 1], [1, 1], [1, INF],
        [[F(2, 13), F(11, 13)], [F(128, 13), F(2, 13)]],
    ),
    # By weight 3, 5/2 and 7. The first can use at most one fast GPU, t = 1. For the rest, b / (5/2)
    # = (6 - b + 4) / 7.
    Golden(
        "weights, and a second level", [[1, 3], [1, 2], [1, 4]], [6, 2], [1, 1, 2], [1, INF, INF],
        [[0, 1], [F(50, 19), 0], [F(64, 19), 1]],
    ),
]  # fmt: skip


def asked(case: Golden) -> ShareProblem:
    arrays = (np.array(one, float) for one in (case.rows, case.capacity, case.weights, case.caps))
    return ShareProblem(*arrays)


def published_rates(problem: ShareProblem) -> Array:
    """Return each job's weighted throughput with an equal split of at most one GPU per job."""
    jobs = len(problem.speedups)
    equal = np.tile(problem.capacity / jobs, (jobs, 1))
    equal /= np.maximum(1.0, equal.sum(axis=1))[:, None]
    rates = problem.pi * (problem.speedups * equal).sum(axis=1)
    return np.asarray(rates, float)


def solved_apart(problem: ShareProblem, rates: Array) -> Array:
    """Return lexicographic max-min throughputs, with one linear program of scipy per level and row.

    A row is fixed at a level if no solution at that level gives it more.
    """
    rows, types = problem.speedups.shape
    size = rows * types + 1
    bounds, limits = [], []
    for type_index in range(types):
        line = np.zeros(size)
        line[type_index : rows * types : types] = 1
        bounds.append(line)
        limits.append(problem.capacity[type_index])
    work = np.zeros((rows, size))
    for row in range(rows):
        work[row, row * types : (row + 1) * types] = problem.speedups[row]
        if np.isfinite(problem.cap[row]):
            line = np.zeros(size)
            line[row * types : (row + 1) * types] = 1
            bounds.append(line)
            limits.append(problem.cap[row])
    fixed: dict[int, float] = {}
    while len(fixed) < rows:
        open_ = [row for row in range(rows) if row not in fixed]
        kept = [(work[row], reached * (1 - 1e-9)) for row, reached in fixed.items()]

        def best(objective: Array, least: list[tuple[Array, float]]) -> float:
            below = [*bounds, *(-line for line, _ in least)]
            upper = [*limits, *(-value for _, value in least)]
            found = linprog(-objective, A_ub=np.array(below), b_ub=upper)
            assert found.status == 0
            return float(-found.fun)

        top = np.zeros(size)
        top[-1] = 1
        levelled = [(work[row] - rates[row] * top, 0.0) for row in open_]
        level = best(top, kept + levelled)
        floors = [(work[row], rates[row] * level * (1 - 1e-9)) for row in open_]
        stuck = [
            row
            for row in open_
            if best(work[row], kept + floors) <= rates[row] * level * (1 + 1e-6)
        ]
        assert stuck
        fixed |= {row: rates[row] * level for row in stuck}
    return np.array([fixed[row] for row in range(rows)])


class TestWorkedExamples:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
    def test_shares_match_manual_solution(self, case: Golden, backend: str) -> None:
        found = solve_shares(asked(case), "gavel", backend)
        expected = np.array([[float(value) for value in row] for row in case.shares])
        assert (found.status, found.fallback) == ("optimal", "")
        np.testing.assert_allclose(found.shares, expected, rtol=RTOL, atol=1e-9)

    @pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
    def test_throughputs_match_scipy(self, case: Golden) -> None:
        problem = asked(case)
        expected = np.array([[float(value) for value in row] for row in case.shares])
        done = (problem.speedups * expected).sum(axis=1)
        apart = solved_apart(problem, published_rates(problem))
        np.testing.assert_allclose(apart, done, rtol=RTOL)


@st.composite
def problems(draw: st.DrawFn) -> ShareProblem:
    tenants, types = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    speed = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])
    rows = [[draw(speed) for _ in range(types)] for _ in range(tenants)]
    for row in rows:
        if not any(row):
            row[0] = 1.0
    capacity = [float(draw(st.integers(1, 8))) for _ in range(types)]
    weights = [float(draw(st.integers(1, 4))) for _ in range(tenants)]
    caps = [draw(st.sampled_from([INF, 0.5, 1.0, 2.0, 5.0])) for _ in range(tenants)]
    return ShareProblem(*(np.array(one) for one in (rows, capacity, weights, caps)))


class TestRandomProblems:
    @given(problems())
    def test_throughputs_match_scipy(self, problem: ShareProblem) -> None:
        found = solve_shares(problem, "gavel")
        apart = solved_apart(problem, published_rates(problem))
        np.testing.assert_allclose(found.throughputs, apart, rtol=1e-5, atol=1e-7)

    @given(problems())
    def test_beats_equal_split_unless_cap_binds(self, problem: ShareProblem) -> None:
        """The policy promises this only if no cap binds, because a row at its cap gets no more."""
        found = solve_shares(problem, "gavel")
        if (found.shares.sum(axis=1) >= problem.cap * (1 - 1e-6)).any():
            return
        got, alone = sharing_incentive(problem.speedups, found.shares, problem.capacity, problem.pi)
        assert (got >= alone * (1 - 1e-6)).all()


class TestCap:
    """The cap of a job type is what its jobs can use.

    It limits the shares, but not the equal split.
    """

    @staticmethod
    def throughputs(cap: float) -> Array:
        rows, capacity, weights = [[1.0, 10.0], [1.0, 20.0]], [10.0, 1.0], [1.0, 1.0]
        caps = np.array([cap, INF])
        return solve_shares(
            ShareProblem(np.array(rows), np.array(capacity), np.array(weights), caps), "gavel"
        ).throughputs

    def test_binding_cap_shifts_throughput(self) -> None:
        """If a cap binds, the second tenant's 15 with an equal split is not promised."""
        np.testing.assert_allclose(self.throughputs(1.0), [112 / 13, 168 / 13], rtol=RTOL)

    def test_loose_cap_changes_nothing(self) -> None:
        np.testing.assert_allclose(self.throughputs(11.0), self.throughputs(INF), rtol=RTOL)


class TestTimeFractions:
    """In a round, a job type is one of Gavel's jobs, as in expression (3) of OEF."""

    OFF: Mapping[str, Any] = {"time_fractions": False}

    def first_round(
        self, gang: int = 3, speeds: Sequence[int] = (2000, 3000, 4000), **options: Any
    ) -> tuple[Snapshot, Decision]:
        """Decide a round with nine jobs of each of three tenants on three GPUs of each type."""
        profiles = [profile(tenant, tenant, 1000, speed) for tenant, speed in enumerate(speeds, 1)]
        pool = cluster([[3], [3]], dict.fromkeys((1, 2, 3), 1), profiles)
        jobs = [
            job
            for tenant in (1, 2, 3)
            for job in queue(tenant, 9, gpus=gang, profile=tenant, first=100 * tenant)
        ]
        snapshot, decision, _ = next(rounds(pool, jobs, 1, "gavel", options=options))
        return snapshot, decision

    @staticmethod
    def shares(decision: Decision) -> list[float]:
        """Return the first tenant's shares of the two types, per GPU of each type."""
        mine = {row.gpu_type: row.gpus / 3 for row in decision.ideals if row.tenant == 1}
        return [mine.get(name, 0) for name in TYPES[:2]]

    def test_sum_to_at_most_one(self) -> None:
        """Three GPUs of each type and gangs of three are expression (3) times three."""
        assert self.shares(self.first_round()[1]) == pytest.approx([10 / 11, 1 / 11], abs=2e-6)

    def test_can_be_switched_off(self) -> None:
        found = self.shares(self.first_round(**self.OFF)[1])
        assert found == pytest.approx([1, 0.051020], abs=2e-6)

    def test_leave_no_gpu_idle(self) -> None:
        """The program hands out 3 of 6 GPUs; the round offers the other GPUs to waiting jobs."""
        _, decision = self.first_round(1)
        assert sum(row.gpus for row in decision.ideals) == pytest.approx(3, abs=1e-5)
        assert len(decision.grants) == 6

    def test_were_unknown_to_version_5(self) -> None:
        snapshot, _ = self.first_round()
        old = replace(snapshot, policy_version=f"{FORMER}1.15.1, 2")
        off = replace(old, options=dict(self.OFF))
        assert canonical_bytes(decide_round(old)) == canonical_bytes(decide_round(off))
        assert round_ideals(old) == round_ideals(off)

    @pytest.mark.parametrize(
        ("speeds", "verdict"),
        [((2000, 3000, 4000), Verdict.NOT_PROMISED), ((2000, 2000, 2000), Verdict.HOLDS)],
    )
    def test_promise_ends_where_they_bind(self, speeds: Sequence[int], verdict: Verdict) -> None:
        """Tenants of equal speeds have a third of each type, less than a gang."""
        snapshot, decision = self.first_round(speeds=speeds)
        found = certify_round(snapshot, decision)
        assert found.violated == ()
        assert line(found, Property.SHARING_INCENTIVE).verdict is verdict


class TestRound:
    @pytest.mark.parametrize(("jobs", "verdict"), [(1, Verdict.NOT_PROMISED), (9, Verdict.HOLDS)])
    def test_promises_sharing_incentive_unless_cap_binds(self, jobs: int, verdict: Verdict) -> None:
        """With one job of one GPU, the first tenant cannot use more than one GPU of its half."""
        profiles = [profile(1, 1, 1000, 2000), profile(2, 2, 1000, 4000)]
        pool = cluster([[4], [4]], {1: 2, 2: 2}, profiles)
        queues = [*queue(1, jobs, profile=1), *queue(2, 9, profile=2, first=100)]
        options = {"time_fractions": False}
        snapshot, decision, _ = next(rounds(pool, queues, 1, "gavel", options=options))
        found = certify_round(snapshot, decision)
        assert line(found, Property.SHARING_INCENTIVE).verdict is verdict
