"""Baselines that know deadlines: the rule of each and its departures, on small pools by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import SCHEMA_VERSION, Change, ChangeKind, Snapshot
from evenshare_core.formulations.start_slots import Slots, StartJob, plan_starts
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.policies.baselines.runtimes import remaining_times, run_times
from evenshare_core.policies.shared.deadline_jobs import laxity_us, steps_left
from evenshare_core.units import REWARD_MICRO, SECOND_US
from tests.unit.core.snapshots import job, lease, snapshot

NOW_US = 1000 * SECOND_US


def steps(*ends_s: int) -> tuple[DeadlineStep, ...]:
    """Deadlines so many seconds from now; each has 20 points less than the one before."""
    return tuple(
        DeadlineStep(NOW_US + end_s * SECOND_US, (100 - 20 * place) * REWARD_MICRO)
        for place, end_s in enumerate(ends_s)
    )


def deadline(number: int, *ends_s: int) -> Deadline:
    kind = DeadlineClass.STRICT if len(ends_s) == 1 else DeadlineClass.SOFT
    return Deadline(number, kind, steps(*ends_s))


def asked(policy: str, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
    """4 GPUs for jobs 1, 2, ... of (GPUs, estimate in s, deadlines in s from now), all waiting."""
    jobs = [
        job(number, gpus, estimate_us=None if known is None else known * SECOND_US)
        for number, (gpus, known, _) in enumerate(rows, start=1)
    ]
    deadlines = tuple(
        deadline(number, *ends) for number, (_, _, ends) in enumerate(rows, start=1) if ends
    )
    return snapshot(
        jobs, policy=policy, deadlines=deadlines,
        **{"nodes": {1: 4}, "at_us": NOW_US, "schema": SCHEMA_VERSION, **fields},
    )  # fmt: skip


def order(one: Snapshot) -> list[int]:
    return list(queue_order(one, decide_round(one).service) or ())


def started(decision: Decision) -> list[int]:
    return [grant.job for grant in decision.grants]


class TestLaxity:
    @pytest.mark.parametrize(
        ("ends_s", "remaining_s", "expected_s"),
        [
            ((100,), 60, 40),
            ((100,), 100, 0),
            ((100,), 130, -30),
            ((100, 110, 120, 150), 105, 5),  # to the first that can be met
            ((100, 110, 120, 150), 151, -1),  # to the last where none can
        ],
    )
    def test_is_deadline_less_now_less_work(
        self, ends_s: tuple[int, ...], remaining_s: int, expected_s: int
    ) -> None:
        found = laxity_us(steps(*ends_s), NOW_US, remaining_s * SECOND_US)
        assert found == expected_s * SECOND_US

    def test_has_no_deadline_that_is_over(self) -> None:
        rows = (deadline(1, -5, 10), deadline(2, -5), deadline(3, 0))
        assert steps_left(rows, NOW_US) == {1: steps(-5, 10)[1:]}


class TestGenie:
    def test_takes_the_least_laxity_first_and_best_effort_last(self) -> None:
        """Slack of 400, 300 and 350 s; the deadline alone would say 3, 2, 1."""
        rows = ((4, 600, (1000,)), (4, 200, (500,)), (4, 100, (450,)), (4, 1, ()))
        assert order(asked("genie", *rows)) == [2, 3, 1, 4]

    def test_takes_best_effort_jobs_by_arrival(self) -> None:
        rows = ((1, 50, ()), (1, 1, ()), (1, 999, (1000,)))
        assert order(asked("genie", *rows)) == [3, 1, 2]

    def test_never_preempts(self) -> None:
        """The best-effort job goes on where its lease ends, however near the deadline is."""
        one = asked("genie", (4, 500, ()), (4, 10, (11,)), leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_lets_those_go_on_that_fit(self) -> None:
        rows = ((3, 10, (20,)), (2, 10, (40,)), (1, 10, ()))
        assert started(decide_round(asked("genie", *rows))) == [1, 3]

    def test_places_a_gang_on_one_node_and_tries_no_other_size(self) -> None:
        """Two and two are free; half of the gang would meet its deadline, and nothing starts."""
        fields: dict[str, Any] = {
            "nodes": {1: 4, 2: 4},
            "leases": [
                lease(7, 2, (1, 2), expires_us=2 * NOW_US),
                lease(8, 3, (2, 2), expires_us=2 * NOW_US),
            ],
        }
        rows = ((4, 10, (9000,)), (2, None, ()), (2, None, ()))
        assert started(decide_round(asked("genie", *rows, **fields))) == []
        spread = decide_round(asked("genie", *rows, **fields, options={"spread": True}))
        assert started(spread) == [1]

    def test_takes_a_job_without_an_estimate_to_need_what_the_operator_says(self) -> None:
        rows = ((4, 100, (9000,)), (4, None, (9000,)))
        assert order(asked("genie", *rows)) == [2, 1]
        assert order(asked("genie", *rows, options={"unknown_s": 99})) == [1, 2]

    @pytest.mark.parametrize(("ran_s", "expected"), [(0, [1, 2]), (99, [1, 2]), (101, [2, 1])])
    def test_counts_what_a_job_received_before_it_waited(
        self, ran_s: int, expected: list[int]
    ) -> None:
        """Slack of 400 s and what the first ran already, less than 500 s or more."""
        changes = (
            Change(NOW_US - ran_s * SECOND_US, ChangeKind.HOLD, 1, 1, 4, ("v100",)),
            Change(NOW_US, ChangeKind.RELEASE, 1, 1),
        )
        rows = ((4, 1100, (1500,)), (4, 200, (700,)))
        assert order(asked("genie", *rows, changes=changes)) == expected

    def test_takes_what_is_late_after_what_can_be_met(self) -> None:
        rows = ((4, 600, (500,)), (4, 200, (900,)), (4, 5, ()))
        assert order(asked("genie", *rows)) == [2, 1, 3]
        assert order(asked("genie", *rows, options={"late_first": True})) == [1, 2, 3]

    def test_takes_a_job_whose_last_deadline_is_over_as_best_effort(self) -> None:
        rows = ((4, 5, ()), (4, 5, (-1,)), (4, 5, (-1, 1)))
        assert order(asked("genie", *rows)) == [3, 1, 2]

    @pytest.mark.parametrize(
        ("ends_s", "note"), [((50,), "least_laxity"), ((5,), "late"), ((), "best_effort")]
    )
    def test_says_why_it_was_the_next(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(asked("genie", (4, 10, ends_s)))
        assert decision.grants[0].key.note == note


class TestHydra:
    def test_takes_deadlines_first_and_the_least_left_of_each(self) -> None:
        rows = ((1, 9, ()), (1, 3, ()), (1, 80, (90,)), (1, 70, (9000,)))
        assert order(asked("hydra", *rows)) == [4, 3, 2, 1]

    def test_asks_which_class_a_deadline_makes_and_not_how_near_it_is(self) -> None:
        """The second would meet its deadline if it were first; the shorter one has all day."""
        rows = ((4, 10, (86_400,)), (4, 11, (11,)))
        assert started(decide_round(asked("hydra", *rows))) == [1]

    def test_never_preempts(self) -> None:
        one = asked("hydra", (4, 500, ()), (4, 10, (11,)), leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_lets_those_go_on_that_fit(self) -> None:
        rows = ((3, 10, (20,)), (2, 11, (40,)), (1, 10, ()))
        assert started(decide_round(asked("hydra", *rows))) == [1, 3]

    def test_takes_a_job_without_an_estimate_to_need_what_the_operator_says(self) -> None:
        rows = ((4, 100, ()), (4, None, ()))
        assert order(asked("hydra", *rows)) == [1, 2]
        assert order(asked("hydra", *rows, options={"unknown_s": 99})) == [2, 1]

    def test_takes_a_job_whose_last_deadline_is_over_as_best_effort(self) -> None:
        rows = ((4, 5, ()), (4, 4, (-1,)), (4, 6, (1,)))
        assert order(asked("hydra", *rows)) == [3, 2, 1]

    @pytest.mark.parametrize(("ends_s", "note"), [((50,), "slo"), ((), "best_effort")])
    def test_says_why_it_was_the_next(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(asked("hydra", (4, 10, ends_s)))
        assert decision.grants[0].key.note == note


def estimates(*errors_milli: int) -> tuple[JobEstimate, ...]:
    """How far the estimates of jobs 1, 2, ... may be off."""
    return tuple(
        JobEstimate(number, EstimateSource.HISTORY, error)
        for number, error in enumerate(errors_milli, start=1)
    )


class TestRunTimes:
    def test_are_eight_equally_likely_lengths_around_the_estimate(self) -> None:
        lengths = run_times(1000, 200)
        assert lengths == (693, 822, 902, 968, 1031, 1097, 1177, 1306)
        assert run_times(1000, 0) == (1000,) * 8

    def test_are_never_below_a_small_part_of_it(self) -> None:
        assert run_times(1000, 2000)[:3] == (50, 50, 50)

    def test_left_are_those_that_a_job_did_not_outlive(self) -> None:
        assert remaining_times((10, 20, 30), 0) == (10, 20, 30)
        assert remaining_times((10, 20, 30), 10) == (10, 20)

    @pytest.mark.parametrize(("ran", "left"), [(30, 1), (31, 1), (50, 20), (90, 60)])
    def test_of_one_that_outlived_them_all_double(self, ran: int, left: int) -> None:
        assert remaining_times((10, 20, 30), ran) == (left,)


SLOTS = 4


def drawn_starts(seed: int) -> tuple[list[StartJob], dict[str, Slots]]:
    """Some jobs for two GPU types with little room."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    free = {
        name: np.array([rng.randrange(8, 40) for _ in range(SLOTS)], dtype=np.int64)
        for name in ("k80", "v100")
    }
    jobs = []
    for number in range(1, rng.randrange(2, 6)):
        uses = sorted((rng.randrange(25) for _ in range(SLOTS)), reverse=True)
        earns = [rng.choice((0, rng.randrange(1, 10**8))) for _ in range(SLOTS)]
        types = rng.choice((("k80",), ("v100",), ("k80", "v100")))
        jobs.append(StartJob(number, types, np.array(uses), np.array(earns)))
    return jobs, free


def best_utility(jobs: list[StartJob], free: dict[str, Slots]) -> int:
    """The most that any plan earns, by trying all."""
    if not jobs:
        return 0
    first, rest = jobs[0], jobs[1:]
    best = best_utility(rest, free)
    for name in first.gpu_types:
        for slot in range(SLOTS):
            left = {key: row.copy() for key, row in free.items()}
            left[name][slot:] -= first.uses[: SLOTS - slot]
            if first.utilities[slot] and (left[name] >= 0).all():
                best = max(best, int(first.utilities[slot]) + best_utility(rest, left))
    return best


class TestStarts:
    def test_are_the_best_of_all_plans(self) -> None:
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=99)
            assert (plan.utility, plan.limit) == (best_utility(jobs, free), "")

    def test_that_are_quick_say_how_far_they_can_be_from_it(self) -> None:
        below = 0
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=0)
            best = best_utility(jobs, free)
            assert plan.utility <= best <= plan.bound
            assert bool(plan.limit) == (plan.utility < plan.bound)
            below += plan.utility < best
        assert below, "the program is there for something"

    def test_stay_within_what_is_free(self) -> None:
        for seed in range(60):
            jobs, free = drawn_starts(seed)
            plan = plan_starts(jobs, free, exact_jobs=99)
            by_id = {job.id: job for job in jobs}
            for number, (name, slot) in plan.starts.items():
                free[name][slot:] -= by_id[number].uses[: SLOTS - slot]
            assert all((row >= 0).all() for row in free.values())


class TestThreeSigma:
    """Slots of a minute, so that a second job of two would start a minute later."""

    TWO = ((4, 100, (120,)), (4, 100, (110,)))

    def asked(self, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
        options = {"slot_s": 60, "window_slots": 5, "error": 0.0, **fields.pop("options", {})}
        return asked("three_sigma", *rows, options=options, **fields)

    @pytest.mark.parametrize(
        ("errors", "exact_jobs", "first"),
        [
            ((0, 1000), 16, 1),  # 100 points against half of the lengths in time
            ((1000, 0), 16, 2),
            ((0, 1000), 0, 1),  # what earns more for its use is tried first as well
        ],
    )
    def test_starts_what_is_expected_to_earn_most(
        self, errors: tuple[int, int], exact_jobs: int, first: int
    ) -> None:
        one = self.asked(
            *self.TWO, estimates=estimates(*errors), options={"exact_jobs": exact_jobs}
        )
        assert started(decide_round(one)) == [first]

    def test_says_how_far_a_quick_plan_may_be_from_the_best(self) -> None:
        one = self.asked(*self.TWO, estimates=estimates(0, 1000), options={"exact_jobs": 0})
        solve = decide_round(one).solve
        assert solve is not None
        assert solve.status == "feasible"
        # 50 of 150 points are missing, nearly.
        assert solve.fallback == "at most 33.33% below the best plan: more than 0 jobs"
        exact = decide_round(self.asked(*self.TWO, estimates=estimates(0, 1000))).solve
        assert exact is not None
        assert (exact.status, exact.objective, exact.fallback) == ("optimal", 100.005, "")

    def test_takes_estimates_that_say_no_error_as_the_operator_says(self) -> None:
        """One of the two can be in time: of sure ones the nearer deadline, else the sure one."""
        rows = ((4, 100, (170,)), (4, 100, (110,)))
        assert started(decide_round(self.asked(*rows))) == [2]
        wide = self.asked(*rows, options={"error": 2.0}, estimates=estimates(0))
        assert started(decide_round(wide)) == [1]

    def test_lets_deadlines_preempt_best_effort_where_leases_end(self) -> None:
        rows = ((4, 500, ()), (4, 100, (110,)))
        one = self.asked(*rows, leases=[lease(7, 1, (1, 4))])
        decision = decide_round(one)
        assert (started(decision), [row.lease for row in decision.ends]) == ([2], [7])
        holds = lease(7, 1, (1, 4), expires_us=NOW_US + 1)
        assert started(decide_round(self.asked(*rows, leases=[holds]))) == []

    def test_never_preempts_a_job_with_a_deadline(self) -> None:
        rows = ((4, 5000, (86_400,)), (4, 100, (110,)))
        decision = decide_round(self.asked(*rows, leases=[lease(7, 1, (1, 4))]))
        assert ([row.job for row in decision.renewals], started(decision)) == ([1], [])

    def test_lets_best_effort_have_what_is_planned_for_later(self) -> None:
        """Two GPUs are in use for two slots more, by what is known; then the gang starts."""
        runs = lease(7, 1, (1, 2), expires_us=2 * NOW_US)
        rows = ((2, 1110, (2000,)), (4, 100, (250,)), (2, 50, ()))
        decision = decide_round(self.asked(*rows, leases=[runs]))
        assert started(decision) == [3]
        assert decision.solve is not None
        assert decision.solve.objective == 100.003  # it starts in the third slot of five

    def test_takes_best_effort_jobs_by_what_is_left_and_those_that_run_first(self) -> None:
        rows = ((2, 500, ()), (2, 90, ()), (2, 80, ()))
        assert order(self.asked(*rows, leases=[lease(7, 1, (1, 2))])) == [1, 3, 2]

    @pytest.mark.parametrize(("ends_s", "first"), [((90,), 2), ((100,), 1)])
    def test_takes_what_can_meet_no_deadline_as_best_effort(
        self, ends_s: tuple[int, ...], first: int
    ) -> None:
        assert started(decide_round(self.asked((4, 100, ends_s), (4, 50, ())))) == [first]

    def test_takes_a_job_without_an_estimate_to_need_what_the_operator_says(self) -> None:
        rows = ((4, None, (100,)), (4, 50, ()))
        assert started(decide_round(self.asked(*rows))) == [2]
        assert started(decide_round(self.asked(*rows, options={"unknown_s": 99}))) == [1]

    def test_takes_soft_deadlines_by_what_they_earn(self) -> None:
        """Who starts two minutes later has 80 points for the soft one, 0 for the strict one."""
        rows = ((4, 100, (110, 230)), (4, 100, (115,)))
        assert started(decide_round(self.asked(*rows))) == [2]

    def test_counts_gpus_in_its_slots_and_not_nodes(self) -> None:
        """Two and two are free: it is planned now, and waits; the best-effort job starts."""
        fields: dict[str, Any] = {
            "nodes": {1: 4, 2: 4},
            "leases": [
                lease(7, 2, (1, 2), expires_us=2 * NOW_US),
                lease(8, 3, (2, 2), expires_us=2 * NOW_US),
            ],
        }
        rows = ((4, 100, (500,)), (2, 9000, ()), (2, 9000, ()), (2, 9000, ()))
        decision = decide_round(self.asked(*rows, **fields))
        assert started(decision) == [4]
        assert decision.solve is not None
        assert decision.solve.objective == 100.005

    @pytest.mark.parametrize(("ends_s", "note"), [((150,), "planned_start"), ((), "best_effort")])
    def test_says_why_it_was_the_next(self, ends_s: tuple[int, ...], note: str) -> None:
        decision = decide_round(self.asked((4, 100, ends_s)))
        assert decision.grants[0].key.note == note


class TestChronus:
    """Leases of 600 s, on nodes of 8 GPUs."""

    def asked(self, *rows: tuple[int, int | None, tuple[int, ...]], **fields: Any) -> Snapshot:
        return asked("chronus", *rows, **{"nodes": {1: 8}, "lease_us": 600 * SECOND_US, **fields})

    def points(self, one: Snapshot) -> float | None:
        solve = decide_round(one).solve
        return None if solve is None else solve.objective

    GOLDEN = ((6, 4800, (6000,)),) * 4
    SPREADS = tuple(JobEstimate(n, EstimateSource.HISTORY, 0, 0, 800) for n in range(1, 5))

    @pytest.mark.parametrize(("is_on", "points"), [(False, 300), (True, 400)])
    def test_meets_three_of_four_deadlines_where_the_selector_meets_all(
        self, *, is_on: bool, points: int
    ) -> None:
        """UniSched II-C: four jobs of 6 GPUs on three nodes; 4 x 8 leases do not fit 3 x 10."""
        one = self.asked(
            *self.GOLDEN, nodes={1: 8, 2: 8, 3: 8}, estimates=self.SPREADS,
            options={"selector": is_on, "estimator": True},
        )  # fmt: skip
        decision = decide_round(one)
        assert sorted(len(row.placement) for row in decision.grants) == [1, 1, 1, 3][: 3 + is_on]
        assert self.points(one) == points

    def test_plans_by_rewards_and_gives_others_the_rest_by_what_is_left(self) -> None:
        rows = ((4, 600, (700, 1900)), (8, 600, (650,)), (4, 500, ()), (4, 400, ()))
        one = self.asked(*rows)
        assert started(decide_round(one)) == [2]
        assert self.points(one) == 180  # the soft one runs a lease later, for 80
        assert order(one) == [2, 4, 3, 1]

    def test_preempts_others_where_their_leases_end(self) -> None:
        rows = ((8, 5000, ()), (8, 600, (650,)), (8, 50, ()))
        one = self.asked(*rows, leases=[lease(7, 1, (1, 8))])
        decision = decide_round(one)
        assert (started(decision), [row.lease for row in decision.ends]) == ([2], [7])
        goes_on = lease(7, 1, (1, 8), expires_us=NOW_US + 1)
        assert started(decide_round(self.asked(*rows, leases=[goes_on]))) == []

    def test_suspends_a_job_with_slack_for_one_without(self) -> None:
        rows = ((8, 2800, (9000,)), (8, 600, (700,)))
        assert started(decide_round(self.asked(*rows, leases=[lease(7, 1, (1, 8))]))) == [2]

    def test_rounds_a_gang_up_to_the_next_cell(self) -> None:
        """Six GPUs are planned as eight; two of them are left for others all the same."""
        rows = ((6, 600, (700,)), (2, 600, (700,)), (2, 600, ()))
        one = self.asked(*rows)
        assert self.points(one) == 100
        assert len(decide_round(one).grants) == 2

    def test_keeps_a_gang_that_goes_on_where_it_is(self) -> None:
        """Of its node two GPUs are in use by another, so that no cell of 8 is free."""
        leases = [lease(7, 1, (1, 6)), lease(8, 2, (1, 2), expires_us=2 * NOW_US)]
        rows = ((6, 3000, (3600,)), (2, 9000, ()))
        decision = decide_round(self.asked(*rows, leases=leases))
        assert [(row.job, row.key.note) for row in decision.renewals] == [(1, "planned_lease")]

    def test_moves_no_lease_that_goes_on(self) -> None:
        """The first could wait, and keeps its GPUs until its lease ends."""
        goes_on = lease(7, 1, (1, 8), expires_us=NOW_US + 1)
        rows = ((8, 5400, (50_000,)), (8, 600, (1300,)))
        one = self.asked(*rows, leases=[goes_on])
        assert started(decide_round(one)) == []
        assert self.points(one) == 0

    @pytest.mark.parametrize(
        ("work_s", "end_s", "points"), [(300, 400, 100), (900, 900, 100), (900, 899, None)]
    )
    def test_counts_a_deadline_by_when_the_work_can_begin(
        self, work_s: int, end_s: int, points: int | None
    ) -> None:
        """None is in whole leases of 600 s: its last one ends after the deadline."""
        assert self.points(self.asked((8, work_s, (end_s,)))) == points

    @pytest.mark.parametrize(("is_on", "points"), [(False, 200), (True, 100)])
    def test_counts_interruptions_with_the_estimator(self, *, is_on: bool, points: int) -> None:
        """Two leases of work in three: a third of an interruption, so that it takes three."""
        rows = ((8, 1200, (1900,)), (8, 600, (1900,)))
        known = (JobEstimate(1, EstimateSource.HISTORY, 0, 600 * SECOND_US),)
        one = self.asked(*rows, estimates=known, options={"estimator": is_on})
        assert self.points(one) == points

    def test_keeps_gpus_for_profiling_if_it_is_asked_to(self) -> None:
        rows = ((4, 600, (700,)), (4, 600, ()))
        one = self.asked(*rows, nodes={1: 4, 2: 4})
        assert started(decide_round(one)) == [1, 2]
        kept = self.asked(*rows, nodes={1: 4, 2: 4}, options={"profiling_gpus": 1})
        assert [row.placement for row in decide_round(kept).grants] == [((1, 4),)]

    def test_takes_what_can_meet_no_deadline_by_what_is_left(self) -> None:
        rows = ((8, 600, (500,)), (8, 400, ()))
        assert order(self.asked(*rows)) == [2, 1]

    def test_takes_a_job_without_an_estimate_to_need_what_the_operator_says(self) -> None:
        rows = ((8, None, (700,)),)
        assert self.points(self.asked(*rows)) is None
        assert self.points(self.asked(*rows, options={"unknown_s": 600})) == 100

    def test_plans_no_gang_of_several_nodes_that_are_small(self) -> None:
        rows = ((8, 600, (700,)),)
        one = self.asked(*rows, nodes={1: 4, 2: 4})
        assert self.points(one) == 0
        assert started(decide_round(one)) == [1]  # after all that are planned

    def test_plans_a_job_on_the_gpu_type_that_it_claims(self) -> None:
        """The other type is tried with what plans leave."""
        one = self.asked((8, 600, (700,)), (8, 600, (700,)))
        both = replace(one, nodes=(*one.nodes, Node(2, "k80", 8)))
        assert self.points(both) == 100
        given = [(row.gpu_type, row.key.note) for row in decide_round(both).grants]
        assert given == [("v100", "planned_lease"), ("k80", "left_over")]

    def test_plans_no_further_than_its_horizon(self) -> None:
        """Of the second all four leases can run after the first lease."""
        rows = ((8, 600, (700,)), (8, 2400, (3700,)))
        for leases, points in ((1, 200), (7, 200)):
            one = self.asked(*rows, options={"horizon_leases": leases})
            assert (started(decide_round(one)), self.points(one)) == ([1], points)
