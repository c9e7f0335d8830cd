"""Exchange of slot 0 to help shorter jobs: which jobs give it up, and invariants of plans.

Source: docs/policies/unisched.md.
"""

from __future__ import annotations

from random import Random

import pytest

from evenshare_core.deadlines.compact import compact_program
from evenshare_core.deadlines.exchange import shortest_now
from evenshare_core.deadlines.model import RewardStep, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import all_options, free_cells, two_speeds, useful_options
from evenshare_core.deadlines.plans import faults
from evenshare_core.deadlines.reserve import SlotReservations
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.formulations.selector import select
from evenshare_core.units import REWARD_MICRO
from tests.papers.unisched_pools import SLOT


def dated(number: int, gpus: int, leases: int, deadline: int, ready: int = 0) -> SelectorJob:
    """Return a job of `leases` leases with a strict deadline."""
    step = RewardStep(100 * REWARD_MICRO, deadline, leases)
    options = all_options(gpus, two_speeds(gpus, 1000))[:1]
    return SelectorJob(number, DeadlineClass.STRICT, options, (step,), 0, ready)


def eager(number: int, gpus: int, leases: int) -> SelectorJob:
    """Return a best-effort job that needs `leases` leases."""
    options = all_options(gpus, two_speeds(gpus, 1000))[:1]
    return SelectorJob(number, DeadlineClass.BEST_EFFORT, options, (), leases * SLOT)


def exchanged(jobs: dict[SelectorJob, list[int]], first: set[int]) -> dict[int, tuple[int, ...]]:
    """Return the slots of each job after the exchange; `jobs` maps each job to its slots before."""
    free = [free_cells([8])]
    problem = SelectorProblem(tuple(jobs), free, slots=1, slot_us=SLOT)
    reservations = SlotReservations(compact_program(problem))
    for number, column in enumerate(reservations.program.columns):
        reservations.reserve(number, jobs[problem.jobs[column.job]])
    shortest_now(reservations, first)
    for slot, row in enumerate(reservations.leases):
        taken = sum(
            reservations.program.columns[number].option.gpus
            for number, slots in reservations.slots.items()
            if slot in slots and not reservations.program.columns[number].is_now
        )
        assert row[0] == 8 - taken >= 0
    return {job: row.slots for job, row in reservations.plan().items()}


class TestCurrentSlot:
    def test_goes_to_shorter_job_for_its_last_slot(self) -> None:
        plan = {dated(1, 8, 3, 9): [0, 1, 2], dated(2, 8, 2, 9): [3, 4]}
        assert exchanged(plan, {2}) == {1: (1, 2, 4), 2: (0, 3)}

    def test_stays_if_holder_would_miss_deadline(self) -> None:
        """The shorter job's last slot is too late for the longer job's deadline."""
        plan = {dated(1, 8, 3, 4): [0, 1, 2], dated(2, 8, 2, 9): [3, 4]}
        assert exchanged(plan, {2}) == {1: (0, 1, 2), 2: (3, 4)}

    def test_stays_if_holder_has_offered_slot_already(self) -> None:
        plan = {dated(1, 4, 2, 9): [0, 2], dated(3, 4, 1, 9): [0], dated(2, 4, 1, 9): [2]}
        assert exchanged(plan, {2})[1] == (0, 2)

    @pytest.mark.parametrize("leases", [2, 3])
    def test_stays_with_holder_of_no_more_work(self, leases: int) -> None:
        plan = {dated(1, 8, 2, 9): [0, 1], dated(2, 8, leases, 9): [*range(2, 2 + leases)]}
        assert exchanged(plan, {2})[1] == (0, 1)

    def test_stays_if_shorter_job_estimate_is_exact(self) -> None:
        plan = {dated(1, 8, 3, 9): [0, 1, 2], dated(2, 8, 2, 9): [3, 4]}
        assert exchanged(plan, {1})[1] == (0, 1, 2)

    def test_stays_if_shorter_job_cannot_start_now(self) -> None:
        plan = {dated(1, 8, 3, 9): [0, 1, 2], dated(2, 8, 2, 9, ready=1): [3, 4]}
        assert exchanged(plan, {2})[1] == (0, 1, 2)

    def test_goes_to_shortest_of_several(self) -> None:
        plan = {
            dated(1, 8, 4, 12): [0, 1, 2, 3], dated(2, 8, 3, 12): [4, 5, 6],
            dated(3, 8, 1, 12): [7],
        }  # fmt: skip
        assert exchanged(plan, {2, 3}) == {1: (1, 2, 3, 7), 2: (4, 5, 6), 3: (0,)}

    def test_is_given_by_longest_job(self) -> None:
        plan = {
            dated(1, 4, 2, 9): [0, 1], dated(2, 4, 4, 9): [0, 1, 2, 3], dated(3, 4, 1, 9): [4],
        }  # fmt: skip
        assert exchanged(plan, {3}) == {1: (0, 1), 2: (1, 2, 3, 4), 3: (0,)}

    def test_longer_best_effort_job_gives_up_slot(self) -> None:
        plan = {eager(1, 8, 2): [0], dated(2, 4, 3, 9): [1, 2, 3]}
        # the best-effort job needs 16 GPU-leases, the other job 12
        assert exchanged(plan, {2}) == {2: (0, 1, 2)}
        plan = {eager(1, 4, 3): [0], dated(2, 8, 2, 9): [1, 2]}
        assert exchanged(plan, {2})[1] == (0,)

    def test_stays_if_givers_have_too_few_gpus(self) -> None:
        """The first best-effort job has less work than the shorter job, the second too few GPUs."""
        plan = {eager(1, 4, 9): [0], eager(3, 4, 1): [0], dated(2, 8, 2, 9): [1, 2]}
        assert exchanged(plan, {2}) == {1: (0,), 2: (1, 2), 3: (0,)}


def drawn(rng: Random) -> SelectorProblem:
    """Draw a crowded pool of up to three nodes, whose leases end one after another."""
    nodes = [rng.choice((2, 4, 8, 8)) for _ in range(rng.randint(1, 3))]
    held = [rng.randint(0, gpus) for gpus in nodes]
    free = [free_cells(nodes)]
    for _ in range(rng.randint(0, 4)):
        free.insert(0, free_cells(gpus - one for gpus, one in zip(nodes, held, strict=True)))
        held = [gpus - rng.randint(0, gpus - one) for gpus, one in zip(nodes, held, strict=True)]
    jobs = []
    for number in range(1, rng.randint(4, 9)):
        gpus = rng.choice((1, 1, 2, 3, 4, 6, 8))
        options = useful_options(all_options(gpus, two_speeds(gpus, rng.choice((1000, 700)))))
        if rng.random() < 0.3:
            work_us = rng.randint(1, 9) * SLOT
            jobs.append(SelectorJob(number, DeadlineClass.BEST_EFFORT, options, (), work_us))
            continue
        leases, ready = rng.randint(1, 4), rng.choice((0, 0, 0, 1))
        step = RewardStep(100 * REWARD_MICRO, ready + leases + rng.randint(0, 5), leases)
        jobs.append(SelectorJob(number, DeadlineClass.STRICT, options, (step,), 0, ready))
    return SelectorProblem(tuple(jobs), free, slots=rng.choice((1, 1, 2)), slot_us=SLOT)


@pytest.mark.parametrize("seed", range(2))
def test_exchange_keeps_deadlines_and_leases(seed: int) -> None:
    rng, moved = Random(seed), 0  # noqa: S311 - a test's seed
    for _ in range(30):
        problem = drawn(rng)
        before = select(problem)
        after = select(problem, first={job.id for job in problem.jobs})
        assert faults(problem, after) == []
        kept = {
            job: (row.step, row.option, len(row.slots))
            for job, row in after.jobs.items()
            if not row.is_now
        }
        assert kept == {
            job: (row.step, row.option, len(row.slots))
            for job, row in before.jobs.items()
            if not row.is_now
        }
        moved += before.jobs != after.jobs
    assert moved
