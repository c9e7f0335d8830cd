"""Test what `make reproduce` concludes about Astraea-online, from made-up figures and tiny runs."""

from __future__ import annotations

import pytest

from evenshare_core.units import HOUR_US
from evenshare_research.reproduce import market, market_causes, market_jobs, market_runs
from evenshare_research.reproduce.market_runs import LARGEST, REQUESTED
from evenshare_research.reproduce.model import ClaimVerdict

from .reproduce_results import made_up

YES, PARTLY = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION
NO = ClaimVerdict.NOT_REPRODUCED
PAPER = {"one": 1.4, "other": 1.2}


class TestRevenue:
    @pytest.mark.parametrize(
        ("one", "other", "verdict"),
        [(1.4, 1.2, YES), (1.31, 1.16, YES), (1.29, 1.16, PARTLY), (1.49, 1.24, YES),
         (1.51, 1.2, PARTLY), (1.4, 3.0, PARTLY), (1.4, 1.02, PARTLY), (1.4, 1.0, NO)],
    )  # fmt: skip
    def test_verdict_follows_worst_and_best_ratio(
        self, one: float, other: float, verdict: ClaimVerdict
    ) -> None:
        assert market.gain_verdict({"one": one, "other": other}, PAPER) is verdict

    @pytest.mark.parametrize(
        ("geometric", "fixed", "verdict"),
        [(1.0, -0.1, YES), (-0.1, 1.0, PARTLY), (0.2, -0.1, PARTLY), (-0.1, -0.1, NO)],
    )
    def test_verdict_prefers_mode_of_paper(
        self, geometric: float, fixed: float, verdict: ClaimVerdict
    ) -> None:
        """Each mode reaches a part of the paper's gain."""
        rows = {
            mode: {name: 1 + part * (ratio - 1) for name, ratio in PAPER.items()}
            for mode, part in (("geometric", geometric), ("fixed", fixed))
        }
        claim = market.revenue_claim("revenue", rows, PAPER)
        assert (claim.text, claim.verdict) == ("revenue", verdict)
        assert (claim.why == "") == (verdict is YES)
        if verdict is NO:
            assert "fixed: no gain over other" in claim.why

    def test_names_weak_baseline(self) -> None:
        rows = {"geometric": {"one": 1.4, "other": 3.0}, "fixed": {"one": 1.4, "other": 1.2}}
        claim = market.revenue_claim("revenue", rows, PAPER)
        assert claim.verdict is PARTLY
        assert claim.why == "geometric: other is a weak baseline"


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


class TestCauses:
    """80 jobs, with made-up revenue of Gandiva_fair by the size of gangs."""

    def test_ratio_falls_with_size_of_gangs(self) -> None:
        part, _ = market.PARTS
        results = made_up(part)
        for (gang, _), run in market_causes.GANG_RUNS.items():
            revenue = {REQUESTED: 4000.0, 2: 8000.0, 4: 12_500.0, 8: 16_000.0, LARGEST: 20_000.0}
            results[run]["linear"]["revenue"] = revenue[gang]
        for (key, _), run in market_causes.PRICE_RUNS.items():
            results[run]["revenue"] = 16_000.0 if key[1] == "least" else 17_600.0
        causes = market_causes.Causes(results)
        assert causes.ratio(REQUESTED) == 4
        assert causes.ratio(LARGEST, theta="free") == 0.88
        assert "between gangs of 4 and 8 GPUs" in causes.note()
        assert "changes by +10 %" in causes.note()
        gangs, prices = causes.tables()
        assert [row[4] for row in gangs.rows] == ["4.00x", "2.00x", "1.28x", "1.00x", "0.80x"]
        assert len(prices.rows) == 4


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

    def test_servers_follow_nodes_of_virtual_clusters(self) -> None:
        """5.1: Philly's machines by cluster; of 14, three have no known machine."""
        made = market_jobs.workload("linear", 30, 100, 3)
        _, nodes = market_jobs._arrivals()
        assert (sum(nodes.values()), sorted(nodes.values())[:4]) == (352, [0, 0, 0, 8])
        shares = {row.tenant: row.workers / 452 for row in made.pool.owners}
        for tenant, (name, count) in enumerate(sorted(nodes.items()), start=1):
            assert shares[tenant] == pytest.approx(count / 352, abs=0.06), name
            assert shares[tenant] >= 8 / 452

    def test_jobs_keep_requested_gpus_of_trace(self) -> None:
        requested = market_jobs.workload("linear", 80, 100, 3).requested
        assert len(requested) == 80
        assert requested.count(1) > 40
        assert max(requested) > 1

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
        theirs = market_runs.baseline(policy="gandiva_fair", options=options, gang=LARGEST, **given)
        assert theirs["linear"]["revenue"] > 0
        assert theirs["linear"]["without_floor"] < theirs["linear"]["revenue"] + 1e-6
        assert len(theirs["linear"]["alpha"]) == len(mine["private_alpha"])
        few = market_runs.baseline(policy="gandiva_fair", options=options, gang=4, **given)
        assert few["linear"]["without_floor"] < few["linear"]["revenue"]
        assert few["linear"]["hours"] > theirs["linear"]["hours"]
        free = market_runs.astraea(kind="linear", interval="geometric", theta="free", **given)
        assert free["scheduled"] >= mine["scheduled"]

    @pytest.mark.parametrize(("most", "gpus", "centralised"), [(8, 8, True), (12, 12, False)])
    def test_gang_over_servers_has_speed_of_transfers(
        self, most: int, gpus: int, centralised: bool
    ) -> None:
        """Equation (1): a gang larger than a server cannot avoid the transfers."""
        job = market_jobs.workload("linear", 1, 40, 1).jobs[0]
        gang = market_runs.gang_of(job, most)
        hours = float(job.work(centralised=centralised)) / gpus
        assert gang.gpus == gpus
        assert gang.duration_us == pytest.approx(hours * HOUR_US, abs=1)

    def test_optimum_bounds_ratio(self) -> None:
        row = market_runs.ratio(kind="linear", jobs=3, servers=2, seed=1)
        assert 0 < row["geometric"] <= row["known"] == 1
