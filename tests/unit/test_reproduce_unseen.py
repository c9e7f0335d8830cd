"""Test the comparison on weeks and workloads on which `evenshare` was not tuned."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import HOUR_US
from evenshare_research.reproduce import samples, unseen
from evenshare_research.reproduce.model import Part
from evenshare_research.reproduce.runs import perform
from evenshare_research.reproduce.samples import SHAPES, Sample, drawn, week
from evenshare_research.reproduce.unseen import (
    CHOSEN,
    CONFIRMED,
    FIGURES,
    TUNED,
    FigureStanding,
    Group,
    goal_text,
    is_better,
    minus_ours,
    undominated,
)
from evenshare_research.reproduce.verdicts import NoisyFigure

A, L, B = FigureStanding.AHEAD, FigureStanding.LEVEL, FigureStanding.BEHIND
SPANS = ((TUNED, "2017-09-04", "2017-10-22"), (CHOSEN, "2017-10-23", "2017-11-10"),
         (CONFIRMED, "2017-11-11", "2017-12-15"))  # fmt: skip


def samples_of(groups: tuple[Group, ...]) -> list[Sample]:
    return [sample for _, some in groups for sample in some]


def days(sample: Sample) -> set[date]:
    first = date.fromisoformat(sample.kind)
    return {first + timedelta(days=day) for day in range(samples.WEEK_DAYS)}


class TestSplit:
    @pytest.mark.parametrize(("groups", "first", "last"), SPANS)
    def test_weeks_lie_within_their_span(
        self, groups: tuple[Group, ...], first: str, last: str
    ) -> None:
        weeks = [sample for sample in samples_of(groups) if sample.is_week]
        assert weeks
        for sample in weeks:
            assert min(days(sample)) >= date.fromisoformat(first)
            assert max(days(sample)) <= date.fromisoformat(last)

    def test_weeks_and_seeds_never_overlap(self) -> None:
        every = [sample for groups, _, _ in SPANS for sample in samples_of(groups)]
        assert len(every) == len(set(every))
        weeks = [sample for sample in every if sample.is_week]
        assert all(not days(one) & days(other) for one, other in combinations(weeks, 2))
        used = {sample.seed for sample in samples_of(TUNED) if not sample.is_week}
        new = [sample for sample in samples_of(CONFIRMED) if not sample.is_week]
        assert {sample.kind for sample in new} == set(SHAPES)
        assert len(SHAPES) >= 3
        assert not used & {sample.seed for sample in new}


def row(value: float, *resampled: float) -> dict[str, Any]:
    """Return a result whose figures all have this value, and these values in resamples."""
    drawn_values = list(resampled or (value,) * 10)
    fields = [field for _, field, _ in FIGURES]
    return {**dict.fromkeys(fields, value), "resampled": dict.fromkeys(fields, drawn_values)}


class TestNoise:
    def test_is_that_of_difference(self) -> None:
        """Both have the same noise, so the difference has none."""
        noise = [0.1 * number for number in range(10)]
        ours = [row(1, *noise)]
        theirs = [row(3, *(2 + one for one in noise))]
        assert minus_ours(theirs, ours, "jct_s") == pytest.approx((2, 2, 2))

    def test_includes_choice_of_samples(self) -> None:
        """Better on one of three samples only: other samples may show the contrary."""
        got = minus_ours([row(5), row(1), row(1)], [row(1), row(2), row(2)], "jct_s")
        assert got.value == pytest.approx(2 / 3)
        assert got.low < 0 < got.high

    def test_needs_same_samples(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            minus_ours([row(1)], [row(1), row(2)], "jct_s")


class TestStanding:
    @pytest.mark.parametrize(
        ("low", "high", "standing"), [(0.1, 0.2, A), (0, 0.2, L), (-0.1, 0, L), (-0.2, -0.1, B)]
    )
    def test_needs_more_than_noise(self, low: float, high: float, standing: FigureStanding) -> None:
        assert FigureStanding.of(NoisyFigure(0.05, low, high)) is standing

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ((A, A, A, L, L), "yes"),
            ((A, A, L, L, L), "no: ahead on 2 only"),
            ((A, A, A, A, B), "no: behind on JCT s"),
        ],
    )
    def test_goal_is_three_ahead_and_none_behind(
        self, given: tuple[FigureStanding, ...], text: str
    ) -> None:
        columns = [column for column, _, _ in FIGURES]
        assert columns == ["sharing loss", "hours under 0.99", "deficit", "slowdown", "JCT s"]
        assert goal_text(dict(zip(columns, given, strict=True))) == text

    @pytest.mark.parametrize(
        ("given", "better"),
        [(((L, A), (L, L)), True), (((L, L), (L, L)), False), (((A, A), (A, B)), False)],
    )
    def test_better_is_behind_nowhere(
        self, given: tuple[tuple[FigureStanding, ...], ...], better: bool
    ) -> None:
        rows = [dict(zip("xy", standings, strict=True)) for standings in given]
        assert is_better(rows) is better

    def test_frontier_leaves_out_worse_options(self) -> None:
        trade = row(1) | {"jct_s": 3.0}
        rows = {"one": [row(2)], "trade": [trade], "worse": [row(3)], "equal": [row(2)]}
        assert undominated(rows) == ["one", "trade", "equal"]


def at_noon(job: SimJob) -> bool:
    return 8 <= job.submitted_us // HOUR_US % 24 < 16


class TestSamples:
    def test_week_has_every_fourth_job(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The trace has a job per hour, and begins five days before the week."""
        lines = [f"{hour},one,{hour * 3600},60,1" for hour in range(20 * 24)]
        trace = tmp_path / "trace.csv"
        trace.write_text("\n".join(["job_id,tenant,submit_time_s,duration_s,gpus", *lines]))
        monkeypatch.setattr(samples, "TRACE", trace)
        jobs = week("2017-09-09").jobs
        assert [job.submitted_us // HOUR_US for job in jobs] == list(range(0, 7 * 24, 4))

    @pytest.mark.parametrize("shape", SHAPES)
    def test_drawn_jobs_follow_seed(self, shape: str) -> None:
        jobs = drawn(shape, 5, 240).jobs
        assert jobs == drawn(shape, 5, 240).jobs != drawn(shape, 6, 240).jobs
        assert [job.id for job in jobs] == list(range(1, 241))
        assert all(one.submitted_us <= other.submitted_us for one, other in pairwise(jobs))
        tenants = Counter(job.tenant for job in jobs)
        assert tenants[1] > tenants[3] > 0

    def test_shapes_differ_as_named(self) -> None:
        diurnal, sweeps, gangs = (drawn(shape, 5, 480).jobs for shape in SHAPES)
        assert sum(map(at_noon, diurnal)) > 0.45 * len(diurnal) > sum(map(at_noon, gangs))
        together = Counter(job.submitted_us for job in sweeps)
        assert sum(count == samples.SWEEP_JOBS for count in together.values()) == 10
        assert sum(job.gpus > 1 for job in gangs) > 0.6 * len(gangs)

    def test_unknown_shape_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="no shape is named 'flat'; there are diurnal"):
            drawn("flat", 1)


class TestRun:
    def test_small_workload_is_compared_from_end_to_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("evenshare_research.reproduce.runs.KEPT", tmp_path)
        monkeypatch.setattr(samples, "drawn", partial(drawn, jobs=20))
        monkeypatch.setattr(unseen, "RIVALS", unseen.RIVALS[:1])
        part: Part = unseen.part_of(
            "small",
            "Small",
            (("new", (Sample("gangs", 7),)),),
            (unseen.SHORT, unseen.ESTIMATING, *unseen.RIVALS),
            unseen._confirmed,
        )
        results = {run: perform(run)[0] for run in part.runs}
        findings = part.judge(results)
        against, with_estimates, figures = findings.tables
        assert with_estimates.title == "`evenshare`, estimates against four policies, new"
        assert "on new: the goal is reached against " in findings.notes[1]
        assert [line[0] for line in against.rows] == ["`ltgf`"]
        assert [line[0] for line in figures.rows][:2] == [unseen.FLOOR_ROW[0], unseen.OURS[0]]
        cells = [cell for line in against.rows for cell in line[1:-1]]
        assert all(cell.partition(":")[0] in {"ahead", "level", "behind"} for cell in cells)
