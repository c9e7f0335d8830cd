"""Test what `make reproduce` concludes about UniSched, from made-up figures and its workloads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from evenshare_core.simulation.books import JobRecord
from evenshare_core.simulation.workloads import SimJob, Workload
from evenshare_core.units import HOUR_US, MINUTE_US, SECOND_US
from evenshare_research.reproduce import deadline_runs, unisched, unisched_runs
from evenshare_research.reproduce.deadline_runs import (
    FIT,
    MAXIMUM,
    NODES,
    PROFILED_GPUS,
    PROFILED_US,
    STATIC_GPUS,
    STRATUM,
    WORKLOADS,
    chronus,
    deadline_run,
    drawn,
    profiling_figures,
    run,
    workload_size,
)
from evenshare_research.reproduce.model import ClaimVerdict
from evenshare_research.reproduce.unisched_runs import COMPARED, SEEDS

from .reproduce_results import made_up

YES, PARTLY = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION
NO = ClaimVerdict.NOT_REPRODUCED
LOSES = "The weighted deadline miss rate is below that of Optimus and Themis"
(OVER_OTHERS,) = [one for one in unisched.AHEAD if one.text == LOSES]
Row = dict[str, Any]


def rows(noise: float = 0.001, **rates: float) -> dict[tuple[str, str], list[Row]]:
    """Return figures of ten seeds, equal in all workloads; a miss rate is 10 % by default.

    Rivals' miss rates are `noise` above and below their mean in turn.
    """
    return {
        (workload, name): [
            {
                "deadline_miss_rate": rates.get(name.partition(",")[0], 0.1)
                + (noise if seed % 2 else -noise) * (name != unisched_runs.OURS),
                "best_effort_jct_s": 1000.0,
                "slo_suspensions": 3.0,
                "slowest_round_s": 1.0,
            }
            for seed in SEEDS
        ]
        for workload in WORKLOADS
        for name in (*COMPARED, "chronus")
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
            (0.18, 0.82, YES),
            (0.18, 0.84, PARTLY),  # more than five quarters of the paper's highest gain
            (0.09, 0.3, NO),  # behind a rival in half of all cases
            (0.09, 0.09, NO),
        ],
    )
    def test_accepts_three_to_five_quarters_of_published_gains(
        self, optimus: float, themis: float, verdict: ClaimVerdict
    ) -> None:
        given = rows(optimus=optimus, themis=themis)
        assert unisched.ahead_claim(OVER_OTHERS, given).verdict is verdict

    def test_names_rival_and_workload_if_not_ahead(self) -> None:
        given = rows(optimus=0.3, themis=0.3)
        given["SLO", "optimus"] = rows(optimus=0.01)["SLO", "optimus"]
        claim = unisched.ahead_claim(OVER_OTHERS, given)
        assert (claim.verdict, claim.why) == (PARTLY, "not ahead of `optimus` in SLO")

    def test_names_weak_baseline(self) -> None:
        given = rows(optimus=0.3, themis=0.3)
        given["MIX1", "themis"] = rows(themis=0.9)["MIX1", "themis"]
        claim = unisched.ahead_claim(OVER_OTHERS, given)
        assert claim.verdict is PARTLY
        assert claim.why == "weak baseline, gain above the paper's: `themis` in MIX1"

    def test_gain_within_noise_of_seeds_is_no_gain(self) -> None:
        claim = unisched.ahead_claim(OVER_OTHERS, rows(noise=0.3, optimus=0.3, themis=0.3))
        assert claim.verdict is NO
        assert claim.why.startswith("ahead only within the noise of `optimus`, `themis` in SLO")

    def test_interval_is_that_of_student(self) -> None:
        """Gains of 1 and 3 in turn have the mean 2 and a standard deviation of 1.054."""
        ours = [{"x": 0.0} for _ in range(10)]
        theirs = [{"x": 1.0 + 2 * (seed % 2)} for seed in range(10)]
        assert unisched.gain_of(theirs, ours, "x") == pytest.approx((2.0, 2.26 / 3))

    def test_zero_misses_are_ahead_of_nonzero_misses_by_too_much(self) -> None:
        claim = unisched.ahead_claim(OVER_OTHERS, rows(unisched=0.0))
        assert (claim.verdict, claim.why[:13]) == (PARTLY, "weak baseline")
        given = rows(noise=0.0, unisched=0.0, optimus=0.0, themis=0.0)
        assert unisched.ahead_claim(OVER_OTHERS, given).verdict is NO

    def test_allows_ratio_below_one_if_paper_does(self) -> None:
        """The paper's own factor is 0.95, so a ratio below 1 is enough."""
        (mixed,) = [one for one in unisched.AHEAD if one.least < 1]
        assert unisched.ahead_claim(mixed, rows(genie=0.096)).verdict is YES
        assert unisched.ahead_claim(mixed, rows(genie=0.09)).verdict is PARTLY


class TestOtherClaims:
    def test_noise_may_cost_one_percentage_point(self) -> None:
        def verdict(*rates: float) -> ClaimVerdict:
            exact = {1: {"deadline_miss_rate": 0.1}, 2: {"deadline_miss_rate": 0.2}}
            noisy = {(40, seed): {"deadline_miss_rate": rate} for seed, rate in enumerate(rates, 1)}
            return unisched.noise_claim(exact, noisy).verdict

        assert [verdict(0.09, 0.2), verdict(0.109, 0.209), verdict(0.11, 0.22)] == [YES, YES, NO]

    def test_chronus_verdict(self) -> None:
        assert unisched.chronus_claim(rows(chronus=0.15)).verdict is YES
        assert unisched.chronus_claim(rows(chronus=0.12)).verdict is PARTLY
        assert unisched.chronus_claim(rows(chronus=0.09)).verdict is NO
        assert unisched.chronus_claim(rows(noise=0.2, chronus=0.15)).verdict is NO

    def test_suspension_and_speed_verdicts(self) -> None:
        given = rows()
        assert unisched.suspensions_claim(given).verdict is YES
        assert unisched.speed_claim(given).verdict is PARTLY
        for row in given["SLO", "unisched"]:
            row["slo_suspensions"] = 1.0
        given["SLO", "unisched"][-1]["slowest_round_s"] = 11.0
        assert unisched.suspensions_claim(given).verdict is PARTLY
        assert unisched.speed_claim(given).verdict is NO

    def test_there_are_ten_claims(self) -> None:
        whole, parts = (part.judge(made_up(part)).claims for part in unisched.PARTS)
        assert (len(whole), len(parts)) == (6, 4)

    def test_notes_name_greedy_rule_and_weak_baselines(self) -> None:
        given = rows(noise=0.0, unisched=0.02, evenshare=0.03, three_sigma=0.4, genie=0.9)
        assert "SLO 1.00 ± 0.00, MIX1 1.00 ± 0.00" in unisched.greedy_note(given)
        note = unisched.weak_note(given)
        assert "miss 5 to 45 times" in note
        assert "no success" in note

    @pytest.mark.parametrize(
        ("longest", "static", "verdict"), [(840, 100, YES), (841, 900, PARTLY), (841, 841, NO)]
    )
    def test_profiling_wait_verdict(self, longest: int, static: int, verdict: ClaimVerdict) -> None:
        given = waits(300, 900) | {"MIX2": waits(longest, static)["MIX2"]}
        assert unisched.profiling_claim(given).verdict is verdict

    def test_only_some_policies_have_the_iteration_estimator(self) -> None:
        """UniSched IV-D: Themis has it; Optimus fits only speeds."""
        knows = {
            name: json.loads(unisched_runs.policy_run("SLO", name, 1).arguments)["knows"]
            for name in COMPARED
        }
        has = {name for name, knowledge in knows.items() if knowledge == FIT}
        assert has == {"unisched", "themis", "evenshare", "optimus, with the estimator"}


class TestWorkloads:
    """The workload of a seed has the deadlines and stopping criteria of UniSched IV-B."""

    @pytest.fixture(scope="class")
    @classmethod
    def mixed(cls) -> dict[str, tuple[SimJob, ...]]:
        week = chronus("MIX2")
        return {knows: drawn(week, 3, knows).jobs for knows in (FIT, MAXIMUM)}

    def test_is_stratified_part_of_chronus_jobs(self, mixed: dict[str, tuple[SimJob, ...]]) -> None:
        fitting = [
            job
            for job in chronus("MIX2").jobs
            if job.gpus <= NODES * 8 and job.duration_us <= 24 * HOUR_US
        ]
        jobs = mixed[FIT]
        assert len(jobs) == -(-len(fitting) // STRATUM)
        assert [job.id for job in jobs] == list(range(1, len(jobs) + 1))
        kinds = {job.job_class for job in jobs}
        assert kinds == {"best_effort", "strict_slo", "soft_slo"}

    def test_first_deadlines_are_1_1_to_2_durations(
        self, mixed: dict[str, tuple[SimJob, ...]]
    ) -> None:
        factors = [
            (job.deadline_us - job.submitted_us) / job.duration_us
            for job in mixed[FIT]
            if job.deadline_us is not None
        ]
        assert 1.1 <= min(factors) < 1.15
        assert 1.95 < max(factors) <= 2
        assert sum(factors) / len(factors) == pytest.approx(1.55, abs=0.05)

    def test_soft_deadlines_follow_the_first(self, mixed: dict[str, tuple[SimJob, ...]]) -> None:
        soft = next(job for job in mixed[FIT] if job.job_class == "soft_slo")
        first = soft.values[0][0] - soft.submitted_us
        later = [(round((at - soft.submitted_us) / first, 4), value) for at, value in soft.values]
        assert later == [(1.0, 100), (1.1, 80), (1.2, 50), (1.5, 20)]

    def test_knowledge_changes_estimates_of_a_fifth_of_the_jobs(
        self, mixed: dict[str, tuple[SimJob, ...]]
    ) -> None:
        pairs = list(zip(mixed[FIT], mixed[MAXIMUM], strict=True))
        assert all(replace(one, estimate_us=0, estimate_error_milli=0)
                   == replace(other, estimate_us=0) for one, other in pairs)  # fmt: skip
        changed = [(one, other) for one, other in pairs if other.estimate_us != other.duration_us]
        assert 0.12 < len(changed) / len(pairs) < 0.28
        for one, other in changed:
            most, fit = (job.estimate_us or 0 for job in (other, one))
            assert 1 <= most / one.duration_us <= 1 / (1 - 0.31)
            assert 0.8 <= fit / one.duration_us <= 1.2
            assert fit <= most
            assert (one.estimate_error_milli, other.estimate_error_milli) == (115, 0)

    def test_seeds_differ(self) -> None:
        week = chronus("SLO")
        assert drawn(week, 1, FIT) != drawn(week, 2, FIT)

    def test_least_miss_rate_is_that_of_immediate_starts(self) -> None:
        """A job submitted right after a round waits 5 minutes; another meets its deadline."""
        late = SimJob(1, 1, 1, 1, MINUTE_US, deadline_us=2 * MINUTE_US)
        timely = SimJob(2, 1, 1, 0, MINUTE_US, deadline_us=2 * MINUTE_US)
        size = workload_size(Workload((late, timely), {1: "one"}))
        assert size["least_miss_rate"] == 0.5

    def test_run_under_policy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        few = replace(chronus("MIX2"), jobs=chronus("MIX2").jobs[:100])
        monkeypatch.setattr(deadline_runs, "chronus", lambda _: few)
        monkeypatch.setattr(deadline_runs, "NODES", 1)
        given: dict[str, Any] = {"workload": "MIX2", "seed": 1, "knows": MAXIMUM, "options": {}}
        row = run(policy="optimus", noise_percent=40, **given)
        assert 40 < row["jobs"] <= 50
        assert 0 < row["deadline_miss_rate"] < 1
        assert row["deadline_reward_rate"] == pytest.approx(1 - row["deadline_miss_rate"])
        assert row["best_effort_jct_s"] > 0
        assert "profiling_wait_s" not in row
        profiled = run(policy="sjf", noise_percent=0, profiling=True, **given)
        assert profiled["profiling_runs"] == profiled["jobs"] == row["jobs"]
        assert 0 < profiled["profiling_wait_s"] <= profiled["profiling_wait_max_s"]
        assert profiled["gpu_hours"] == row["gpu_hours"]

    def test_label_describes_noise_seed_and_profiling(self) -> None:
        run = deadline_run("SLO", "sjf", noise_percent=20, seed=3, profiling=True)
        assert run.label == "SLO: sjf, seed 3, estimates wrong by up to 20 %, with profiling runs"


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
