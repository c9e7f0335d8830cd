"""Deadlines and uncertainty of estimates in a simulated pool's snapshot."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.simulation.deadline_jobs import deadline_of
from evenshare_core.simulation.outlook import look_ahead
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.starts import EndedJob, Futures, History
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import (
    Cluster,
    SimJob,
    make_nodes,
    noisy_estimates,
)
from evenshare_core.units import HOUR_US, REWARD_MICRO, SECOND_US

POINTS = 100 * REWARD_MICRO
CLUSTER = Cluster(make_nodes({"v100": 2}, 4), (Entitlement(1, "v100", 8),))
FIRST, SECOND, THIRD = (hour * HOUR_US for hour in (1, 2, 3))


def sim(id_: int, gpus: int = 1, **fields: Any) -> SimJob:
    fields = {"estimate_us": HOUR_US, **fields}
    return SimJob(id_, 1, gpus, 0, HOUR_US, **fields)


def strict(id_: int, **fields: Any) -> SimJob:
    return sim(id_, deadline_us=SECOND, **fields)


SOFT = sim(2, deadline_us=FIRST, values=((FIRST, 10), (SECOND, 8), (THIRD, 3)))


def state_of(*jobs: SimJob, cluster: Cluster = CLUSTER, **rules: Any) -> SimulationState:
    state = SimulationState(cluster, jobs, Rules("fifo", **rules))
    state.advance(0)
    return state


class TestSnapshot:
    def test_lists_active_profiling_runs(self) -> None:
        state = state_of(sim(1), sim(2, is_profiler=True))
        assert (state.snapshot().profilers, state.snapshot().schema) == ((2,), 9)
        assert state_of(sim(1)).snapshot().profilers == ()

    def test_scales_steps_to_100_points(self) -> None:
        snapshot = state_of(strict(1), SOFT, sim(3)).snapshot()
        assert snapshot.deadlines == (
            Deadline(1, DeadlineClass.STRICT, (DeadlineStep(SECOND, POINTS),)),
            Deadline(
                2,
                DeadlineClass.SOFT,
                (
                    DeadlineStep(FIRST, POINTS),
                    DeadlineStep(SECOND, 80 * REWARD_MICRO),
                    DeadlineStep(THIRD, 30 * REWARD_MICRO),
                ),
            ),
        )
        assert (snapshot.schema, snapshot.estimates) == (8, ())

    def test_lists_only_deadlines_of_active_jobs(self) -> None:
        state = state_of(strict(1), replace(strict(2), submitted_us=SECOND_US))
        assert [row.id for row in state.snapshot().deadlines] == [1]
        state.advance(SECOND_US)
        assert [row.id for row in state.snapshot().deadlines] == [1, 2]

    def test_keeps_schema_2_without_deadlines(self) -> None:
        """Such a pool also has no noise, no cold starts, and no cost of several nodes."""
        cluster = replace(CLUSTER, spread_milli=800)
        jobs = noisy_estimates([sim(1), sim(2)], 1, 0.2)
        snapshot = state_of(*jobs, cluster=cluster, cold_us=SECOND_US).snapshot()
        assert (snapshot.schema, snapshot.deadlines, snapshot.estimates) == (2, (), ())

    def test_drops_steps_that_do_not_decrease(self) -> None:
        level = ((FIRST, 10), (SECOND, 10), (THIRD, 4))
        steps = (DeadlineStep(SECOND, POINTS), DeadlineStep(THIRD, 40 * REWARD_MICRO))
        assert deadline_of(replace(SOFT, values=level)) == Deadline(2, DeadlineClass.SOFT, steps)
        tiny = ((FIRST, 10**9), (SECOND, 1))
        assert deadline_of(replace(SOFT, values=tiny)) == Deadline(
            2, DeadlineClass.STRICT, (DeadlineStep(FIRST, POINTS),)
        )

    def test_rounds_rewards_down_to_millionths(self) -> None:
        row = deadline_of(replace(SOFT, values=((FIRST, 3), (SECOND, 2), (THIRD, 1))))
        assert row is not None
        assert [step.reward_micro for step in row.steps] == [100_000_000, 66_666_666, 33_333_333]


class TestEstimates:
    def test_contain_standard_error_of_noise(self) -> None:
        """Uniform noise of up to 20 % has a standard error of 20 % / sqrt(3), which is 11.5 %."""
        jobs = noisy_estimates([strict(1), sim(2)], 1, 0.2)
        snapshot = state_of(*jobs).snapshot()
        assert snapshot.estimates == tuple(
            JobEstimate(job, EstimateSource.DECLARED, 115) for job in (1, 2)
        )
        assert all(0.8 * HOUR_US <= job.estimate_us <= 1.2 * HOUR_US for job in snapshot.jobs)  # type: ignore[operator]  # given

    def test_noise_depends_only_on_seed(self) -> None:
        jobs = [sim(number) for number in range(1, 9)]
        assert noisy_estimates(jobs, 7, 0.4) == noisy_estimates(jobs, 7, 0.4)
        assert noisy_estimates(jobs, 7, 0.4) != noisy_estimates(jobs, 8, 0.4)

    def test_contain_restart_and_multi_node_costs(self) -> None:
        cluster = replace(CLUSTER, spread_milli=900)
        jobs = (
            strict(1),
            sim(2, cold_us=0, checkpoint_us=5, spread=(("a100", 700), ("", 800))),
            sim(3, gpus=6),  # the gang spans nodes on any placement
            sim(4, estimate_us=None),
            sim(5, gpus=4),  # the gang fills a node
        )
        snapshot = state_of(*jobs, cluster=cluster, cold_us=30, checkpoint_us=10).snapshot()
        assert [(row.id, row.overhead_us, row.spread_milli) for row in snapshot.estimates] == [
            (1, 40, 900), (2, 5, 700), (3, 40, 1000), (5, 40, 900),
        ]  # fmt: skip


class TestResumedState:
    def test_keeps_deadlines_and_estimates(self) -> None:
        jobs = noisy_estimates([strict(1), SOFT], 1, 0.2)
        snapshot = state_of(*jobs).snapshot()
        work = {job.id: Work(HOUR_US) for job in snapshot.jobs}
        again = PresentState(Start(snapshot, work))
        assert canonical_bytes(again.snapshot()) == canonical_bytes(snapshot)

    def test_keeps_first_step_below_100_points(self) -> None:
        row = Deadline(1, DeadlineClass.STRICT, (DeadlineStep(SECOND, 70 * REWARD_MICRO),))
        snapshot = msgspec.structs.replace(state_of(strict(1)).snapshot(), deadlines=(row,))
        again = PresentState(Start(snapshot, {1: Work(HOUR_US)}))
        assert again.snapshot().deadlines == (row,)

    def test_counts_value_lost_by_late_soft_job(self) -> None:
        snapshot = state_of(SOFT).snapshot()
        late = Start(snapshot, {2: Work(HOUR_US + SECOND_US)})
        row = look_ahead(late, late.rules, until_us=SECOND).row
        assert abs(row["deadline_miss_rate"] - 0.2) < 1e-9

    def test_generated_arrivals_keep_deadline_distance(self) -> None:
        past = Job(9, 1, 1, 0, (), 1, estimate_us=HOUR_US)
        steps = (DeadlineStep(FIRST, POINTS), DeadlineStep(SECOND, 50 * REWARD_MICRO))
        history = History(
            tuple(EndedJob(1, HOUR_US) for _ in range(20)),
            (past,),
            HOUR_US,
            deadlines={9: Deadline(9, DeadlineClass.SOFT, steps)},
        )
        snapshot = state_of(sim(1)).snapshot()
        start = Start(snapshot, {1: Work(HOUR_US)})
        drawn = Futures(start, history, Random(1)).draw(4 * HOUR_US)  # noqa: S311 - a test
        assert drawn.arrivals
        for job in drawn.arrivals:
            assert [at_us - job.submitted_us for at_us, _ in job.values] == [FIRST, SECOND]
            assert job.deadline_us == job.submitted_us + FIRST
        state = PresentState(drawn)
        state.advance(drawn.arrivals[0].submitted_us)
        assert len(state.snapshot().deadlines) == 1
