"""Test a complete round: own and borrowed GPUs, limits, shares, prices, ends and reasons."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Skip
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.policies.base import decide_round
from evenshare_core.units import HOUR_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

BORROWER, LENDER = Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)


def splits(decision: Decision) -> dict[int, tuple[int, int, int]]:
    """Return (own, borrowed, price) of each new or renewed term by job."""
    terms = {row.job: (row.own, row.borrowed, row.price_micro) for row in decision.grants}
    return terms | {row.job: (row.own, row.borrowed, row.price_micro) for row in decision.renewals}


def reasons(decision: Decision) -> dict[int, Reason]:
    return {job_id: skip.reason for skip in decision.skips for job_id in skip.jobs}


def skip_of(decision: Decision, job_id: int) -> Skip:
    return next(skip for skip in decision.skips if job_id in skip.jobs)


class TestOwnAndBorrowed:
    def test_running_terms_keep_quota_then_older_leases_use_it(self) -> None:
        goes_on = lease(1, 1, (1, 2), expires_us=AT_US + 1)  # two of the four GPUs are own
        jobs = [job(1, 2), job(2, 1), job(3, 2), job(4, 1)]
        leases = [goes_on, lease(3, 2, (1, 1)), lease(2, 3, (1, 2))]
        decision = decide_round(
            snapshot(
                jobs,
                sorted(leases, key=lambda row: row.id),
                nodes={1: 8},
                quotas=[BORROWER, LENDER],
                price_micro=5,
            )
        )
        # Job 3's lease is older than job 2's, so it uses the quota; job 2 borrows the rest.
        assert splits(decision) == {3: (2, 0, 0), 2: (0, 1, 5), 4: (0, 1, 5)}

    def test_charges_nothing_within_quota(self) -> None:
        decision = decide_round(snapshot([job(1, 4)], nodes={1: 8}, price_micro=5))
        assert splits(decision) == {1: (4, 0, 0)}

    def test_withdraws_pick_that_would_borrow_above_max_price(self) -> None:
        """Job 1 is picked first, but job 2 has the older lease and uses the quota first."""
        round_ = snapshot(
            [job(1, 4, max_price_micro=0), job(2, 4)],
            [lease(1, 2, (1, 4))],
            nodes={1: 8},
            quotas=[BORROWER, LENDER],
            price_micro=5,
        )
        decision = decide_round(round_)
        assert splits(decision) == {2: (4, 0, 0)}
        skip = skip_of(decision, 1)
        assert (skip.reason, skip.numbers["withdrawn"]) == (Reason.PRICE_ABOVE_MAX, True)

    def test_lists_withdrawn_picks_in_arrival_order(self) -> None:
        """A reason's numbers are those of the first arrival, not of the first pick or lowest id."""
        late, early = job(1, 3, max_price_micro=1), job(4, 1, max_price_micro=2)
        round_ = snapshot(
            [replace(late, submitted_us=9), replace(early, submitted_us=2), job(3, 4)],
            [lease(1, 3, (1, 4))],
            nodes={1: 8},
            quotas=[BORROWER, LENDER],
            price_micro=5,
        )
        decision = decide_round(round_)
        assert splits(decision) == {3: (4, 0, 0)}
        skip = skip_of(decision, 1)
        assert (skip.jobs, skip.gpus) == ((4, 1), 4)
        assert skip.numbers["max_price_micro"] == 2

    def test_withdrawn_renewal_ends_with_reason_of_limit(self) -> None:
        round_ = snapshot(
            [job(1, 4, max_price_micro=0), job(2, 4)],
            [lease(2, 1, (1, 4)), lease(1, 2, (1, 4))],
            nodes={1: 8},
            quotas=[BORROWER, LENDER],
            price_micro=5,
        )
        decision = decide_round(replace(round_, leases=tuple(reversed(round_.leases))))
        assert [(end.job, end.reason) for end in decision.ends] == [(1, EndReason.PRICE_ABOVE_MAX)]
        assert reasons(decision) == {1: Reason.PRICE_ABOVE_MAX}


class TestLimits:
    """The reason names the limit of the tenant or job, never "no free GPUs"."""

    @pytest.mark.parametrize("free", [8, 4])
    @pytest.mark.parametrize(
        ("entitlement", "rest", "reason", "number"),
        [
            ({"mode": Mode.LEND}, {}, Reason.QUOTA_LIMIT, ("may_borrow", 0)),
            ({"mode": Mode.RESERVE}, {}, Reason.QUOTA_LIMIT, ("may_borrow", 0)),
            ({"borrow_limit": 1}, {}, Reason.QUOTA_LIMIT, ("may_borrow", 1)),
            ({}, {"credit": {1: 7}}, Reason.BUDGET, ("needed_micro", 10)),
            ({}, {"max_price": 4}, Reason.PRICE_ABOVE_MAX, ("price_micro", 5)),
        ],
    )
    def test_limit_prevents_borrowing(
        self,
        entitlement: dict[str, Any],
        rest: dict[str, Any],
        reason: Reason,
        number: tuple[str, int],
        free: int,
    ) -> None:
        limited = job(2, 2, max_price_micro=rest.get("max_price"))
        decision = decide_round(
            snapshot(
                [job(1, 4), limited],
                nodes={1: free},
                quotas=[replace(BORROWER, **entitlement), LENDER],
                price_micro=5,
                credit=rest.get("credit"),
            )
        )
        assert splits(decision) == {1: (4, 0, 0)}
        skip = skip_of(decision, 2)
        assert (skip.reason, skip.numbers[number[0]]) == (reason, number[1])

    @pytest.mark.parametrize(
        ("lender", "granted"),
        [
            ({"mode": Mode.RESERVE}, []),
            ({"lend_limit": 1}, [2]),
            ({"lend_limit": 4}, [2, 3]),
            ({"mode": Mode.LEND}, [2, 3]),
        ],
    )
    def test_does_not_borrow_unlent_quota(self, lender: dict[str, Any], granted: list[int]) -> None:
        jobs = [job(1, 4), job(2, 1), job(3, 1)]
        quotas = [BORROWER, replace(LENDER, **lender)]
        decision = decide_round(snapshot(jobs, nodes={1: 8}, quotas=quotas))
        assert sorted(splits(decision)) == [1, *granted]
        refused = {row: Reason.RESERVED_QUOTA for row in (2, 3) if row not in granted}
        assert reasons(decision) == refused

    def test_owner_uses_own_reserved_quota(self) -> None:
        quotas = [BORROWER, replace(LENDER, mode=Mode.RESERVE)]
        decision = decide_round(snapshot([job(1, 4, tenant=2)], nodes={1: 8}, quotas=quotas))
        assert splits(decision) == {1: (4, 0, 0)}

    def test_expired_lease_ends_without_credit(self) -> None:
        round_ = snapshot(
            [job(1, 2)],
            [lease(1, 1, (1, 2), borrowed=2)],
            nodes={1: 8},
            quotas=[replace(BORROWER, gpus=0), LENDER],
            price_micro=5,
            credit={1: 9},
        )
        decision = decide_round(round_)
        assert [end.reason for end in decision.ends] == [EndReason.BUDGET]
        assert reasons(decision) == {1: Reason.BUDGET}

    def test_spends_credit_once_over_all_terms(self) -> None:
        jobs = [job(1, 4), job(2, 1), job(3, 1)]
        round_ = snapshot(
            jobs, nodes={1: 8}, quotas=[BORROWER, LENDER], price_micro=5, credit={1: 5}
        )
        decision = decide_round(round_)
        assert splits(decision) == {1: (4, 0, 0), 2: (0, 1, 5)}
        assert reasons(decision) == {3: Reason.BUDGET}


class TestReasons:
    def test_reports_job_larger_than_pool(self) -> None:
        decision = decide_round(snapshot([job(1, 9)], nodes={1: 8}))
        assert skip_of(decision, 1).numbers == {"gpu_type": "v100", "needed": 9, "capacity": 8}

    def test_reports_number_of_free_gpus(self) -> None:
        held = lease(1, 1, (1, 6), expires_us=AT_US + 1)
        decision = decide_round(snapshot([job(1, 6), job(2, 4)], [held], nodes={1: 8}))
        skip = skip_of(decision, 2)
        assert (skip.reason, skip.numbers["free"]) == (Reason.NO_FREE_GPUS, 2)

    def test_reports_fragmentation_with_largest_hole(self) -> None:
        held = [
            lease(1, 1, (1, 6), expires_us=AT_US + 1),
            lease(2, 2, (2, 6), expires_us=AT_US + 1),
        ]
        jobs = [job(1, 6), job(2, 6), job(3, 4)]
        skip = skip_of(decide_round(snapshot(jobs, held, nodes={1: 8, 2: 8})), 3)
        assert skip.reason is Reason.FRAGMENTED
        assert (skip.numbers["free"], skip.numbers["largest_hole"]) == (4, 2)

    def test_lease_turn_shows_served_and_own_rho(self) -> None:
        jobs = [job(1, 8), job(2, 8, tenant=2)]
        decision = decide_round(snapshot(jobs, nodes={1: 8}, quotas=[BORROWER, LENDER]))
        skip = skip_of(decision, 2)
        assert skip.reason is Reason.LEASE_TURN
        assert (skip.numbers["served_rho"], skip.numbers["own_rho"]) == (0.0, 0.0)

    def test_groups_jobs_by_arrival_with_smallest_gangs_numbers(self) -> None:
        jobs = [job(1, 8), job(2, 6), job(3, 2), job(4, 6)]
        skip = skip_of(decide_round(snapshot(jobs, nodes={1: 8})), 4)
        assert (skip.jobs, skip.gpus, skip.numbers["needed"]) == ((2, 3, 4), 14, 2)

    def test_papers_rule_names_tenants_first_unplaced_job(self) -> None:
        held = lease(1, 1, (1, 4), expires_us=AT_US + 1)
        round_ = snapshot(
            [job(1, 4), job(2, 8), job(3, 1)],
            [held],
            nodes={1: 8},
            options={"work_conserving": False},
        )
        decision = decide_round(round_)
        assert reasons(decision) == {2: Reason.NO_FREE_GPUS, 3: Reason.TENANT_PASSED_OVER}
        assert skip_of(decision, 3).numbers["first_job"] == 2


class TestEnds:
    def test_drained_node_ends_lease_and_moves_job(self) -> None:
        decision = decide_round(snapshot([job(1, 4)], [lease(1, 1, (1, 4))], nodes={1: 0, 2: 8}))
        assert [(end.lease, end.reason) for end in decision.ends] == [(1, EndReason.DRAINED)]
        assert [grant.placement for grant in decision.grants] == [((2, 4),)]

    def test_expired_lease_ends_without_job(self) -> None:
        decision = decide_round(snapshot([job(2, 8)], [lease(1, 1, (1, 4))], nodes={1: 8}))
        assert [end.reason for end in decision.ends] == [EndReason.NOT_RENEWED]
        assert [grant.job for grant in decision.grants] == [2]

    def test_raises_for_job_without_active_change(self) -> None:
        round_ = snapshot([job(1, 1)], nodes={1: 8})
        with pytest.raises(ValueError, match="job 2 is in the snapshot, but no ACTIVE"):
            decide_round(replace(round_, jobs=(job(1, 1), job(2, 1))))


class TestSharesAndPrices:
    def test_share_shows_deserved_held_and_granted_gpus(self) -> None:
        jobs = [job(1, 4), job(2, 2), job(3, 6, tenant=2)]
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (1, 2), expires_us=AT_US + 1)]
        round_ = snapshot(jobs, leases, nodes={1: 8}, quotas=[BORROWER, LENDER])
        first, second = decide_round(round_).shares
        assert (first.quota, first.demand, first.deserved, first.held_before) == (4, 6, 4, 6)
        assert (second.quota, second.demand, second.deserved, second.held_before) == (4, 6, 4, 0)
        assert (first.got, first.own, first.borrowed) == (0, 2, 0)
        assert (second.got, second.own, second.borrowed) == (6, 4, 2)
        assert second.rho_before == 0.0
        deserved = second.fair_gpu_us + 4 * HOUR_US
        assert second.rho_after == 6 * HOUR_US / deserved

    def test_rho_after_counts_only_usable_quota(self) -> None:
        round_ = snapshot([job(1, 1)], nodes={1: 8}, quotas=[BORROWER])
        (share,) = decide_round(round_).shares
        assert (share.quota, share.deserved) == (4, 1)
        assert share.rho_after == HOUR_US / (share.fair_gpu_us + HOUR_US)

    def test_posts_price_for_use_after_round(self) -> None:
        decision = decide_round(snapshot([job(1, 4)], nodes={1: 8}, price_micro=77))
        (price,) = decision.prices
        assert (price.used, price.capacity, price.price_micro) == (4, 8, 414_214)
        assert (price.base_micro, price.theta_milli) == (1_000_000, 2000)
