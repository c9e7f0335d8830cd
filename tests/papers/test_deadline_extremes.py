"""Test that pools with deadlines at the limits of valid values get correct answers."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.deadlines import DeadlineState
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.profiles import Profile
from evenshare_core.policies.base import decide_round
from evenshare_core.units import HOUR_US, SECOND_US
from tests.papers.unisched_pools import SLOT, asked, strict
from tests.unit.core.snapshots import AT_US, job

YEARS_30 = 30 * 366 * 24 * HOUR_US
PLANNERS = ("unisched", "chronus", "three_sigma", "genie", "hydra")


class TestExtremes:
    @pytest.mark.parametrize("policy", PLANNERS)
    @pytest.mark.parametrize("options", [{}, {"estimator": True}])
    def test_decides_years_of_work_with_years_of_error(
        self, policy: str, options: dict[str, Any]
    ) -> None:
        jobs = [job(1, 1, estimate_us=YEARS_30), job(2, 2, estimate_us=1)]
        known = tuple(JobEstimate(one.id, EstimateSource.CAP, 10**9, YEARS_30, 1) for one in jobs)
        rows = [strict(1, 3 * YEARS_30), strict(2, SLOT)]
        chosen = options if policy == "chronus" else {}
        fields: dict[str, Any] = {"policy": policy, "options": chosen, "lease_us": 7 * SECOND_US}
        decision = decide_round(asked(jobs, rows, estimates=known, **fields))
        assert {row.job for row in decision.grants} == {1, 2}


class TestUniSched:
    def test_refuses_job_too_large_for_its_only_type(self) -> None:
        nodes = (Node(1, "p100", 2), Node(2, "v100", 8))
        asks = job(1, 4, profile=1, gpu_types=("p100", "v100"), estimate_us=SLOT)
        quotas = (Entitlement(1, "p100", 2), Entitlement(1, "v100", 8))
        profiles = (Profile(1, 1, (("p100", 1000),)),)
        one = asked([asks], [strict(1, 9 * SLOT)], quotas=quotas, profiles=profiles)
        decision = decide_round(type(one)(**{**_fields(one), "nodes": nodes}))
        assert decision.grants == ()
        assert [row.state for row in decision.answers] == [DeadlineState.REFUSED]

    def test_does_not_overplan_after_horizon(self) -> None:
        jobs = [job(number, 8, estimate_us=288 * SLOT) for number in range(1, 9)]
        rows = [strict(one.id, 1440 * SLOT) for one in jobs]
        decision = decide_round(asked(jobs, rows, nodes={1: 8}))
        states = [row.state for row in decision.answers]
        assert 1 <= states.count(DeadlineState.PLANNED) <= 5
        assert len(states) == 8

    def test_refuses_job_kept_out_by_limit_until_deadline(self) -> None:
        jobs = [job(1, 4, estimate_us=SLOT), job(2, 4, estimate_us=1, max_price_micro=0)]
        rows = [strict(1, 2 * SLOT), strict(2, 2 * SLOT + SLOT // 4)]
        quotas = (Entitlement(1, "v100", 4),)
        first = decide_round(asked(jobs, rows, quotas=quotas))
        later = AT_US + SLOT + SLOT // 2
        again = asked(
            jobs[1:], rows[1:], quotas=(Entitlement(1, "v100", 1),), memory=first.memory,
            at_us=later, price_micro=10**6,
        )  # fmt: skip
        answers = decide_round(again).answers
        assert [row.state for row in answers] == [DeadlineState.REFUSED]


def _fields(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
