"""Test what `make reproduce` concludes about UniSched, from made-up figures and its workloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenshare_core.simulation.books import JobRecord
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import SECOND_US
from evenshare_research.reproduce import deadline_runs, unisched
from evenshare_research.reproduce.deadline_runs import (
    PROFILED_GPUS,
    PROFILED_US,
    STATIC_GPUS,
    WORKLOADS,
    chronus,
    deadline_run,
    profiling_figures,
    run,
    workload_size,
)
from evenshare_research.reproduce.model import ClaimVerdict

YES, PARTLY = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION
NO = ClaimVerdict.NOT_REPRODUCED
LOSES = "The weighted deadline miss rate is below that of Optimus and Themis"
(OVER_OTHERS,) = [one for one in unisched.AHEAD if one.text == LOSES]


def rows(**rates: float) -> dict[tuple[str, str], dict[str, Any]]:
    """Return miss rates by policy, which are equal in all workloads and 10 % by default."""
    return {
        (workload, name): {
            "deadline_miss_rate": rates.get(name, 0.1),
            "best_effort_jct_s": 1000.0,
            "slo_suspensions": 3.0,
            "slowest_round_s": 1.0,
        }
        for workload in WORKLOADS
        for name in unisched.COMPARED
    }


def waits(longest: float, static: float) -> dict[str, dict[str, float]]:
    """Return the longest wait of profiling runs in each workload, in seconds."""
    return {
        workload: {
            "profiling_wait_s": longest / 2,
            "profiling_wait_max_s": longest,
            "static_profiling_wait_max_s": static,
        }
        for workload in WORKLOADS
    }


class TestAhead:
    @pytest.mark.parametrize(
        ("optimus", "themis", "verdict"),
        [
            (0.201, 0.201, YES),
            (0.18, 0.3, YES),  # three quarters of the gain in the paper
            (0.15, 0.3, PARTLY),
            (0.09, 0.3, NO),  # behind a rival in half of all cases
            (0.09, 0.09, NO),
        ],
    )
    def test_requires_three_quarters_of_smallest_published_gain(
        self, optimus: float, themis: float, verdict: ClaimVerdict
    ) -> None:
        given = rows(optimus=optimus, themis=themis)
        assert unisched.ahead_claim(OVER_OTHERS, given).verdict is verdict

    def test_names_rival_and_workload_if_not_ahead(self) -> None:
        given = rows(optimus=0.3, themis=0.3)
        given["SLO", "optimus"]["deadline_miss_rate"] = 0.01
        claim = unisched.ahead_claim(OVER_OTHERS, given)
        assert (claim.verdict, claim.why) == (PARTLY, "not ahead of `optimus` in SLO")

    def test_zero_misses_beat_only_nonzero_misses(self) -> None:
        given = rows(unisched=0.0)
        assert unisched.ahead_claim(OVER_OTHERS, given).verdict is YES
        given = rows(unisched=0.0, optimus=0.0, themis=0.0)
        assert unisched.ahead_claim(OVER_OTHERS, given).verdict is NO

    def test_allows_ratio_below_one_if_paper_does(self) -> None:
        """The paper's own factor is 0.95, so a ratio below 1 is enough."""
        (mixed,) = [one for one in unisched.AHEAD if one.factor < 1]
        given = rows(genie=0.096)
        assert unisched.ahead_claim(mixed, given).verdict is YES
        assert unisched.ahead_claim(mixed, rows(genie=0.09)).verdict is PARTLY


class TestOtherClaims:
    def test_noise_may_cost_one_percentage_point(self) -> None:
        def verdict(rate: float) -> ClaimVerdict:
            noisy = {(40, 1): {"deadline_miss_rate": 0.1}, (40, 2): {"deadline_miss_rate": rate}}
            return unisched.noise_claim({"deadline_miss_rate": 0.1}, noisy).verdict

        assert [verdict(0.09), verdict(0.109), verdict(0.12)] == [YES, YES, NO]

    def test_chronus_verdict(self) -> None:
        assert unisched.chronus_claim(rows(chronus=0.15)).verdict is YES
        assert unisched.chronus_claim(rows(chronus=0.12)).verdict is PARTLY
        assert unisched.chronus_claim(rows(chronus=0.09)).verdict is NO

    def test_suspension_and_speed_verdicts(self) -> None:
        given = rows()
        assert unisched.suspensions_claim(given).verdict is YES
        assert unisched.speed_claim(given).verdict is YES
        given["SLO", "unisched"] |= {"slo_suspensions": 1.0, "slowest_round_s": 11.0}
        assert unisched.suspensions_claim(given).verdict is PARTLY
        assert unisched.speed_claim(given).verdict is NO

    def test_there_are_ten_claims(self) -> None:
        noisy = {(40, 1): {"deadline_miss_rate": 0.1}}
        claims = unisched.claims_of(rows(), noisy, waits(840, 2000))
        assert len(claims) == 10

    def test_note_names_cases_won_by_greedy_rule(self) -> None:
        noisy = {
            (noise, name): {"deadline_miss_rate": 0.03 if name == unisched.OURS else 0.02}
            for noise in unisched.NOISES
            for name in (unisched.OURS, unisched.GREEDY)
        }
        given = rows(unisched=0.1, evenshare=0.2)
        given["SLO", "evenshare"]["deadline_miss_rate"] = 0.05
        note = unisched.greedy_note(given, noisy)
        assert note.endswith(
            "The program misses more deadlines in SLO; MIX2 with noise of 20 %, seed 1;"
            " MIX2 with noise of 40 %, seed 1; MIX2 with noise of 40 %, seed 2;"
            " MIX2 with noise of 40 %, seed 3."
        )

    @pytest.mark.parametrize(
        ("longest", "static", "verdict"), [(840, 100, YES), (841, 900, PARTLY), (841, 841, NO)]
    )
    def test_profiling_wait_verdict(self, longest: int, static: int, verdict: ClaimVerdict) -> None:
        given = waits(300, 900) | {"MIX2": waits(longest, static)["MIX2"]}
        assert unisched.profiling_claim(given).verdict is verdict


class TestWorkloads:
    def test_have_published_size_and_density(self) -> None:
        sizes = {name: workload_size(chronus(name)) for name in WORKLOADS}
        assert {name: row["jobs"] for name, row in sizes.items()} == {
            "SLO": 1874, "MIX1": 2009, "MIX2": 1929,
        }  # fmt: skip
        densities = {name: round(row["density"], 2) for name, row in sizes.items()}
        assert densities == {"SLO": 1.37, "MIX1": 1.77, "MIX2": 1.11}

    def test_run_under_policy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        few = replace(chronus("MIX2"), jobs=chronus("MIX2").jobs[:150])
        monkeypatch.setattr(deadline_runs, "chronus", lambda _: few)
        monkeypatch.setattr(deadline_runs, "NODES", 4)
        row = run(workload="MIX2", policy="optimus", options={}, noise_percent=40)
        assert row["jobs"] == 150
        assert 0 < row["deadline_miss_rate"] < 1
        assert row["deadline_reward_rate"] == pytest.approx(1 - row["deadline_miss_rate"])
        assert row["strict_miss_rate"] != row["soft_miss_rate"]
        assert row["best_effort_jct_s"] > 0
        assert "profiling_wait_s" not in row

    def test_run_with_profiling_run_per_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        few = replace(chronus("MIX2"), jobs=chronus("MIX2").jobs[:100])
        monkeypatch.setattr(deadline_runs, "chronus", lambda _: few)
        monkeypatch.setattr(deadline_runs, "NODES", 4)
        given: dict[str, Any] = {"workload": "MIX2", "options": {}, "noise_percent": 0}
        row = run(policy="sjf", profiling=True, **given)
        assert (row["jobs"], row["profiling_runs"]) == (100, 100)
        assert 0 < row["profiling_wait_s"] <= row["profiling_wait_max_s"]
        assert row["gpu_hours"] == run(policy="sjf", **given)["gpu_hours"]

    def test_label_describes_noise_seed_and_profiling(self) -> None:
        run = deadline_run("SLO", "sjf", noise_percent=20, seed=3, profiling=True)
        assert run.label == "SLO: sjf, estimates wrong by up to 20 %, seed 3, with profiling runs"


class TestProfilingWaits:
    def test_are_computed_here_and_on_static_nodes(self) -> None:
        length_us, count = PROFILED_US, STATIC_GPUS // PROFILED_GPUS
        runs = [
            SimJob(number, 1, 2, 0, length_us, is_profiler=True) for number in range(1, count + 2)
        ]
        over = [JobRecord(job.id, "succeeded", job.id * SECOND_US, 0, 1, 0) for job in runs]
        assert profiling_figures([*runs, SimJob(99, 1, 2, 0, 1)], over) == {
            "profiling_runs": count + 1,
            "profiling_wait_s": (count + 2) / 2,
            "profiling_wait_max_s": count + 1,
            "static_profiling_wait_max_s": length_us / SECOND_US,
        }
