"""Promises of the market in each round, measured independently of the policy.

No job borrows above its value, and no borrowed lease is preferred to an owner's job.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Key, Renew
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import Utility, read_utility
from evenshare_core.fairness.certificate import (
    Basis,
    CertificateItem,
    Property,
    Verdict,
)
from evenshare_core.fairness.job_value import ValueRule, check_value
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US
from tests.papers.crowded_market import crowded_round, owners_waits
from tests.papers.test_market import ETA, bid, granted, life, market, random_utility
from tests.patience import few
from tests.unit.core.certificates import line
from tests.unit.core.snapshots import AT_US, job, lease
from tests.unit.core.test_every_policy import drawn

WORTH, QUOTAS = Property.INDIVIDUAL_RATIONALITY, Property.QUOTA_GUARANTEE
SEEDS = st.integers(0, 2**32)
RULE = ValueRule(1000, 5)


def lines(asked: Snapshot, decision: Decision) -> dict[Property, CertificateItem]:
    """Return the two certificate lines of the market."""
    found = certify_round(asked, decision)
    assert (found.failure, found.version) == ("", 4)
    return {name: line(found, name) for name in (WORTH, QUOTAS)}


def verdicts(asked: Snapshot) -> tuple[Verdict, Verdict]:
    found = lines(asked, decide_round(asked))
    return found[WORTH].verdict, found[QUOTAS].verdict


def varied(asked: Snapshot, seed: int) -> Snapshot:
    """Return the round with random estimates, maximum prices, options and declared values."""
    rng = random.Random(seed)  # noqa: S311 - a case, not a secret
    jobs = [
        replace(
            row, estimate_us=rng.choice((None, rng.randrange(1, 5 * HOUR_US))),
            max_price_micro=rng.choice((None, None, rng.randrange(2 * CREDIT_MICRO))),
        )
        for row in asked.jobs
    ]  # fmt: skip
    options = {
        "theta": rng.choice(("fixed", "history")), "borrow_limit": rng.choice(("job", "lease")),
        "spread": rng.random() < 0.3, "horizon_s": rng.choice((3600, 7 * 86_400)),
    }  # fmt: skip
    utilities = [random_utility(rng, row.id) for row in jobs]
    return replace(
        asked, jobs=tuple(jobs), options=options, utilities=tuple(row for row in utilities if row),
        lease_bounds_us=rng.choice(((), (HOUR_US // 2, 3 * HOUR_US))),
    )  # fmt: skip


class TestRandomRounds:
    @given(SEEDS)
    def test_crowded_pool_keeps_both_promises(self, seed: int) -> None:
        assert Verdict.VIOLATED not in verdicts(crowded_round(seed))

    @given(SEEDS)
    def test_any_options_and_bids_keep_both_promises(self, seed: int) -> None:
        assert Verdict.VIOLATED not in verdicts(varied(crowded_round(seed), seed))

    @given(SEEDS)
    def test_several_types_with_limits_keep_both_promises(self, seed: int) -> None:
        assert Verdict.VIOLATED not in verdicts(drawn("market", seed))

    @pytest.mark.parametrize("borrow_limit", ["lease", "job"])
    @pytest.mark.parametrize("seed", range(3))
    def test_simulated_pool_keeps_both_promises(self, seed: int, borrow_limit: str) -> None:
        for asked, decision in life(seed, theta="fixed", borrow_limit=borrow_limit):
            found = lines(asked, decision)
            assert Verdict.VIOLATED not in {row.verdict for row in found.values()}

    def test_rounds_include_waiting_owners_and_borrowers(self) -> None:
        """Many of 300 crowded rounds have owners that wait, and many have borrowers."""
        seen: Counter[str] = Counter()
        for seed in range(300):
            asked = crowded_round(seed)
            found = lines(asked, decide_round(asked))
            seen["owed"] += bool(found[QUOTAS].checked)
            seen["waits"] += (found[QUOTAS].worst or 0) > 0
            seen["borrows"] += bool(found[WORTH].checked)
        assert min(seen["owed"], seen["waits"], seen["borrows"]) > 80

    def test_other_policies_have_no_market_finding(self) -> None:
        asked = replace(market([job(1, 2)]), policy="fifo", options={})
        found = certify_round(asked, decide_round(asked))
        assert found.version == 3
        assert WORTH not in {row.name for row in found.findings}


def borrowing(utility: Utility | None = None, **fields: Any) -> tuple[Snapshot, Decision]:
    """Return a round in which job 2 borrows 2 of 8 GPUs at eta(4), below its value."""
    asked = market(
        [job(1, 4), job(2, 2, **fields.pop("job", {}))],
        [lease(9, 1, (1, 4), expires_us=AT_US + HOUR_US)],
        price_micro=ETA[4], utilities=(utility,) if utility else (), **fields,
    )  # fmt: skip
    return asked, decide_round(asked)


def at_price(asked: Snapshot, decision: Decision, price_micro: int) -> CertificateItem:
    """Return the certificate line for the case that another price was posted and charged."""
    prices = tuple(replace(row, price_micro=price_micro) for row in asked.prices)
    terms = tuple(replace(row, price_micro=price_micro) for row in decision.grants)
    return lines(replace(asked, prices=prices), replace(decision, grants=terms))[WORTH]


class TestIndividualRationality:
    def test_shows_tenant_with_least_gain(self) -> None:
        row = lines(*borrowing(bid(2, "0.9")))[WORTH]
        assert (row.verdict, row.basis, row.checked, row.count) == (
            Verdict.HOLDS, Basis.VALUES, 1, 0,
        )  # fmt: skip
        assert (row.worst, row.tenant, row.total) == (round(0.9 - ETA[4] / 10**6, 6), 1, 2)

    def test_is_not_applicable_without_borrowing(self) -> None:
        asked = market([job(1, 4)])
        assert lines(asked, decide_round(asked))[WORTH].verdict is Verdict.NOT_APPLICABLE

    @pytest.mark.parametrize(
        ("said", "job_fields", "hourly"),
        [
            (bid(2, "0.9"), {}, 900_000),
            (None, {"max_price_micro": 700_000}, 700_000),
            (None, {}, 1_000_000),  # the default bid is the base rate
            # another certificate line checks maximum prices
            (bid(2, "0.9"), {"max_price_micro": 800_000}, 900_000),
            # 3 h of work on 2 GPUs: the value is f(3 h) = 9 - 2 x 3 credits for 6 GPU-hours.
            (read_utility(2, "linear k=-2 g=9"), {"estimate_us": 3 * HOUR_US - 1}, 500_000),
            # The value is (6 / 2)^2 = 9 credits for 4 GPU-hours.
            (read_utility(2, "convex e=6 kappa=2"), {"estimate_us": 2 * HOUR_US}, 2_250_000),
            # The duration is unknown, so one lease length counts: (6 / 1)^1 credits for 2
            # GPU-hours.
            (read_utility(2, "convex e=6 kappa=1"), {}, 3_000_000),
        ],
    )
    def test_is_violated_above_hourly_value(
        self, said: Utility | None, job_fields: dict[str, Any], hourly: int
    ) -> None:
        """The job was submitted some microseconds ago, so its value is slightly lower."""
        asked = market([job(1, 4), job(2, 2, **job_fields)], utilities=(said,) if said else ())
        row = replace(lease(2, 2, (1, 2), own=0, borrowed=2))
        decision = decide_round(replace(asked, leases=(row,)))
        term = replace(decision.grants[0], job=2, own=0, borrowed=2)
        planted = replace(decision, grants=(term,), renewals=())
        assert at_price(asked, planted, hourly - 30).verdict is Verdict.HOLDS
        red = at_price(asked, planted, hourly + 3)
        assert (red.verdict, red.broken, red.tenant) == (Verdict.VIOLATED, (1,), 1)
        assert -0.00004 < (red.worst or 0) < 0

    def test_is_exact_for_bids(self) -> None:
        asked, decision = borrowing(bid(2, "0.9"))
        assert at_price(asked, decision, 900_000).verdict is Verdict.HOLDS
        assert at_price(asked, decision, 900_001).verdict is Verdict.VIOLATED

    def test_checks_posted_and_charged_price(self) -> None:
        asked, decision = borrowing(bid(2, "0.9"))
        posted = tuple(replace(row, price_micro=2 * CREDIT_MICRO) for row in asked.prices)
        assert lines(replace(asked, prices=posted), decision)[WORTH].count == 1
        charged = tuple(replace(row, price_micro=2 * CREDIT_MICRO) for row in decision.grants)
        assert lines(asked, replace(decision, grants=charged))[WORTH].count == 1

    def test_uses_default_bid_of_policy_options(self) -> None:
        asked, decision = borrowing(options={"default_bid": 2.0})
        assert at_price(asked, decision, 2 * CREDIT_MICRO).verdict is Verdict.HOLDS
        assert at_price(asked, decision, 2 * CREDIT_MICRO + 1).verdict is Verdict.VIOLATED

    def test_unusable_gpu_type_has_zero_value(self) -> None:
        asked, decision = borrowing(bid(2, "0.9"))
        jobs = tuple(replace(row, profile=7) for row in asked.jobs)
        elsewhere = (Profile(7, 1, (("k80", 1000),)),)
        row = lines(replace(asked, jobs=jobs, profiles=elsewhere), decision)[WORTH]
        assert (row.verdict, row.worst) == (Verdict.VIOLATED, -round(ETA[4] / 10**6, 6))

    @given(SEEDS)
    def test_hourly_value_matches_policy(self, seed: int) -> None:
        """Two independent computations of the value of an hour give equal results."""
        from evenshare_core.policies.market.job_values import JobValues
        from evenshare_core.policies.market.options import MarketOptions
        from evenshare_core.policies.market.pool import PricedPool

        rng = random.Random(seed)  # noqa: S311 - a case, not a secret
        estimate_us = rng.choice((None, rng.randrange(1, 9 * HOUR_US)))
        profile = Profile(7, 1, (("v100", rng.choice((1000, 1500, 3333))),))
        asked = market(
            [job(1, 2, estimate_us=estimate_us, profile=rng.choice((0, 7)))],
            at_us=AT_US + rng.randrange(9 * HOUR_US), profiles=(profile,),
        )  # fmt: skip
        utility = random_utility(rng, 1)
        asked = replace(asked, utilities=(utility,) if utility else ())
        decision = decide_round(asked)
        term = replace(decision.grants[0], own=0, borrowed=2, price_micro=0)
        check = check_value(asked, replace(decision, grants=(term,)), RULE)
        least = check.least_micro
        after = PricedPool.of(replace(asked, service=decision.service), MarketOptions())
        values = JobValues(after, MarketOptions(), {"v100": 8})
        one = values.of(asked.jobs[0], "v100")
        assert one is not None
        assert least is not None
        rounding = Fraction(HOUR_US, one.job.gpus * one.left_us) + 1
        assert (
            abs(max(Fraction(0), least) - one.hourly_micro()) <= rounding
            or least > 10**15 - rounding
        )


class TestPartlyBorrowedLease:
    """A lease with own and borrowed GPUs ends for an owner's job.

    Its own GPUs do not become idle quota, because another lease of the tenant then counts as own.
    Job 6 would pay 0.7, but values an hour at 0.2.
    """

    def asked(self) -> Snapshot:
        quotas = tuple(Entitlement(one, "v100", gpus) for one, gpus in ((1, 2), (2, 4), (3, 4)))
        leases = [
            lease(1, 1, (1, 4), own=2, borrowed=2), lease(2, 2, (2, 2), own=0, borrowed=2),
            lease(3, 3, (2, 4), tenant=3, expires_us=AT_US + HOUR_US),
        ]  # fmt: skip
        jobs = [job(1, 4), job(2, 2), job(3, 4, tenant=3), job(5, 4, tenant=2), job(6, 2)]
        bids = (bid(1, "5"), bid(2, "5"), bid(6, "0.2"))
        return market(
            jobs, leases, nodes={1: 4, 2: 8}, quotas=quotas, price_micro=700_000, utilities=bids
        )

    def test_loses_borrowed_gpus_to_owner(self) -> None:
        decision = decide_round(self.asked())
        assert granted(decision) == {5: (4, 0, 0)}
        assert [(row.job, row.own, row.borrowed) for row in decision.renewals] == [(2, 2, 0)]
        assert decision.renewals[0].key.note == "own_quota"
        assert verdicts(self.asked())[1] is Verdict.NOT_APPLICABLE


def half_clear() -> Snapshot:
    """Return a round in which job 8 of tenant 2 needs a whole node; two nodes have borrowed leases.

    Job 8 is within quota. Node 1 has room for it in ten minutes. Node 2 has room in an hour minus a
    microsecond, but more free GPUs now. Job 9 of tenant 1 was submitted later and would borrow four
    GPUs.
    """
    quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 16))
    leases = [
        lease(1, 1, (1, 4), own=0, borrowed=4, expires_us=AT_US + 600 * SECOND_US),
        lease(2, 2, (2, 3), own=0, borrowed=3, expires_us=AT_US + HOUR_US - 1),
    ]
    jobs = [job(1, 4), job(2, 3), job(8, 8, tenant=2), job(9, 4)]
    bids = tuple(bid(one, "5") for one in (1, 2, 9))
    return market(jobs, leases, nodes={1: 8, 2: 8}, quotas=quotas, utilities=bids)


class TestQuotaGuarantee:
    def test_reserves_node_that_clears_first(self) -> None:
        """Node 2 has more free GPUs, but node 1 has room for job 8 earlier and is reserved."""
        decision = decide_round(half_clear())
        assert [(row.job, row.placement) for row in decision.grants] == [(9, ((2, 4),))]
        row = lines(half_clear(), decision)[QUOTAS]
        assert (row.verdict, row.basis, row.checked) == (Verdict.HOLDS, Basis.TERMS, 1)
        assert (row.worst, row.tenant, row.total) == (600, 2, 4)

    def test_switches_node_if_lease_there_becomes_own_quota(self) -> None:
        """Tenant 1 now has quota for its four GPUs.

        So only node 2 will have room for job 8, in an hour.
        """
        quotas = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 12))
        asked = half_clear()
        over = replace(asked.leases[0], expires_us=AT_US)
        asked = replace(asked, entitlements=quotas, leases=(over, asked.leases[1]))
        decision = decide_round(asked)
        assert [(row.job, row.own) for row in decision.renewals] == [(1, 4)]
        row = lines(asked, decision)[QUOTAS]
        assert (row.verdict, row.checked, row.worst) == (Verdict.HOLDS, 1, 3599.999999)
        # job 9 starts on node 1, not on node 2, which is reserved for job 8
        assert granted(decision) == {9: (0, 4, 0)}

    def test_is_violated_by_borrower_on_reserved_node(self) -> None:
        """If GPUs of node 1 are borrowed, job 8 must wait for room on node 2, or longer."""
        decision = decide_round(half_clear())
        moved = replace(decision.grants[0], placement=((1, 4),))
        row = lines(half_clear(), replace(decision, grants=(moved,)))[QUOTAS]
        assert (row.verdict, row.broken) == (Verdict.VIOLATED, (2,))
        assert row.worst == 3599.999999  # the wait for node 2, on which no GPUs are reserved

    def test_is_violated_by_renewal_on_reserved_node(self) -> None:
        asked = half_clear()
        leases = (replace(asked.leases[0], expires_us=AT_US), asked.leases[1])
        asked = replace(asked, leases=leases)
        decision = decide_round(asked)
        assert granted(decision)[8] == (8, 0, 0)
        again = Renew(1, 1, 1, 1, "v100", 4, Key(None, None), 0, 4, 0)
        planted = replace(decision, grants=(), ends=(), renewals=(again,))
        row = lines(asked, planted)[QUOTAS]
        assert (row.verdict, row.broken) == (Verdict.VIOLATED, (2,))

    def test_is_violated_by_idle_room_with_waiting_job(self) -> None:
        asked = market([job(1, 4), job(2, 2, tenant=2)])
        decision = decide_round(asked)
        assert lines(asked, decision)[QUOTAS].verdict is Verdict.NOT_APPLICABLE
        only = tuple(row for row in decision.grants if row.job == 1)
        row = lines(asked, replace(decision, grants=only))[QUOTAS]
        assert (row.verdict, row.checked, row.broken) == (Verdict.VIOLATED, 1, (2,))

    def test_holds_if_room_is_reserved_for_earlier_job(self) -> None:
        """Job 9 is within quota, but does not get node 1's GPUs: node 1 is reserved for job 8."""
        asked = half_clear()
        jobs = tuple(replace(row, tenant=2) if row.id == 9 else row for row in asked.jobs)
        full = replace(asked.leases[1], placement=((2, 8),), borrowed=8)
        asked = replace(asked, jobs=jobs, leases=(asked.leases[0], full))
        decision = decide_round(asked)
        assert not decision.grants
        row = lines(asked, decision)[QUOTAS]
        assert (row.verdict, row.checked, row.worst) == (Verdict.HOLDS, 2, 600)

    def test_is_violated_by_room_beyond_earlier_reservation(self) -> None:
        """Only one node is reserved for job 8, but job 9 would fit on both nodes."""
        asked = half_clear()
        jobs = tuple(replace(row, tenant=2) if row.id == 9 else row for row in asked.jobs)
        asked = replace(asked, jobs=jobs)
        decision = decide_round(asked)
        assert granted(decision) == {9: (4, 0, 0)}
        row = lines(asked, replace(decision, grants=()))[QUOTAS]
        assert (row.verdict, row.checked, row.broken) == (Verdict.VIOLATED, 2, (2,))

    def test_is_violated_by_charge_for_own_quota(self) -> None:
        asked = market([job(1, 4)])
        decision = decide_round(asked)
        paid = tuple(replace(row, own=3, borrowed=1) for row in decision.grants)
        row = lines(asked, replace(decision, grants=paid))[QUOTAS]
        assert (row.verdict, row.checked, row.broken) == (Verdict.VIOLATED, 0, (1,))

    def test_ignores_jobs_that_fit_on_no_node(self) -> None:
        """Job 8 is larger than a node. Leases within quota leave too few GPUs for job 9."""
        quotas = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 12))
        own = [lease(n, n, (n, 4), tenant=1, expires_us=AT_US + HOUR_US) for n in (1, 2)]
        jobs = [job(1, 4), job(2, 4), job(8, 12, tenant=2), job(9, 6, tenant=2)]
        asked = market(jobs, own, nodes={1: 8, 2: 8}, quotas=quotas)
        row = lines(asked, decide_round(asked))[QUOTAS]
        assert (row.verdict, row.checked, row.worst) == (Verdict.HOLDS, 1, None)


class TestOwnerWait:
    @settings(max_examples=few())
    @given(SEEDS)
    def test_is_at_most_one_lease_and_one_round(self, seed: int) -> None:
        assert max(owners_waits(seed), default=0) < HOUR_US + 60 * SECOND_US

    def test_runs_include_long_waits(self) -> None:
        waits = [wait for seed in range(3) for wait in owners_waits(seed)]
        assert max(waits) > HOUR_US // 2
