"""Test that each waiting job gets its own numbers, also if jobs share a skip."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.evenshare.policy import POLICY
from evenshare_core.policies.job_reasons import OwnReason, group_numbers, reason_of, turns_of
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import HOUR_US, SECOND_US
from tests.papers.evenshare_pools import LEASE_US, pool, running
from tests.unit.core.snapshots import job, lease, snapshot

BORROWER = Entitlement(1, "v100", 2)
LENDER = Entitlement(2, "v100", 6)
FULL = lease(1, 1, (1, 8), expires_us=2 * HOUR_US)


def reason_at(round_: Snapshot, number: int) -> OwnReason:
    reason = reason_of(round_, decide_round(round_), number)
    assert reason is not None
    return reason


def alone(round_: Snapshot, number: int, *others: int) -> OwnReason:
    """Return the reason that the job gets in the same round if no other job waits."""
    kept = tuple(one for one in round_.jobs if one.id not in others)
    changes = tuple(one for one in round_.changes if one.job not in others)
    return reason_at(replace(round_, jobs=kept, changes=changes), number)


class TestJobReason:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_shows_gpus_needed_by_job(self, policy: str) -> None:
        """Jobs of 4, 6 and 400 GPUs wait behind a job that holds all 8, under each policy."""
        jobs = [job(1, 8), job(2, 4), job(3, 6), job(4, 400), job(5, 4)]
        round_ = snapshot(jobs, [FULL], nodes={1: 8}, policy=policy)
        decision = decide_round(round_)
        waiting = {one: reason_of(round_, decision, one) for one in (2, 3, 4, 5)}
        needs = {one: row.numbers["needed"] for one, row in waiting.items() if row is not None}
        assert needs == {2: 4, 3: 6, 4: 400, 5: 4}

    @pytest.mark.parametrize("gpus", [4, 6])
    def test_shows_cost_of_jobs_own_term(self, gpus: int) -> None:
        round_ = snapshot(
            [job(2, 4), job(3, 6)], nodes={1: 8}, quotas=[BORROWER, LENDER],
            price_micro=3_600_000_000, credit={1: 5}, lease_us=600 * SECOND_US,
        )  # fmt: skip
        number = {4: 2, 6: 3}[gpus]
        row = reason_at(round_, number)
        cost = worst_case_micro(gpus - 2, 3_600_000_000, 600 * SECOND_US)
        assert (row.reason, row.numbers["needed_micro"]) == (Reason.BUDGET, cost)
        assert row == alone(round_, number, 5 - number)._replace(jobs=2)

    def test_shows_jobs_own_maximum_price(self) -> None:
        jobs = [job(2, 4, max_price_micro=7), job(3, 4, max_price_micro=9)]
        round_ = snapshot(jobs, nodes={1: 8}, quotas=[BORROWER, LENDER], price_micro=20)
        for number, most in ((2, 7), (3, 9)):
            numbers = reason_at(round_, number).numbers
            assert (numbers["price_micro"], numbers["max_price_micro"]) == (20, most)

    def test_is_none_for_running_job(self) -> None:
        round_ = snapshot([job(1, 8)], [FULL], nodes={1: 8})
        assert reason_of(round_, decide_round(round_), 1) is None

    def test_omits_unknown_numbers(self) -> None:
        """Only one policy ranks by rho. For other policies, nulls could be taken for zeros."""
        jobs = [job(1, 8), job(2, 8)]
        for policy in POLICIES:
            round_ = snapshot(jobs, nodes={1: 8}, policy=policy)
            decision = decide_round(round_)
            for row in decision.skips:
                numbers = group_numbers(row, turns_of(round_, decision))
                assert None not in numbers.values()


class TestEvenshareTurn:
    """The numbers that rank a tenant: GPU-time received and deserved, and their ratio."""

    QUOTAS = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4))

    def turn(self, waits: int = 1, **options: Any) -> dict[str, Any]:
        """Return a reason's numbers; tenant 2 has less, so is first unless held GPUs decide."""
        round_ = pool(
            [job(1, 8), job(2, 8, tenant=2)], nodes={1: 8}, quotas=self.QUOTAS,
            sums={1: (9_000, 10_000), 2: (5_000, 10_000)}, attained={1: 600}, options=options,
            policy_version=POLICY.version,
        )  # fmt: skip
        decision = decide_round(round_)
        row = reason_of(round_, decode(canonical_bytes(decision), type(decision)), waits)
        assert row is not None
        assert row.reason is Reason.LEASE_TURN
        return row.numbers

    def test_shows_sums_with_own_and_served_ratio(self) -> None:
        numbers = self.turn()
        assert numbers["needed"] == 8
        assert numbers["received_gpu_us"] == 9_000 * SECOND_US
        assert numbers["deserved_gpu_us"] == 10_000 * SECOND_US
        assert numbers["attained_gpu_us"] == 600 * SECOND_US
        # (A + granted) / (F + 300 s x min(D, Q)), as in rule 1
        assert numbers["own_ratio"] == pytest.approx(9_000 / (10_000 + 300 * 4))
        assert numbers["served_ratio"] == pytest.approx(5_000 / (10_000 + 300 * 4))
        assert not {"own_rho", "served_rho"} & set(numbers)

    def test_counts_gpus_granted_to_tenant_in_round(self) -> None:
        round_ = pool(
            [job(1, 2), job(2, 6, tenant=2), job(3, 6)], nodes={1: 8}, quotas=self.QUOTAS,
            sums={1: (1_000, 10_000), 2: (1_500, 10_000)}, policy_version=POLICY.version,
        )  # fmt: skip
        numbers = reason_at(round_, 3).numbers
        granted = 2 * LEASE_US / SECOND_US
        assert numbers["own_ratio"] == pytest.approx((1_000 + granted) / (10_000 + 300 * 4))

    def test_shows_held_gpus_with_tight_preset(self) -> None:
        numbers = self.turn(2, preset="tight", guarantee=False)
        assert (numbers["held"], numbers["share"]) == (0, 4)
        assert "received_gpu_us" not in numbers

    def test_is_omitted_for_other_policy_version(self) -> None:
        round_ = pool([job(1, 8), job(2, 8)], nodes={1: 8}, policy_version=POLICY.version)
        decision = decide_round(round_)
        other = replace(round_, policy_version="0")
        assert turns_of(round_, decision)
        assert not turns_of(other, decision)

    def test_marks_preempted_job(self) -> None:
        round_ = pool(
            [job(1, 4), job(2, 4), job(3, 4, tenant=2)],
            [running(1, 1, 4), running(2, 1, 4)],
            nodes={1: 8}, quotas=self.QUOTAS, sums={1: (20_000, 10_000), 2: (1_000, 10_000)},
        )  # fmt: skip
        decision = decide_round(round_)
        (early,) = decision.preemptions
        row = reason_of(round_, decision, early.job)
        assert row is not None
        assert (row.reason, row.numbers["preempted"]) == (Reason.LEASE_TURN, True)
