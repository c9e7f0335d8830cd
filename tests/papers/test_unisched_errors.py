"""UniSched with wrong estimates: the order of jobs, their plans and their chances.

Source: docs/policies/unisched.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.unisched.demands import Remaining, dated_steps
from evenshare_core.policies.unisched.options import UniSchedOptions
from evenshare_core.units import MINUTE_US, REWARD_MICRO
from tests.papers.unisched_pools import SLOT, asked, by_job, strict
from tests.unit.core.snapshots import AT_US, job


class TestEstimateErrors:
    """With `error_milli` of 250, the standard error is a quarter of the estimate."""

    def round(
        self, estimates_us: Iterable[int], by_us: Iterable[int], error_milli: int = 250
    ) -> Decision:
        """Decide a round of whole-pool jobs: deadline jobs, and a best-effort job of six slots."""
        sizes = list(enumerate(estimates_us, 1))
        jobs = [job(number, 24, estimate_us=one) for number, one in sizes]
        jobs.append(job(9, 24, estimate_us=6 * SLOT))
        rows = [strict(number, one) for number, one in enumerate(by_us, 1)]
        known = tuple(
            JobEstimate(number, EstimateSource.FITTED, error_milli) for number, _ in sizes
        )
        quotas = (Entitlement(1, "v100", 24),)
        return decide_round(asked(jobs, rows, estimates=known, quotas=quotas))

    @pytest.mark.parametrize(("error_milli", "begins"), [(250, [2]), (0, [9])])
    def test_shorter_job_goes_first_if_plans_allow(
        self, error_milli: int, begins: list[int]
    ) -> None:
        """With exact estimates the best-effort job goes first: both deadlines can still be met."""
        decision = self.round([3 * SLOT, 2 * SLOT], [12 * SLOT, 20 * SLOT], error_milli)
        assert [row.job for row in decision.grants] == begins

    @pytest.mark.parametrize(("by_us", "chance_milli"), [(8 * SLOT, 500), (6 * SLOT, 150)])
    def test_plans_job_that_may_be_shorter_than_estimate(
        self, by_us: int, chance_milli: int
    ) -> None:
        """The standard error is two of eight slots: normal(0) is 50 %, normal(-1) 15.9 %."""
        answer = by_job(self.round([8 * SLOT], [by_us]))[1]
        assert answer.state is DeadlineState.PLANNED
        assert answer.chance_milli == chance_milli

    def test_refuses_job_over_two_deviations_too_long(self) -> None:
        answer = by_job(self.round([8 * SLOT], [4 * SLOT - MINUTE_US]))[1]
        assert answer.limit is DeadlineLimit.LENGTH

    @pytest.mark.parametrize(
        ("error_milli", "state"),
        [
            (999, DeadlineState.PLANNED),
            (1000, DeadlineState.REFUSED),
            (5000, DeadlineState.REFUSED),
        ],
    )
    def test_unknown_error_counts_as_exact_estimate(
        self, error_milli: int, state: DeadlineState
    ) -> None:
        """A job with a declared estimate of eight slots cannot meet a deadline in four slots."""
        assert by_job(self.round([8 * SLOT], [4 * SLOT], error_milli))[1].state is state

    @pytest.mark.parametrize(
        ("is_late", "deviation_us", "deadline"), [(True, SLOT, 2), (True, 0, 9), (False, SLOT, 9)]
    )
    def test_only_overrun_job_is_planned_at_once(
        self, is_late: bool, deviation_us: int, deadline: int
    ) -> None:
        left = Remaining(4 * SLOT, 2 * SLOT, 2 * SLOT, AT_US, is_late, deviation_us)
        rows = dated_steps(
            strict(1, 10 * SLOT), left, None, 100 * REWARD_MICRO, at_us=AT_US, lease_us=SLOT,
            options=UniSchedOptions(), phase_us=0,
        )  # fmt: skip
        assert rows[0].step.deadline == deadline

    def test_overrun_job_has_no_margin_if_margin_is_zero(self) -> None:
        left = Remaining(4 * SLOT, 2 * SLOT, 2 * SLOT, AT_US, True, SLOT)
        rows = dated_steps(
            strict(1, 10 * SLOT), left, None, 100 * REWARD_MICRO, at_us=AT_US, lease_us=SLOT,
            options=UniSchedOptions(margin_percent=0), phase_us=0,
        )  # fmt: skip
        assert [row.step.deadline for row in rows] == [10]

    def test_step_reward_falls_with_slack(self) -> None:
        left = Remaining(8 * SLOT, 8 * SLOT, 8 * SLOT, AT_US, False, 2 * SLOT)
        counted = [
            dated_steps(
                strict(1, slots * SLOT), left, None, 100 * REWARD_MICRO, at_us=AT_US, lease_us=SLOT,
                options=UniSchedOptions(), phase_us=0,
            )[0].step.reward_micro // REWARD_MICRO
            for slots in (8, 7, 6, 4)
        ]  # fmt: skip
        assert counted == [100, 39, 28, 5]
