"""Test baselines that order jobs: their rules, on small pools by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.jobs import Job
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import SECOND_US
from evenshare_research.policies.themis import ThemisOptions
from evenshare_research.policies.tiresias_l import TiresiasOptions
from tests.papers.test_baselines import Times, job, run
from tests.unit.core.snapshots import job as waiting_job
from tests.unit.core.snapshots import snapshot

MINUTE_S = 60


def first_round(policy: str, *gangs: tuple[int, int | None], **fields: Any) -> Decision:
    """Decide a round of 4 GPUs; jobs 1, 2, ... of (GPUs, estimate in s) all wait."""
    jobs = [
        waiting_job(index, gpus, estimate_us=None if known is None else known * SECOND_US)
        for index, (gpus, known) in enumerate(gangs, start=1)
    ]
    return decide_round(snapshot(jobs, nodes={1: 4}, policy=policy, **fields))


def started(decision: Decision) -> list[int]:
    return [grant.job for grant in decision.grants]


class TestTiresias:
    JOBS = [job(1, 4, 500), job(2, 4, 20, at_s=5)]

    def test_prefers_jobs_with_less_attained_service(self) -> None:
        """At 100 s the first job has 400 GPU-seconds, so it leaves the first queue."""
        found = run("tiresias_l", self.JOBS, {1: 4}, first_threshold=400)
        assert found == {1: Times(0, 520), 2: Times(100, 120)}

    def test_is_fifo_within_a_queue(self) -> None:
        """With one GPU-second less, both are still in one queue when the first lease ends."""
        found = run("tiresias_l", self.JOBS, {1: 4}, first_threshold=401)
        assert found == {1: Times(0, 520), 2: Times(200, 220)}

    @pytest.mark.parametrize(("first_threshold", "start_s"), [(300, 101), (301, 201)])
    def test_attained_service_is_gpu_time(self, first_threshold: int, start_s: int) -> None:
        """Three GPUs for 100 s are 300 GPU-seconds. With one GPU, the job stays in its queue."""
        jobs = [job(1, 1, 500), job(2, 3, 500, at_s=1), job(3, 3, 10, at_s=2)]
        found = run("tiresias_l", jobs, {1: 4}, first_threshold=first_threshold)
        assert found[3].start_s == start_s
        assert found[1] == Times(0, 500)

    def test_uses_configured_number_of_queues(self) -> None:
        options = TiresiasOptions(queues=4, first_threshold=100, threshold_factor=3)
        received = [0, 99, 100, 299, 300, 899, 900, 10**6]
        queues = [options.queue_of(gpu_s * SECOND_US) for gpu_s in received]
        assert queues == [0, 0, 1, 1, 2, 2, 3, 3]

    @pytest.mark.parametrize(("promote_after", "end_s"), [(0, 830), (2, 470)])
    def test_promotes_starved_jobs(self, promote_after: int, end_s: int) -> None:
        """The first job ran for 100 s.

        After that, jobs of 90 s run before it, one after the other.
        """
        jobs = [job(1, 4, 200), *(job(i, 4, 90, at_s=5 + i) for i in range(2, 9))]
        found = run("tiresias_l", jobs, {1: 4}, first_threshold=400, promote_after=promote_after)
        assert found[1] == Times(0, end_s)

    def test_keeps_session_unless_promotion_is_on(self) -> None:
        policy = POLICIES["tiresias_l"]
        assert policy.session({}) is not None
        assert policy.session({"promote_after": 1}) is None

    def test_grant_notes_queue(self) -> None:
        decision = first_round("tiresias_l", (1, None))
        assert decision.grants[0].key.note == "first_queue"


class TestThemis:
    def test_equal_jobs_take_turns(self) -> None:
        """Figure 6 (b) of Astraea-LTGF: gangs of 4, 2 and 2 on 4 GPUs, leases of 10 min."""
        jobs = [job(1, 4, 40 * MINUTE_S), *(job(i, 2, 40 * MINUTE_S) for i in (2, 3))]
        found = run("themis", jobs, {1: 4}, lease_us=10 * MINUTE_S * SECOND_US)
        assert found == {
            1: Times(0, 70 * MINUTE_S),
            2: Times(10 * MINUTE_S, 80 * MINUTE_S),
            3: Times(10 * MINUTE_S, 80 * MINUTE_S),
        }

    def test_prefers_short_job_after_equal_wait(self) -> None:
        """After a wait of 100 s, the ratios are 200 / 100 and 600 / 500."""
        jobs = [job(1, 4, 100), job(2, 4, 500), job(3, 4, 100)]
        found = run("themis", jobs, {1: 4})
        assert (found[3].start_s, found[2].start_s) == (100, 200)

    def test_prefers_long_job_after_longer_wait(self) -> None:
        """At 300 s, the ratios are (300 + 400) / 400 = 1.75 and (40 + 100) / 100 = 1.4."""
        jobs = [job(1, 4, 300), job(2, 4, 400), job(3, 4, 100, at_s=260)]
        found = run("themis", jobs, {1: 4}, lease_us=1000 * SECOND_US)
        assert (found[2].start_s, found[3].start_s) == (300, 700)

    def test_uses_configured_runtime_without_estimate(self) -> None:
        """Both jobs arrived at about the same time; 30 s is shorter than 60 s, an hour is not."""
        fields: dict[str, Any] = {"at_us": 10 * SECOND_US}
        gangs = ((4, 60), (4, None))
        short = first_round("themis", *gangs, options={"unknown_s": 30}, **fields)
        assert started(short) == [2]
        assert started(first_round("themis", *gangs, **fields)) == [1]

    def test_error_factor_is_hash_of_job_fields(self) -> None:
        options = ThemisOptions(estimate_error=0.25)
        jobs = [Job(index, 1, 2, index * SECOND_US, estimate_us=60) for index in range(1, 2000)]
        factors = [options.error_factor(job) for job in jobs]
        # The SHA-256 hash of "1000000 2 60" begins with 59e4bb82.
        assert round(float(factors[0]), 6) == 0.925573
        assert options.error_factor(replace(jobs[0], id=77, tenant=5)) == factors[0]
        assert Fraction(3, 4) <= min(factors) < Fraction(76, 100)
        assert Fraction(124, 100) < max(factors) <= Fraction(5, 4)
        mean = sum(factors, Fraction(0)) / len(factors)
        assert Fraction(99, 100) < mean < Fraction(101, 100)
        assert ThemisOptions().error_factor(jobs[0]) == 1

    def test_estimate_error_can_change_order(self) -> None:
        """Eight jobs have about the same length."""
        orders = {
            error: started(
                first_round(
                    "themis",
                    *((4, 1000 + index) for index in range(8)),
                    options={"estimate_error": error},
                    at_us=500 * SECOND_US,
                )
            )
            for error in (0.0, 0.5)
        }
        assert orders[0.0] == [1]
        assert orders[0.5] != [1]


class TestOptimus:
    def test_prefers_largest_gain_per_gpu(self) -> None:
        """A lease of 600 s saves 600 / 1800 on 4 GPUs, 1/12 per GPU, and 600 / 6000 on one GPU."""
        jobs = [job(1, 4, 30 * MINUTE_S), job(2, 1, 100 * MINUTE_S)]
        found = run("optimus", jobs, {1: 4}, lease_us=600 * SECOND_US)
        assert found == {1: Times(6000, 7800), 2: Times(0, 6000)}
        found = run("srtf", jobs, {1: 4}, lease_us=600 * SECOND_US)
        assert found == {1: Times(0, 1800), 2: Times(1800, 7800)}

    def test_prefers_smaller_gang_if_both_end_within_lease(self) -> None:
        """Both jobs end: the gain per GPU is 1/2 for the gang of 2, and 1 for a single GPU."""
        assert started(first_round("optimus", (3, 10), (2, 500))) == [2]

    def test_uses_remaining_work(self) -> None:
        """At 300 s, the first job has 800 GPU-seconds left, and the second has 1200."""
        jobs = [job(1, 4, 500), job(2, 4, 300, at_s=250)]
        assert run("optimus", jobs, {1: 4})[1] == Times(0, 500)
        assert run("optimus", jobs, {1: 4}, lease_us=250 * SECOND_US)[2].start_s == 500

    def test_uses_configured_runtime_without_estimate(self) -> None:
        gangs = ((4, 7200), (4, None))
        assert started(first_round("optimus", *gangs)) == [2]
        options = {"unknown_s": 8000}
        assert started(first_round("optimus", *gangs, options=options)) == [1]
