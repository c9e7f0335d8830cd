"""Admission by UniSched's Selector: a job with a deadline is added to a plan or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.deadlines.admission import (
    QUOTA_LEVEL,
    AdmissionAnswer,
    FreeRoom,
    QuotaLimit,
    admit,
    free_after,
)
from evenshare_core.deadlines.model import RewardStep, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import CellOption, held_option
from evenshare_core.deadlines.plans import JobLeases, SelectorPlan, faults
from evenshare_core.domain.deadlines import DeadlineClass, DeadlineLimit
from evenshare_core.formulations.selector import select
from evenshare_core.units import ONE_MILLI, REWARD_MICRO

from .selector_cases import best_effort, nodes, options, small_case, strict

EIGHT, FOUR_AND_TWO = (0, 0, 0, 1), (0, 1, 1, 0)
BUSY = SelectorProblem([strict(1, 8, 3, 3)], nodes(1))


def ask(problem: SelectorProblem, gpus: int, leases: int, deadline: int) -> AdmissionAnswer:
    return admit(problem, select(problem), options(gpus), leases, deadline)


class TestAdmission:
    def test_uses_first_free_slots(self) -> None:
        answer = ask(BUSY, 8, 2, 5)
        assert answer.is_yes
        assert answer.slots == (3, 4)
        assert answer.earliest == 5

    def test_picks_option_that_ends_first(self) -> None:
        """Two GPUs are left on each of three nodes.

        Six GPUs on three nodes are slower, but end first.
        """
        problem = SelectorProblem([strict(number, 6, 9, 9) for number in range(3)], nodes(3))
        answer = ask(problem, 6, 4, 6)
        assert answer.option is not None
        assert not answer.option.one_node
        assert answer.slots == (0, 1, 2, 3, 4)

    def test_breaks_ties_by_fewest_gpus(self) -> None:
        whole, exact = (CellOption(cells, 6, True, ONE_MILLI) for cells in (EIGHT, FOUR_AND_TWO))
        problem = SelectorProblem([], nodes(2))
        for offered in ((whole, exact), (exact, whole)):
            assert admit(problem, select(problem), offered, 1, 2).option == exact

    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize(("gpus", "leases"), [(1, 2), (6, 3), (8, 1), (16, 2)])
    def test_admitted_job_fits_plan(self, seed: int, gpus: int, leases: int) -> None:
        problem = small_case(seed)
        plan = select(problem)
        answer = admit(problem, plan, options(gpus), leases, 8)
        if not answer.is_yes:
            return
        step = RewardStep(REWARD_MICRO, 8, leases)
        asked = SelectorJob(999, DeadlineClass.STRICT, options(gpus), (step,))
        assert answer.option is not None
        row = JobLeases(999, 0, answer.option, REWARD_MICRO, answer.slots)
        more = SelectorPlan({**plan.jobs, 999: row}, plan.reward_micro + REWARD_MICRO, 10**12)
        assert faults(replace(problem, jobs=[*problem.jobs, asked]), more) == []


class TestRefusal:
    def test_has_length_limit_if_every_option_is_too_slow(self) -> None:
        answer = ask(SelectorProblem([], nodes(2)), 6, 4, 3)
        assert (answer.limit, answer.earliest) == (DeadlineLimit.LENGTH, 4)

    def test_lists_blocked_slots_and_cells(self) -> None:
        answer = ask(BUSY, 8, 2, 4)
        assert answer.limit is DeadlineLimit.CAPACITY
        assert answer.blocked == ((0, 3), (1, 3), (2, 3))
        assert answer.earliest == 5

    def test_has_quota_limit_and_earliest_slot(self) -> None:
        problem = SelectorProblem([], nodes(2))
        quota = QuotaLimit(8, (4, 4, 0))
        answer = admit(problem, select(problem), options(8), 1, 2, quota=quota)
        assert answer.limit is DeadlineLimit.QUOTA
        assert answer.blocked == ((0, QUOTA_LEVEL), (1, QUOTA_LEVEL))
        assert answer.earliest == 3

    def test_has_no_earliest_slot_if_job_never_fits(self) -> None:
        problem = SelectorProblem([], nodes(2))
        plan = select(problem)
        small = admit(problem, plan, options(8), 1, 9, quota=QuotaLimit(4))
        assert (small.limit, small.earliest) == (DeadlineLimit.QUOTA, None)
        large = admit(problem, plan, options(24), 1, 9)
        assert (large.limit, large.earliest) == (DeadlineLimit.SIZE, None)

    def test_counts_best_effort_lease_that_starts_now(self) -> None:
        problem = SelectorProblem([best_effort(1, 8, 60)], nodes(1))
        answer = ask(problem, 8, 1, 1)
        assert (answer.limit, answer.earliest) == (DeadlineLimit.CAPACITY, 2)
        odd = replace(problem, is_slo_cycle=False)
        assert ask(odd, 8, 1, 1).is_yes

    def test_rejects_invalid_input(self) -> None:
        plan = select(BUSY)
        with pytest.raises(ValueError, match="options, leases, deadline"):
            admit(BUSY, plan, options(8), 0, 1)
        with pytest.raises(ValueError, match="holds no GPUs"):
            admit(BUSY, plan, [held_option({1: 8}, ONE_MILLI)], 1, 1)
        with pytest.raises(ValueError, match="gpus, used"):
            QuotaLimit(-1)


class TestEarliestDeadline:
    @given(
        seed=st.integers(0, 11),
        gpus=st.sampled_from((1, 4, 6, 8, 12)),
        leases=st.integers(1, 5),
        quota=st.none()
        | st.builds(QuotaLimit, st.integers(0, 24), st.tuples(st.integers(0, 24), st.just(0))),
    )
    def test_is_first_deadline_admitted(
        self, seed: int, gpus: int, leases: int, quota: QuotaLimit | None
    ) -> None:
        problem = small_case(seed)
        plan = _plan(seed)
        answers = [
            admit(problem, plan, options(gpus), leases, deadline, quota=quota)
            for deadline in range(30)
        ]
        yes = [deadline for deadline, answer in enumerate(answers) if answer.is_yes]
        assert {answer.earliest for answer in answers} == {yes[0] if yes else None}
        assert yes == list(range(yes[0] if yes else 30, 30))
        for deadline in yes:
            assert all(slot < deadline for slot in answers[deadline].slots)

    @given(
        seed=st.integers(0, 11),
        asked=st.lists(st.tuples(st.sampled_from((1, 4, 6, 8, 12)), st.integers(1, 4)), max_size=5),
        quota=st.none() | st.builds(QuotaLimit, st.integers(0, 24)),
    )
    def test_reused_room_gives_same_answer(
        self, seed: int, asked: list[tuple[int, int]], quota: QuotaLimit | None
    ) -> None:
        problem, plan = small_case(seed), _plan(seed)
        room = FreeRoom(free_after(problem, plan, 40))
        for gpus, leases in asked:
            fresh = FreeRoom(room.free.copy())
            answer = admit(problem, plan, options(gpus), leases, 20, quota=quota, room=room)
            again = admit(problem, plan, options(gpus), leases, 20, quota=quota, room=fresh)
            assert answer == again
            if answer.option is not None:
                room.take(answer.option.units, answer.slots)
        assert (room.free >= 0).all()


PLANS: dict[int, SelectorPlan] = {}


def _plan(seed: int) -> SelectorPlan:
    if seed not in PLANS:
        PLANS[seed] = select(small_case(seed))
    return PLANS[seed]
