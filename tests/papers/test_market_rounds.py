"""Pairs of market rounds that differ in one job, a maximum price, or a lost GPU type."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, PlanKind
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.domain.utilities import Utility, UtilityKind, read_utility
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.units import CREDIT_MICRO, HOUR_US
from tests.papers.crowded_market import crowded_round
from tests.papers.test_market import ETA, bid, granted, market, plans, reasons
from tests.unit.core.snapshots import AT_US, job, lease
from tests.unit.core.test_every_policy import drawn

SEEDS = st.integers(0, 2**32)
NOBODYS = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 0))


def with_job(asked: Snapshot, more: Job, utility: Utility | None = None) -> Snapshot:
    """Return the same round with one more job, which is active since its submission."""
    change = Change(
        asked.at_us, ChangeKind.ACTIVE, more.tenant, more.id, more.gpus, more.gpu_types or ("v100",)
    )
    utilities = sorted([*asked.utilities, *([utility] if utility else [])], key=lambda row: row.id)
    return replace(
        asked, jobs=tuple(sorted([*asked.jobs, more], key=lambda row: row.id)),
        changes=(*asked.changes, change), utilities=tuple(utilities),
    )  # fmt: skip


def posted(decision: Decision) -> dict[str, int]:
    return {row.gpu_type: row.price_micro for row in decision.prices}


def above_quota(asked: Snapshot, gpus: int, tenant: int) -> bool:
    """Return whether `gpus` more GPUs exceed the tenant's quota of every type."""
    going = [row for row in asked.leases if not row.ends_by(asked.at_us)]
    return all(
        gpus > row.gpus - sum(one.own for one in going if one.gpu_type == row.gpu_type
                              and one.tenant == tenant)
        for row in asked.entitlements
        if row.tenant == tenant
    )  # fmt: skip


class TestAdditionalJob:
    """Compare the next price of each GPU type with an additional job, and without it."""

    @given(SEEDS, st.booleans())
    def test_last_borrower_never_lowers_prices(self, seed: int, several_types: bool) -> None:
        rng = random.Random(seed)  # noqa: S311 - a case, not a secret
        asked = drawn("market", seed) if several_types else crowded_round(seed)
        asked = replace(asked, options={**asked.options, "theta": "fixed"})
        tenant, gpus = rng.choice(asked.tenants).id, rng.choice((1, 2, 4, 8, 12))
        assume(above_quota(asked, gpus, tenant))
        number = max((row.id for row in asked.jobs), default=0) + 1
        types = (rng.choice(asked.nodes).gpu_type,)
        more = Job(number, tenant, gpus, asked.at_us, gpu_types=types)
        worth = Utility(number, UtilityKind.BID, rng.randrange(9 * CREDIT_MICRO))
        before = decide_round(asked)
        after = decide_round(with_job(asked, more, worth))
        assert set(granted(before)) <= set(granted(after))
        prices = posted(after)
        assert all(prices[name] >= price for name, price in posted(before).items())

    @given(SEEDS)
    def test_never_lowers_price_if_theta_is_unchanged(self, seed: int) -> None:
        asked = crowded_round(seed)
        asked = replace(asked, options={**asked.options, "theta": "history"})
        most = max((row.scale_micro for row in asked.utilities), default=0)
        number = max(row.id for row in asked.jobs) + 1
        more = with_job(
            asked, Job(number, 4, 1, AT_US), Utility(number, UtilityKind.BID, most)
        )  # the additional job belongs to a tenant without quota
        assert posted(decide_round(more))["v100"] >= posted(decide_round(asked))["v100"]

    def test_raises_price_in_many_rounds(self) -> None:
        raised = 0
        for seed in range(60):
            asked = crowded_round(seed)
            number = max(row.id for row in asked.jobs) + 1
            more = Job(number, 4, 1, AT_US)  # the job belongs to a tenant without quota
            worth = Utility(number, UtilityKind.BID, 9 * CREDIT_MICRO)
            after = posted(decide_round(with_job(asked, more, worth)))
            raised += after["v100"] > posted(decide_round(asked))["v100"]
        assert raised > 10

    def test_owner_may_lower_price(self) -> None:
        """A borrowed lease of eight GPUs ends because an owner's job needs one GPU of its quota."""
        row = lease(1, 1, (1, 8), own=0, borrowed=8)
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 8))
        asked = market([job(1, 8)], [row], quotas=quotas)
        assert posted(decide_round(asked)) == {"v100": ETA[8]}
        assert posted(decide_round(with_job(asked, job(2, 1, tenant=2)))) == {"v100": ETA[1]}

    def test_earlier_job_may_lower_price(self) -> None:
        """The additional job takes one GPU of a node, so a gang of eight no longer fits."""
        asked = market([job(5, 8)], quotas=NOBODYS, utilities=(bid(5, "9"),))
        assert posted(decide_round(asked)) == {"v100": ETA[8]}
        more = with_job(asked, job(2, 1, tenant=2), bid(2, "9"))
        assert posted(decide_round(more)) == {"v100": ETA[1]}

    def test_most_valuable_job_may_lower_price_via_theta(self) -> None:
        """A job that does not fit raises theta to 31, so the price exceeds the value of job 5."""
        running = [lease(1, 1, (1, 1), own=0, borrowed=1, expires_us=AT_US + HOUR_US)]
        asked = market(
            [job(1, 1), job(5, 5)], running, quotas=NOBODYS, options={"theta": "history"},
            utilities=(bid(1, "0.5"), bid(5, "0.9")),
        )  # fmt: skip
        assert posted(decide_round(asked)) == {"v100": ETA[6]}
        after = decide_round(with_job(asked, job(9, 8, tenant=2), bid(9, "30")))
        assert posted(after) == {"v100": posted_price_micro(CREDIT_MICRO, 31_000, 1, 8)}
        assert posted(after)["v100"] < ETA[6]


class TestMaxPrice:
    """Job 2 values an hour at 5 and pays at most 0.6. Its own GPUs raise the price to eta(6)."""

    def beside(self, estimate_us: int | None, **options: object) -> Snapshot:
        jobs = [job(1, 4, estimate_us=estimate_us), job(2, 2, max_price_micro=600_000)]
        running = [lease(9, 1, (1, 4), expires_us=AT_US + HOUR_US)]
        return market(jobs, running, utilities=(bid(2, "5"),), options=options)

    def test_keeps_job_queued_below_price_with_own_gpus(self) -> None:
        """At the posted price of 0 the job could start, but it would end after its first term."""
        decision = decide_round(self.beside(None, horizon_s=3600))
        assert not decision.grants
        plan = plans(decision)[2]
        assert (plan.kind, plan.needed_micro, plan.lowest_micro) == (
            PlanKind.REFUSED, 600_000, ETA[6],
        )  # fmt: skip
        (skip,) = decision.skips
        assert (skip.reason, skip.jobs) == (Reason.PRICE_ABOVE_MAX, (2,))
        numbers = {"price_micro": ETA[6], "max_price_micro": 600_000}
        assert skip.numbers == {"gpu_type": "v100", "needed": 2, **numbers}

    def test_plans_first_affordable_slot(self) -> None:
        """The other lease ends after three hours. The price is then eta(2), which is below 0.6."""
        quotas = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4), Entitlement(3, "v100", 0))
        asked = self.beside(3 * HOUR_US)
        jobs = tuple(replace(row, tenant=3) if row.id == 2 else row for row in asked.jobs)
        decision = decide_round(market(
            list(jobs), list(asked.leases), quotas=quotas, utilities=asked.utilities,
        ))  # fmt: skip
        assert plans(decision)[2].start_us == AT_US + 3 * HOUR_US
        assert reasons(decision) == {2: Reason.PLANNED_LATER}

    @pytest.mark.parametrize(("most", "reason"), [
        (600_000, Reason.PRICE_ABOVE_MAX), (None, Reason.PLANNED_LATER),
    ])  # fmt: skip
    def test_applies_to_later_plans(self, most: int | None, reason: Reason) -> None:
        """In an hour two GPUs are free at eta(8), above the maximum price but below the value."""
        jobs = [
            job(1, 4, estimate_us=9 * HOUR_US), job(3, 2, tenant=2, estimate_us=HOUR_US),
            job(4, 2, tenant=2, estimate_us=9 * HOUR_US), job(5, 2, max_price_micro=most),
        ]  # fmt: skip
        ends_us = AT_US + HOUR_US
        running = [
            lease(1, 1, (1, 4), expires_us=ends_us),
            lease(3, 3, (1, 2), tenant=2, expires_us=ends_us),
            lease(4, 4, (1, 2), tenant=2, expires_us=ends_us),
        ]
        asked = market(
            jobs, running, price_micro=500_000, utilities=(bid(5, "5"),),
            options={"horizon_s": 6 * 3600},
        )  # fmt: skip
        decision = decide_round(asked)
        assert reasons(decision) == {5: reason}
        if most is not None:
            (skip,) = decision.skips
            assert (skip.numbers["price_micro"], skip.numbers["max_price_micro"]) == (ETA[8], most)

    def test_is_default_bid(self) -> None:
        asked = self.beside(None, horizon_s=3600)
        decision = decide_round(replace(asked, utilities=()))
        assert reasons(decision) == {2: Reason.PRICE_ABOVE_MAX}

    def test_above_value_is_not_the_reason_for_waiting(self) -> None:
        asked = self.beside(None, horizon_s=3600)
        low = read_utility(2, "bid per_gpu_hour=0.5")
        decision = decide_round(replace(asked, utilities=(low,)))
        assert reasons(decision) == {2: Reason.PRICE_ABOVE_VALUE}

    def test_limits_value_counted_in_theta(self) -> None:
        asked = market(
            [job(1, 1, max_price_micro=3 * CREDIT_MICRO)], utilities=(bid(1, "7"),),
            options={"theta": "history"},
        )  # fmt: skip
        assert decide_round(asked).prices[0].theta_milli == 4000


class TestUnusableGpuType:
    """Jobs 1 and 2 hold V100s, but their profile now has only a speed on K80s."""

    PROFILES = (Profile(7, 1, (("k80", 1000),)),)

    def asked(self) -> Snapshot:
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (1, 2), own=0, borrowed=2)]
        jobs = [job(1, 4, profile=7), job(2, 2, profile=7)]
        utilities = (bid(2, "9"),)
        return market(jobs, leases, profiles=self.PROFILES, utilities=utilities, price_micro=ETA[6])

    def test_borrowed_lease_is_not_renewed(self) -> None:
        """Regression: the lease was renewed at the posted price, but noted as own quota."""
        decision = decide_round(self.asked())
        assert [(row.job, row.reason) for row in decision.ends] == [(2, EndReason.NOT_RENEWED)]

    def test_own_lease_is_renewed(self) -> None:
        decision = decide_round(self.asked())
        assert [(row.job, row.borrowed) for row in decision.renewals] == [(1, 0)]

    def test_reserves_no_node(self) -> None:
        """With a reserved node, job 3 of tenant 2 would wait for a type on which it cannot run."""
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 8))
        jobs = [job(1, 4), job(3, 8, tenant=2, profile=7), job(4, 2)]
        running = [lease(1, 1, (1, 4), own=0, borrowed=4, expires_us=AT_US + HOUR_US)]
        asked = market(
            jobs, running, quotas=quotas, profiles=self.PROFILES, utilities=(bid(4, "9"),)
        )
        assert set(granted(decide_round(asked))) == {4}
