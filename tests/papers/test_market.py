"""The market in live rounds: golden rounds by hand, and properties of every round.

Source: Astraea-online (8): base x (theta^(used / capacity) - 1). Here the base is 1 credit, theta
2, and a pool has 8 GPUs. Prices are 0.681793 with 6 GPUs in use and 1 with all 8.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Grant, Plan, PlanKind, Renew
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import PoolPrice, Snapshot
from evenshare_core.domain.utilities import Utility, UtilityKind, read_utility
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.market.policy import POLICY
from evenshare_core.policies.market.thetas import price_curve
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

ETA = {used: posted_price_micro(CREDIT_MICRO, 2000, used, 8) for used in range(9)}
QUOTAS = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4))


def market(jobs: list[Job], leases: list[Lease] | None = None, **fields: Any) -> Snapshot:
    """Return a round of a node of 8 GPUs and two tenants with 4 each; theta is fixed."""
    options = {"theta": "fixed", **fields.pop("options", {})}
    shown = {"nodes": {1: 8}, "quotas": QUOTAS, **fields}
    return snapshot(
        jobs, leases or [], policy="market", policy_version=POLICY.version, options=options, **shown
    )


def bid(job_id: int, price: str) -> Utility:
    return read_utility(job_id, {"kind": "bid", "per_gpu_hour": price})


def granted(decision: Decision) -> dict[int, tuple[int, int, int]]:
    """Return (own GPUs, borrowed GPUs, price) of each granted job."""
    return {row.job: (row.own, row.borrowed, row.price_micro) for row in decision.grants}


def reasons(decision: Decision) -> dict[int, Reason]:
    return {one: row.reason for row in decision.skips for one in row.jobs}


def plans(decision: Decision) -> dict[int, Plan]:
    return {row.job: row for row in decision.plans}


class TestOwnQuota:
    def test_is_free_and_goes_first(self) -> None:
        """Job 2 was submitted before job 3, but would have to borrow, so it waits."""
        decision = decide_round(market([job(1, 4), job(2, 2), job(3, 4, tenant=2)]))
        assert granted(decision) == {1: (4, 0, 0), 3: (4, 0, 0)}
        assert [row.job for row in decision.grants] == [1, 3]

    def test_is_granted_between_batches(self) -> None:
        memory = {"batch_us": AT_US - 1}
        decision = decide_round(market([job(AT_US, 4), job(AT_US - 5, 6)], memory=memory))
        assert granted(decision) == {AT_US: (4, 0, 0)}
        assert decision.memory["batch_us"] == AT_US - 1

    def test_is_granted_to_job_without_remaining_value(self) -> None:
        worthless = read_utility(1, {"kind": "linear", "k": -1000, "g": "0.000001"})
        decision = decide_round(market([job(1, 4)], utilities=(worthless,)))
        assert granted(decision) == {1: (4, 0, 0)}

    def test_takes_gpus_of_expired_borrowed_lease(self) -> None:
        """Job 2 of tenant 1 borrowed GPUs that tenant 2 now needs."""
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (1, 4), borrowed=4, own=0)]
        asked = market([job(1, 4), job(2, 4), job(3, 2, tenant=2)], leases)
        decision = decide_round(asked)
        assert {row.job for row in decision.renewals} == {1}
        assert granted(decision) == {3: (2, 0, 0)}
        assert [(row.job, row.reason) for row in decision.ends] == [(2, EndReason.NOT_RENEWED)]

    def test_clears_node_lease_by_lease_for_gang(self) -> None:
        """A node's two borrowed leases end in different rounds; the first to end is not renewed."""
        ahead = AT_US + HOUR_US // 2
        leases = [
            lease(1, 1, (1, 4), borrowed=4, own=0),
            lease(2, 2, (1, 4), borrowed=4, own=0, expires_us=ahead),
            lease(3, 3, (2, 8), borrowed=8, own=0, expires_us=ahead),
        ]
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 16))
        jobs = [job(1, 4), job(2, 4), job(3, 8), job(4, 8, tenant=2), job(5, 1)]
        asked = market(jobs, leases, nodes={1: 8, 2: 8}, quotas=quotas)
        first = decide_round(asked)
        assert [row.job for row in first.ends] == [1]
        assert (first.grants, first.renewals) == ((), ())
        second = replace(
            asked, leases=tuple(asked.leases[1:]), memory=first.memory, at_us=ahead, changes=(),
            service=replace(first.service, at_us=ahead),
        )  # fmt: skip
        decision = decide_round(second)
        assert granted(decision)[4] == (8, 0, 0)
        assert next(row for row in decision.grants if row.job == 4).placement == ((1, 8),)

    def test_plans_start_at_end_of_own_lease(self) -> None:
        """No GPU is free.

        Job 1 of the same tenant ends in two hours, so job 3 is planned to start then.
        """
        running = [
            lease(1, 1, (1, 4), expires_us=AT_US + HOUR_US),
            lease(2, 2, (1, 4), tenant=2, expires_us=AT_US + HOUR_US),
        ]
        jobs = [
            job(1, 4, estimate_us=2 * HOUR_US), job(2, 4, tenant=2, estimate_us=9 * HOUR_US),
            job(3, 4, estimate_us=HOUR_US),
        ]  # fmt: skip
        decision = decide_round(market(jobs, running))
        plan = plans(decision)[3]
        assert (plan.kind, plan.cost_micro) == (PlanKind.OWN, 0)
        assert plan.start_us == AT_US + 2 * HOUR_US
        (skip,) = decision.skips
        assert (skip.reason, skip.jobs) == (Reason.PLANNED_LATER, (3,))
        assert skip.numbers["starts_us"] == plan.start_us


class TestBorrower:
    RUNNING = (lease(9, 1, (1, 4), expires_us=AT_US + HOUR_US),)

    def test_starts_if_worth_price_with_own_gpus_counted(self) -> None:
        """The job pays the posted price, not the higher price that includes its own GPUs."""
        jobs = [job(1, 4), job(2, 2)]
        asked = market(jobs, [*self.RUNNING], price_micro=ETA[4])
        decision = decide_round(replace(asked, utilities=(bid(2, "0.681793"),)))
        assert granted(decision) == {2: (0, 2, ETA[4])}
        plan = plans(decision)[2]
        assert (plan.kind, plan.start_us, plan.borrowed) == (PlanKind.BORROWED, AT_US, 2)
        assert plan.cost_micro == 2 * ETA[4]
        assert plan.gain_micro == 2 * (681_793 - ETA[4])

    def test_refusal_shows_needed_price(self) -> None:
        asked = market([job(1, 4), job(2, 2)], [*self.RUNNING], options={"horizon_s": 3600})
        decision = decide_round(replace(asked, utilities=(bid(2, "0.681792"),)))
        assert not decision.grants
        plan = plans(decision)[2]
        assert plan.kind is PlanKind.REFUSED
        assert (plan.needed_micro, plan.lowest_micro) == (681_792, 681_793)
        (skip,) = decision.skips
        assert skip.reason is Reason.PRICE_ABOVE_VALUE
        assert (skip.numbers["value_micro"], skip.numbers["price_micro"]) == (681_792, 681_793)

    def test_refused_decaying_job_shows_value_and_price(self) -> None:
        """f = 2.8 - 2 t for 2 GPUs: worth 0.4 per GPU-hour now, at price eta(7), and 0 in an hour.

        The larger lease ends after 3 hours, and eta(3) is below 0.4. Today's value must not be
        compared with that later price, or the job would seem to be admitted.
        """
        quotas = (*QUOTAS, Entitlement(3, "v100", 0))
        jobs = [
            job(1, 4, estimate_us=3 * HOUR_US), job(3, 1, tenant=2, estimate_us=9 * HOUR_US),
            job(AT_US, 2, tenant=3),
        ]  # fmt: skip
        running = [*self.RUNNING, lease(8, 3, (1, 1), tenant=2, expires_us=AT_US + HOUR_US)]
        asked = market(jobs, running, quotas=quotas, options={"horizon_s": 6 * 3600})
        falling = read_utility(AT_US, "linear k=-2 g=2.8")
        decision = decide_round(replace(asked, utilities=(falling,)))
        plan = plans(decision)[AT_US]
        assert plan.kind is PlanKind.REFUSED
        assert (plan.needed_micro, plan.lowest_micro) == (400_000, ETA[7])
        (skip,) = decision.skips
        assert (skip.numbers["value_micro"], skip.numbers["price_micro"]) == (400_000, ETA[7])

    def test_bid_waits_for_first_profitable_slot(self) -> None:
        """After the first hour the other lease has ended, and the price falls to eta(2).

        The posted price is 0 now, but with the job's GPUs counted an hour would cost 0.681793.
        """
        quotas = (*QUOTAS, Entitlement(3, "v100", 0))
        asked = market([job(1, 4), job(2, 2, tenant=3)], [*self.RUNNING], quotas=quotas)
        decision = decide_round(replace(asked, utilities=(bid(2, "0.5"),)))
        plan = plans(decision)[2]
        assert (plan.kind, plan.start_us) == (PlanKind.BORROWED, AT_US + HOUR_US)
        assert reasons(decision) == {2: Reason.PLANNED_LATER}

    def test_decaying_job_starts_now_at_higher_price(self) -> None:
        """f = 10 - 4 t: a start now gains at least 6 - 2 x 0.681793, one in an hour at most 2."""
        quotas = (*QUOTAS, Entitlement(3, "v100", 0))
        asked = market([job(1, 4), job(2, 2, tenant=3)], [*self.RUNNING], quotas=quotas)
        hasty = read_utility(2, "linear k=-4 g=10")
        assert 2 in granted(decide_round(replace(asked, utilities=(hasty,))))

    def test_slowly_decaying_job_waits_for_lower_price(self) -> None:
        """f = 10 - 0.01 t: an hour of waiting costs 0.01 credits and saves almost one credit."""
        quotas = (*QUOTAS, Entitlement(3, "v100", 0))
        asked = market(
            [job(1, 4), job(2, 2, tenant=3)], [*self.RUNNING], quotas=quotas, price_micro=ETA[4]
        )
        patient = read_utility(2, "linear k=-0.01 g=10")
        decision = decide_round(replace(asked, utilities=(patient,)))
        plan = plans(decision)[2]
        assert plan.start_us == AT_US + HOUR_US
        assert plan.gain_micro == plan.value_micro - 2 * ETA[0]
        assert plan.value_micro == 10 * CREDIT_MICRO - 20_000

    def test_without_utility_bids_max_price_or_base_rate(self) -> None:
        jobs = [job(1, 4), job(2, 2, max_price_micro=ETA[6] - 1), job(3, 2)]
        decision = decide_round(market(jobs, [*self.RUNNING], options={"horizon_s": 3600}))
        assert set(granted(decision)) == {3}
        half = market(jobs, [*self.RUNNING], options={"horizon_s": 3600, "default_bid": 0.5})
        assert not decide_round(half).grants

    def test_equal_jobs_are_served_by_arrival(self) -> None:
        """With the first job counted, the price eta(8) exceeds the second job's value of 0.7."""
        jobs = [job(1, 4), job(3, 2), job(2, 2)]
        asked = market(jobs, [*self.RUNNING], utilities=(bid(2, "0.7"), bid(3, "0.7")))
        assert set(granted(decide_round(asked))) == {2}

    def test_late_arrival_waits_for_next_batch(self) -> None:
        memory = {"batch_us": 5}
        jobs = [job(1, 4), job(7, 2)]
        asked = market(jobs, [*self.RUNNING], memory=memory)
        assert reasons(decide_round(asked)) == {7: Reason.NEXT_BATCH}
        assert set(granted(decide_round(market(
            jobs, [*self.RUNNING], memory=memory, options={"interval_s": 0}
        )))) == {7}  # fmt: skip

    def test_picks_gpu_type_with_largest_gain(self) -> None:
        """Both types have room. A job with decaying value prefers the empty, cheaper type."""
        quotas = (
            Entitlement(1, "k80", 4), Entitlement(1, "v100", 4), Entitlement(3, "k80", 0),
            Entitlement(3, "v100", 0),
        )  # fmt: skip
        nodes = make_nodes({"k80": 1, "v100": 1}, 8)
        running = (lease(9, 1, (2, 4), expires_us=AT_US + HOUR_US),)
        patient = read_utility(2, "linear k=-0.01 g=10")
        prices = tuple(
            PoolPrice(name, price, 0, 8, CREDIT_MICRO, 2000)
            for name, price in (("k80", 0), ("v100", ETA[4]))
        )
        asked = market(
            [job(1, 4, gpu_types=("v100",)), job(2, 2, tenant=3, gpu_types=("k80", "v100"))],
            [*running], quotas=quotas, utilities=(patient,), prices=prices,
        )  # fmt: skip
        decision = decide_round(replace(asked, nodes=nodes))
        assert [row.gpu_type for row in decision.grants] == ["k80"]


class TestRenewal:
    def test_renews_lease_worth_posted_price(self) -> None:
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (1, 2), own=0, borrowed=2)]
        jobs = [job(1, 4), job(2, 2)]
        asked = market(jobs, leases, price_micro=ETA[6], utilities=(bid(2, "0.681793"),))
        decision = decide_round(asked)
        terms = {row.job: (row.own, row.borrowed, row.price_micro) for row in decision.renewals}
        assert terms == {1: (4, 0, 0), 2: (0, 2, ETA[6])}

    def test_refuses_lease_worth_less_than_posted_price(self) -> None:
        leases = [lease(1, 1, (1, 4)), lease(2, 2, (1, 2), own=0, borrowed=2)]
        asked = market([job(1, 4), job(2, 2)], leases, price_micro=ETA[6])
        decision = decide_round(replace(asked, utilities=(bid(2, "0.68"),)))
        ends = [(row.job, row.reason) for row in decision.ends]
        assert ends == [(2, EndReason.PRICE_ABOVE_VALUE)]
        assert reasons(decision) == {2: Reason.PRICE_ABOVE_VALUE}


class TestTheta:
    def test_follows_highest_job_value_of_thirty_days(self) -> None:
        asked = market([job(1, 1)], options={"theta": "history"}, utilities=(bid(1, "7"),))
        decision = decide_round(asked)
        assert decision.prices[0].theta_milli == 8000
        later = replace(
            market([], options={"theta": "history"}),
            memory=decision.memory,
            at_us=AT_US + 30 * 24 * HOUR_US,
        )
        assert decide_round(later).prices[0].theta_milli == 8000
        older = replace(later, at_us=later.at_us + 24 * HOUR_US)
        assert decide_round(older).prices[0].theta_milli == 2000

    def test_scales_with_factor_above_configured_minimum(self) -> None:
        asked = market(
            [job(1, 1)], options={"theta": "history", "theta_factor": 0.8}, utilities=(bid(1, "7"),)
        )
        assert decide_round(asked).prices[0].theta_milli == 6600
        low = replace(asked, utilities=(bid(1, "0.5"),))
        assert decide_round(low).prices[0].theta_milli == 2000

    def test_is_capped_at_maximum_of_books(self) -> None:
        """A bid of a billion times the base rate gets the largest stored theta (twelve digits)."""
        for worth, milli in (("999999", 10**9), ("1000000000", 10**12 - 1)):
            utility = bid(1, worth)
            asked = market([job(1, 1)], options={"theta": "history"}, utilities=(utility,))
            assert decide_round(asked).prices[0].theta_milli == milli

    def test_full_pool_costs_highest_job_value(self) -> None:
        asked = market([job(1, 8)], options={"theta": "history"}, utilities=(bid(1, "7"),))
        (row,) = decide_round(asked).prices
        full = posted_price_micro(row.base_micro, row.theta_milli, row.capacity, row.capacity)
        assert full == 7 * CREDIT_MICRO

    @given(st.integers(0, 10**9), st.integers(1000, 999_999), st.integers(0, 300))
    def test_price_curve_matches_posted_prices(self, base: int, theta: int, capacity: int) -> None:
        curve = price_curve(base, theta, capacity)
        for used in range(capacity + 1):
            assert curve[used] == posted_price_micro(base, theta, used, capacity)


class TestBorrowLimitJob:
    def test_grants_one_term_for_whole_job_at_one_price(self) -> None:
        running = [lease(9, 1, (1, 4), expires_us=AT_US + HOUR_US)]
        jobs = [job(1, 4), job(2, 2, estimate_us=3 * HOUR_US)]
        asked = market(
            jobs, running, options={"borrow_limit": "job"}, price_micro=ETA[4],
            lease_bounds_us=(HOUR_US, 5 * HOUR_US), utilities=(bid(2, str(ETA[4] / 10**6)),),
        )  # fmt: skip
        decision = decide_round(replace(asked, utilities=(bid(2, "0.42"),)))
        assert granted(decision) == {2: (0, 2, ETA[4])}
        assert [(row.job, row.lease_us) for row in decision.lengths] == [(2, 3 * HOUR_US)]
        strict = replace(asked, options={"theta": "fixed", "horizon_s": 3600})
        assert not decide_round(replace(strict, utilities=(bid(2, "0.42"),))).grants


def random_utility(rng: random.Random, job_id: int) -> Utility | None:
    kind = rng.choice((*UtilityKind, None))
    if kind is None:
        return None
    if kind is UtilityKind.BID:
        return Utility(job_id, kind, rng.randrange(2 * CREDIT_MICRO))
    if kind is UtilityKind.LINEAR:
        return Utility(job_id, kind, rng.randrange(1, 30 * CREDIT_MICRO), -rng.randrange(10**7))
    return Utility(job_id, kind, rng.randrange(1, 9 * CREDIT_MICRO), rng.randrange(1, 2 * 10**6))


def random_jobs(rng: random.Random, count: int = 40) -> tuple[SimJob, ...]:
    return tuple(
        SimJob(
            number, rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 4)), rng.randrange(6 * HOUR_US),
            rng.randrange(1, 3 * HOUR_US), estimate_us=rng.choice((None, rng.randrange(HOUR_US))),
            utility=random_utility(rng, number),
        )
        for number in range(1, count + 1)
    )  # fmt: skip


def life(seed: int, rounds: int = 120, **options: Any) -> list[tuple[Snapshot, Decision]]:
    """Return the rounds of a simulated pool over a few hours."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    cluster = Cluster(
        make_nodes({"v100": 2}, 8),
        tuple(Entitlement(one, "v100", gpus) for one, gpus in ((1, 2), (2, 3), (3, 11))),
        {"v100": (CREDIT_MICRO, 2000)},
    )
    rules = Rules("market", options, round_us=120 * SECOND_US, lease_us=600 * SECOND_US)
    state = SimulationState(cluster, random_jobs(rng), rules)
    rows = []
    for number in range(rounds):
        state.advance(number * rules.round_us)
        asked = state.snapshot()
        decision = decide_round(asked)
        state.apply(decision)
        rows.append((asked, decision))
    return rows


def hourly_micro(asked: Snapshot, job_: Job) -> int:
    """Return the value of an hour of the job per GPU, computed without the policy's code."""
    said = {row.id: row for row in asked.utilities}.get(job_.id)
    if said is None:
        return job_.max_price_micro if job_.max_price_micro is not None else CREDIT_MICRO
    if said.kind is UtilityKind.BID:
        return said.scale_micro
    left_us = asked.lease_us
    if job_.estimate_us is not None:
        row = {one.job: one for one in asked.service.jobs}.get(job_.id)
        ran_us = 0
        if row is not None:
            ran_us = (row.alloc_gpu_us + row.held * (asked.at_us - row.held_since_us)) // job_.gpus
        whole_us = max(1, job_.estimate_us)
        left_us = max(whole_us - ran_us, whole_us * 5 // 100, 1)
    end_us = asked.at_us + left_us - job_.submitted_us
    return max(0, said.value_micro(end_us, 0) * HOUR_US // (job_.gpus * left_us))


SEEDS = range(8)


class TestRoundInvariants:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_hourly_price_never_exceeds_borrower_value(self, seed: int) -> None:
        """If theta is `history`, a few jobs of very high value exclude others for a long time."""
        paid, theta = 0, "history" if seed < 2 else "fixed"
        for before, decision in life(seed, interval_s=(0, 300)[seed % 2], theta=theta):
            asked = replace(before, service=decision.service, changes=())
            jobs = {row.id: row for row in asked.jobs}
            terms: list[Grant | Renew] = [*decision.grants, *decision.renewals]
            for term in terms:
                if term.borrowed:
                    paid += 1
                    assert term.price_micro <= hourly_micro(asked, jobs[term.job])
                else:
                    assert term.price_micro == 0
        assert paid > (20 if theta == "fixed" else 0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_last_borrower_is_worth_next_posted_price(self, seed: int) -> None:
        """The last admitted borrower values an hour at no less than the next posted price."""
        for before, decision in life(seed, theta="fixed"):
            paid = [row for row in decision.grants if row.borrowed]
            if not paid or paid[-1].order != len(decision.grants) + len(decision.renewals):
                continue
            asked = replace(before, service=decision.service, changes=())
            last = {row.id: row for row in asked.jobs}[paid[-1].job]
            assert decision.prices[0].price_micro <= hourly_micro(asked, last)


class TestPoolStability:
    def test_started_jobs_finish_without_new_arrivals(self) -> None:
        """Forty jobs bid 0.9 for 16 GPUs, and each job that starts also runs to its end."""
        jobs = tuple(
            SimJob(
                number, 1, 2, 0, 5 * HOUR_US, estimate_us=5 * HOUR_US,
                utility=Utility(number, UtilityKind.BID, 900_000),
            )
            for number in range(1, 41)
        )  # fmt: skip
        cluster = Cluster(
            make_nodes({"v100": 2}, 8),
            (Entitlement(1, "v100", 4), Entitlement(2, "v100", 12)),
            {"v100": (CREDIT_MICRO, 2000)},
        )
        rules = Rules("market", {}, round_us=60 * SECOND_US, lease_us=600 * SECOND_US)
        books = simulate(cluster, jobs, rules).books
        assert {row.reason for row in books.leases} == {"finished"}
        assert len(books.leases) == 40
