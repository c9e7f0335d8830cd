"""Test the verdicts of `make reproduce`: bounds on both sides, and the noise of figures."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import MINUTE_US
from evenshare_research.reproduce.model import ClaimVerdict
from evenshare_research.reproduce.resamples import _means, resampled
from evenshare_research.reproduce.verdicts import (
    LEAST_GAIN,
    NoisyFigure,
    between,
    difference,
    gain_verdict,
    ranked,
    relative,
    why_not,
    within,
)

YES, PARTLY, MORE = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION, ClaimVerdict.MORE
NO = ClaimVerdict.NOT_REPRODUCED


class TestFactor:
    """UniSched's margin over its rivals is 1.17 to 4.82 in the paper."""

    @pytest.mark.parametrize(
        ("factor", "verdict"),
        [(46, MORE), (5.9, MORE), (5.7, YES), (2, YES), (1.14, YES), (1.1, PARTLY), (1.005, NO)],
    )
    def test_far_above_paper_is_no_success(self, factor: float, verdict: ClaimVerdict) -> None:
        got = NoisyFigure.exact(factor)
        assert between(got, 1.17, 4.82, none=1, nothing=1 + LEAST_GAIN) is verdict

    def test_reason_names_bound(self) -> None:
        assert (
            why_not(MORE, NoisyFigure.exact(46), "the paper's")
            == "more than five quarters of the paper's"
        )


class TestNoise:
    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [(0.14, 0.16, PARTLY), (0.1, 0.21, YES), (-0.01, 0.4, NO), (0.14, 0.19, PARTLY)],
    )
    def test_opens_bounds_only_if_it_reaches_paper(
        self, low: float, high: float, verdict: ClaimVerdict
    ) -> None:
        assert gain_verdict(NoisyFigure(0.149, low, high), 0.2) is verdict

    def test_is_same_for_same_seeds_and_contains_mean(self) -> None:
        got = NoisyFigure.of_seeds([0.1, 0.2, 0.3, 0.4])
        assert got == NoisyFigure.of_seeds([0.1, 0.2, 0.3, 0.4])
        assert got.value == pytest.approx(0.25)
        assert 0.1 < got.low < got.value < got.high < 0.4

    def test_ratio_is_that_of_sums(self) -> None:
        """The mean of the ratios would be 1.5."""
        assert NoisyFigure.of_ratio([(1, 1), (12, 4)]).value == pytest.approx(1.6)

    def test_lower_is_better_for_negative(self) -> None:
        got = NoisyFigure(0.04, 0.03, 0.05).negative
        assert got == (-0.04, -0.05, -0.03)
        assert between(got, -0.03, -0.03, nothing=-0.1) is YES
        assert between(got, -0.02, -0.02, nothing=-0.1) is PARTLY
        assert between(got, -0.08, -0.08, nothing=-0.1) is MORE

    @pytest.mark.parametrize(
        ("low", "high", "verdict"), [(-0.1, -0.06, NO), (-0.1, -0.04, YES), (0.06, 0.1, MORE)]
    )
    def test_opens_range(self, low: float, high: float, verdict: ClaimVerdict) -> None:
        assert within(NoisyFigure((low + high) / 2, low, high), -0.05, 0.05) is verdict


class TestRanking:
    @pytest.mark.parametrize(
        ("rival", "verdict", "why"),
        [
            ((1.0, 0.5, 1.5), YES, ""),
            ((0.2, -0.1, 0.5), PARTLY, "within the noise of one"),
            ((-0.2, -0.3, -0.1), NO, "not below one"),
        ],
    )
    def test_needs_more_than_noise(
        self, rival: tuple[float, float, float], verdict: ClaimVerdict, why: str
    ) -> None:
        rank = ranked({"one": NoisyFigure(*rival), "two": NoisyFigure.exact(9)})
        assert (rank.verdict, rank.why) == (verdict, why)


def figures(lengths: tuple[int, ...], policy: str = "fifo", gpus: int = 1) -> Figures:
    jobs = tuple(
        SimJob(index, 1 + index % 2, 1, 0, minutes * MINUTE_US)
        for index, minutes in enumerate(lengths, 1)
    )
    cluster = Cluster((Node(1, "gpu", gpus),), ())
    result = simulate(cluster, jobs, Rules(policy, {}, MINUTE_US, 15 * MINUTE_US))
    return figures_of(cluster, jobs, result.books)


class TestResamples:
    LENGTHS = (5, 7, 11, 3, 90, 2, 14, 8, 60, 30)

    def result(self, gpus: int) -> dict[str, Any]:
        row = figures(self.LENGTHS, gpus=gpus)
        return {"jct_s": row.mean("jct_s"), "resampled": resampled(row)}

    def test_are_around_figure(self) -> None:
        row = figures(self.LENGTHS)
        drawn = resampled(row)
        assert min(drawn["jct_s"]) < (row.mean("jct_s") or 0) < max(drawn["jct_s"])
        assert all(0 <= value <= 1 for value in drawn["sharing_loss_jobs"])
        assert len(drawn["jct_s"]) == len(drawn["slowdown"]) == 200

    def test_are_paired_between_runs(self) -> None:
        """A run is never different from itself, and its difference has less noise than it."""
        slow, fast = self.result(1), self.result(2)
        assert difference(slow, slow, "jct_s") == (0, 0, 0)
        assert relative(slow, fast, "jct_s").low > 0

    def test_draw_numbers_alike_in_every_run(self) -> None:
        """Each job is drawn equally often, whatever the order and the number of jobs."""
        assert _means((1, 2), (1, 0)) == _means((2, 1), (0, 1))
        counts = [_means((1, job), (1, 0)) for job in (2, 9)]
        always = [one for one, other in zip(*counts, strict=True) if one == other == 0]
        assert len(always) > 40  # where job 1 is not drawn, and not e^-2 of the resamples

    def test_weigh_hours_by_deserved_gpu_time(self) -> None:
        """Of two tenants in the same hour, one deserved three times as much."""
        assert set(_means((1, 1), (0, 1), (3, 1))) == {0.25, 0.0}
