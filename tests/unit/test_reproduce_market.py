"""Test what `make reproduce` concludes about Astraea-online, from made-up figures and tiny runs."""

from __future__ import annotations

import pytest

from evenshare_research.reproduce import market, market_jobs, market_runs
from evenshare_research.reproduce.model import ClaimVerdict

from .reproduce_results import made_up

YES, PARTLY = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION
NO = ClaimVerdict.NOT_REPRODUCED
PAPER = {"one": 1.4, "other": 1.2}


class TestRevenue:
    @pytest.mark.parametrize(
        ("one", "other", "verdict"),
        [(1.4, 1.2, YES), (1.31, 1.16, YES), (1.29, 1.16, PARTLY), (1.5, 1.02, PARTLY),
         (1.5, 1.0, NO)],
    )  # fmt: skip
    def test_verdict_follows_worst_rival(
        self, one: float, other: float, verdict: ClaimVerdict
    ) -> None:
        assert market.gain_verdict({"one": one, "other": other}, PAPER) is verdict

    @pytest.mark.parametrize(
        ("geometric", "fixed", "verdict"),
        [(1.5, 0.9, YES), (0.9, 1.5, PARTLY), (1.1, 0.9, PARTLY), (0.9, 0.9, NO)],
    )
    def test_verdict_prefers_mode_of_paper(
        self, geometric: float, fixed: float, verdict: ClaimVerdict
    ) -> None:
        rows = {"geometric": dict.fromkeys(PAPER, geometric), "fixed": dict.fromkeys(PAPER, fixed)}
        claim = market.revenue_claim("revenue", rows, PAPER)
        assert claim.verdict is verdict
        assert (claim.why == "") == (verdict is YES)
        if verdict is NO:
            assert "fixed: no gain over other" in claim.why


class TestOtherClaims:
    def test_fairness_verdicts(self) -> None:
        rows = {name: [(1.0, 0.9)] for name in ("Astraea", market.BATCH, *market.POLICIES)}
        assert [claim.verdict for claim in market.fairness_claims(rows)] == [NO, NO, NO]
        rows["Astraea"], rows[market.BATCH] = [(1.0, 0.75)], [(1.0, 0.0)]
        assert [claim.verdict for claim in market.fairness_claims(rows)] == [YES, YES, YES]

    @pytest.mark.parametrize(
        ("gandiva", "hived", "part", "verdict"),
        [(0.8, 0.6, 1.0, YES), (0.8, 0.6, 0.5, PARTLY), (0.95, 0.9, 1.0, PARTLY),
         (1.1, 0.6, 1.0, NO)],
    )  # fmt: skip
    def test_partial_makespan_is_at_most_partly_reproduced(
        self, gandiva: float, hived: float, part: float, verdict: ClaimVerdict
    ) -> None:
        claim = market.makespan_claim({market.GANDIVA: gandiva, market.HIVED: hived}, part)
        assert claim.verdict is verdict

    @pytest.mark.parametrize(
        ("geometric", "fixed", "verdict"), [(0.7, 0.7, YES), (0.5, 0.7, PARTLY), (0.5, 0.5, NO)]
    )
    def test_ratio_verdicts(self, geometric: float, fixed: float, verdict: ClaimVerdict) -> None:
        claim = market.ratio_claim("linear", {"geometric": geometric, "fixed": fixed})
        assert claim.verdict is verdict

    def test_sample_figures_reproduce_claims(self) -> None:
        part, optimum = market.PARTS
        claims = part.judge(made_up(part)).claims
        assert [claim.verdict for claim in claims].count(YES) == 7
        assert {claim.verdict for claim in optimum.judge(made_up(optimum)).claims} == {YES}


class TestWorkload:
    def test_matches_section_5_1_and_depends_on_seed(self) -> None:
        made = market_jobs.workload("linear", 30, 100, 3)
        assert made == market_jobs.workload("linear", 30, 100, 3)
        assert made != market_jobs.workload("linear", 30, 100, 4)
        assert (len(made.pool.servers), made.pool.workers, made.pool.ps) == (100, 452, 100)
        assert sum(row.workers for row in made.pool.owners) == 452
        assert len(made.pool.owners) == 14
        for job in made.jobs:
            assert 50 <= job.epochs <= 100
            assert 20 <= job.chunks <= 50
            assert 10 <= job.batches <= 50
            assert 0 <= job.arrival < market_jobs.HOURS

    def test_jobs_are_identical_for_both_utilities(self) -> None:
        linear, convex = (market_jobs.workload(kind, 5, 40, 1) for kind in market_runs.KINDS)
        assert [job.arrival for job in linear.jobs] == [job.arrival for job in convex.jobs]
        assert linear.pool == convex.pool


class TestRuns:
    def test_astraea_and_policy_share_servers_and_jobs(self) -> None:
        given = {"jobs": 8, "servers": 40, "seed": 1}
        mine = market_runs.astraea(kind="linear", interval="geometric", theta="paper", **given)
        assert 0 < mine["scheduled"] <= 8
        assert mine["revenue"] > 0
        assert mine["without_gain"] == 0
        options = market_runs.OPTIONS["gandiva_fair"]
        theirs = market_runs.baseline(policy="gandiva_fair", options=options, **given)
        assert theirs["linear"]["revenue"] > 0
        assert len(theirs["linear"]["alpha"]) == len(mine["private_alpha"])

    def test_optimum_bounds_ratio(self) -> None:
        row = market_runs.ratio(kind="linear", jobs=3, servers=2, seed=1)
        assert 0 < row["geometric"] <= row["known"] == 1
