"""Test properties of Astraea-online's market on any pool, and claims that do not hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from evenshare_core.units import CREDIT_MICRO
from evenshare_research.market.book import MarketBook
from evenshare_research.market.gains import (
    fairness_of,
    payments,
    revenues,
    true_utility_micro,
)
from evenshare_research.market.max_revenue import best_schedule, schedule_jobs
from evenshare_research.market.model import (
    OPERATOR,
    BidUtility,
    ConvexUtility,
    LinearUtility,
    MarketJob,
    MarketPool,
    MarketSchedule,
    MarketServer,
    Owner,
    Utility,
)
from evenshare_research.market.rounds import MarketRules, MarketRun, run_market

from .market_pools import exact_income, paper_job, seeded_case

SEEDS = st.integers(0, 10**6)
MODES = st.sampled_from(
    [
        MarketRules("fixed", batch=1, horizon=8),
        MarketRules("fixed", batch=3, horizon=12),
        MarketRules("geometric", rounds=2, intervals=4),
    ]
)
UTILITIES = st.one_of(
    st.builds(LinearUtility, st.floats(-5, 0), st.floats(0, 200)),
    st.builds(ConvexUtility, st.floats(0.5, 60), st.floats(0.5, 2)),
    st.builds(BidUtility, st.floats(0, 6), st.floats(0, 30)),
)


def history(seed: int, rules: MarketRules) -> tuple[MarketPool, list[int], MarketRun]:
    """Return a pool, the true utilities, and a run whose jobs arrive over some slots."""
    pool, jobs, _ = seeded_case(seed)
    jobs = [replace(job, arrival=(seed // 7 + 2 * job.id) % 9) for job in jobs]
    run = run_market(pool, jobs, rules)
    by_id = {job.id: job for job in jobs}
    return pool, [true_utility_micro(by_id[one.job], one) for one in run.schedules], run


class TestRunInvariants:
    @given(SEEDS, MODES)
    def test_respects_limits_and_schedules_each_job_once(
        self, seed: int, rules: MarketRules
    ) -> None:
        pool, jobs, _ = seeded_case(seed)
        run = run_market(pool, jobs, rules)
        by_id = {job.id: job for job in jobs}
        assert len({one.job for one in run.schedules}) == len(run.schedules)
        workers: dict[tuple[int, int], int] = defaultdict(int)
        ps: dict[tuple[int, int], int] = defaultdict(int)
        own: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for one in run.schedules:
            job = by_id[one.job]
            assert one.start - 1 >= job.arrival
            slots = job.duration(one.worker_count, centralised=one.centralised)
            assert one.end == one.start + slots - 1
            assert one.worker_count <= job.chunks
            if one.ps:
                elsewhere = sum(count for server, count in one.workers if server != one.ps[0])
                assert one.ps[1] * pool.ps_bandwidth >= elsewhere * pool.worker_bandwidth
            for slot in range(one.start, one.end + 1):
                for server, count in one.workers:
                    workers[server, slot] += count
                if one.ps:
                    ps[one.ps[0], slot] += one.ps[1]
                if not one.borrowed:
                    own[one.tenant, slot][0] += one.worker_count
                    own[one.tenant, slot][1] += one.ps_count
        assert all(count <= pool.servers[server].workers for (server, _), count in workers.items())
        assert all(count <= pool.servers[server].ps for (server, _), count in ps.items())
        quotas = {row.tenant: (row.workers, row.ps) for row in pool.owners}
        for (tenant, _), (own_workers, own_ps) in own.items():
            assert own_workers <= quotas[tenant][0]
            assert own_ps <= quotas[tenant][1]

    @given(SEEDS, MODES)
    def test_admits_jobs_only_above_their_cost(self, seed: int, rules: MarketRules) -> None:
        """The paper's figure 12 shows this property."""
        _, _, run = history(seed, rules)
        assert all(one.ideal_micro > one.cost_micro >= 0 for one in run.schedules)

    @given(SEEDS, MODES)
    def test_pays_out_all_charges_and_own_quota_is_free(
        self, seed: int, rules: MarketRules
    ) -> None:
        _, _, run = history(seed, rules)
        for row in run.rounds:
            paid: dict[tuple[int, int], int] = defaultdict(int)
            for payment in payments(row):
                assert payment.amount_micro > 0
                paid[payment.job, payment.slot] += payment.amount_micro
            assert not {job for job, _ in paid} & {one.job for one in row.own}
            for one in row.borrowed:
                for index, slot in enumerate(range(one.start, one.end + 1)):
                    charge = one.worker_prices[index] * one.worker_count
                    charge += one.ps_prices[index] * one.ps_count
                    assert paid[one.job, slot] == charge

    @given(SEEDS, MODES)
    def test_pays_owners_by_idle_share(self, seed: int, rules: MarketRules) -> None:
        _, _, run = history(seed, rules)
        for row in run.rounds:
            earned: dict[tuple[int, int], int] = defaultdict(int)
            for payment in payments(row):
                earned[payment.owner, payment.slot] += payment.amount_micro
            for slot in {slot for _, slot in earned}:
                exact = exact_income(row, range(slot, slot + 1))
                # Two resources of each job are rounded, each by less than 1.
                bound = 2 * len(row.borrowed)
                for owner in row.idle_workers:
                    part = exact.get(owner, Fraction(0))
                    assert abs(earned[owner, slot] - part) < bound
                    if not part:
                        assert earned[owner, slot] == 0

    @given(SEEDS, MODES)
    def test_gains_sum_to_utilities(self, seed: int, rules: MarketRules) -> None:
        pool, utilities, run = history(seed, rules)
        _, jobs, _ = seeded_case(seed)
        jobs = [replace(job, arrival=(seed // 7 + 2 * job.id) % 9) for job in jobs]
        rows = revenues(pool, jobs, run)
        assert sum(row.gain for row in rows.values()) == sum(utilities)
        assert sum(row.income for row in rows.values()) == sum(row.cost for row in rows.values())
        assert (rows[OPERATOR].own_utility, rows[OPERATOR].cost) == (0, 0)

    @given(SEEDS)
    def test_extra_job_never_lowers_prices(self, seed: int) -> None:
        pool, jobs, slots = seeded_case(seed)
        book = MarketBook(pool, 4, slots)
        for job in jobs:
            before = (book.worker_prices, book.ps_prices)
            schedule = best_schedule(book, job, shared=True)
            if schedule is None:
                continue
            book.commit(schedule)
            assert (book.worker_prices >= before[0]).all()
            assert (book.ps_prices >= before[1]).all()
            held = slice(schedule.start - 5, schedule.end - 4)
            if pool.worker_theta_milli > 1000:
                assert (book.worker_prices > before[0])[held].all()


class TestMisreport:
    """Theorem 4 for a single job: prices are posted before its report is known."""

    @given(SEEDS, UTILITIES, UTILITIES, st.booleans())
    def test_false_utility_never_gains(
        self, seed: int, true: Utility, reported: Utility, is_ideal: bool
    ) -> None:
        pool, jobs, slots = seeded_case(seed)
        book = MarketBook(pool, 4, slots)
        *before, mine = jobs
        schedule_jobs(book, before, shared=False)
        # The policy's f counts from the start of the round, the true f from the arrival.
        reference = 4 if is_ideal else None
        for shared in (False, True):
            honest = best_schedule(
                book, replace(mine, utility=true), shared=shared, reference=reference
            )
            other = best_schedule(
                book, replace(mine, utility=reported), shared=shared, reference=reference
            )
            if other is not None:
                since = 4 if is_ideal else mine.arrival
                value = replace(mine, utility=true).utility_micro(other.end - since)
                gained = value - other.cost_micro
                assert gained <= (honest.value_micro if honest else 0)


def partition(pool: MarketPool, tenant: int) -> MarketPool:
    """Return a tenant's private partition of servers with one worker and one PS."""
    owner = next(row for row in pool.owners if row.tenant == tenant)
    return replace(pool, servers=[MarketServer(1, 1)] * owner.workers, owners=[owner])


def quota_pool(seed: int) -> tuple[MarketPool, list[MarketJob], int]:
    """Return a pool with prices of 0 and servers of one worker and one PS, and the pool's jobs."""
    base, jobs, slots = seeded_case(seed)
    tenants = len(base.owners)
    pool = replace(
        base, servers=[MarketServer(1, 1)] * (3 * tenants),
        owners=[Owner(tenant + 1, 3, 3) for tenant in range(tenants)],
        worker_theta_milli=1000, ps_theta_milli=1000, worker_bandwidth=1, ps_bandwidth=8,
    )  # fmt: skip
    return pool, jobs, slots


def free_throughout(pool: MarketPool, held: list[MarketSchedule], one: MarketSchedule) -> int:
    """Count servers that are free in all slots of a schedule, since a job keeps its servers."""
    busy = {
        server
        for other in held
        if other.start <= one.end and one.start <= other.end
        for server, _ in other.workers
    }
    return len(pool.servers) - len(busy)


class TestBatchSharingIncentive:
    @given(SEEDS)
    @example(794)
    def test_holds_at_zero_prices_with_free_servers(self, seed: int) -> None:
        """Own jobs start and end as in a partition as long as enough servers stay free for them."""
        pool, jobs, slots = quota_pool(seed)
        together, _ = schedule_jobs(MarketBook(pool, 4, slots), jobs, shared=False)
        for owner in pool.owners:
            book = MarketBook(partition(pool, owner.tenant), 4, slots)
            mine = [job for job in jobs if job.tenant == owner.tenant]
            alone, _ = schedule_jobs(book, mine, shared=False)
            in_pool = {one.job: (one.start, one.end) for one in together}
            for one in alone:
                if in_pool.pop(one.job, None) != (one.start, one.end):
                    others = [other for other in together if other.job != one.job]
                    assert free_throughout(pool, others, one) < one.worker_count
                    break
            else:
                assert not in_pool.keys() & {job.id for job in mine}

    def test_fails_if_no_server_stays_free(self) -> None:
        """Each slot has enough free servers, but not the same ones, and a job keeps its servers."""
        pool, jobs, slots = quota_pool(794)
        _, left = schedule_jobs(MarketBook(pool, 4, slots), jobs, shared=False)
        (job,) = (job for job in jobs if job.tenant == 3)
        assert job in left
        (alone,), _ = schedule_jobs(MarketBook(partition(pool, 3), 4, slots), [job], shared=False)
        assert (alone.start, alone.end, alone.worker_count) == (5, 8, 3)

    def test_fails_if_others_raise_prices(self) -> None:
        """The claim of section 4.1 fails: prices are shared, so a busy neighbour excludes a job.

        In a partition, user 2 would run its job for free, because its quota is idle.
        """
        pool = MarketPool(
            [MarketServer(2, 1)] * 2, [Owner(1, 2, 1), Owner(2, 2, 1)], 1, 1, 64_000, 2000
        )
        dear = replace(paper_job(0, 1, 2), utility=LinearUtility(0, 1000))
        cheap = replace(paper_job(1, 2, 2), utility=LinearUtility(0, 20))
        schedules, left = schedule_jobs(MarketBook(pool, 8, 2), [dear, cheap], shared=False)
        assert [one.job for one in schedules] == [0]
        assert [job.id for job in left] == [1]  # 2 slots x 2 workers x 7 credits exceed 20
        alone = replace(pool, servers=[MarketServer(2, 1)], owners=[pool.owners[1]])
        schedules, _ = schedule_jobs(MarketBook(alone, 8, 2), [cheap], shared=False)
        assert [one.job for one in schedules] == [1]


class TestRevenueFairness:
    def test_private_partitions_do_not_have_alpha_1(self) -> None:
        """Section 5.2 claims that BatchSche, which shares nothing, has alpha 1 for every tenant.

        By 5.1, alpha compares revenue with resources, so a tenant without jobs has 0 in any case.
        """
        pool = MarketPool([MarketServer(2, 1)] * 2, [Owner(1, 2, 1), Owner(2, 2, 1)])
        alone = replace(pool, servers=[MarketServer(2, 1)], owners=[pool.owners[0]])
        job = replace(paper_job(0, 1, 2), arrival=0)
        run = run_market(alone, [job], MarketRules("fixed", horizon=8))
        rows = revenues(alone, [job], run)
        assert fairness_of(pool, rows) == {1: 2, 2: 0}


class TestLending:
    def test_unowned_idle_capacity_pays_operator(self) -> None:
        pool = MarketPool(
            [MarketServer(2, 1)] * 3, [Owner(1, 2, 1), Owner(2, 2, 1)], 1, 1, 4000, 4000
        )
        jobs = [replace(paper_job(number, 1, 2), arrival=0) for number in range(3)]
        run = run_market(pool, jobs, MarketRules("fixed", horizon=2))
        rows = revenues(pool, jobs, run)
        # The charge is odd. The tenant gets the last micro-credit, because the operator is last on
        # ties.
        assert 0 <= rows[2].income - rows[OPERATOR].income <= 4
        assert rows[OPERATOR].income > CREDIT_MICRO
        assert rows[1].income == 0

    def test_borrower_with_idle_quota_earns_part_of_payment(self) -> None:
        """A job of 3 workers exceeds the quota of 2. Its tenant gets half of its payment back."""
        pool = MarketPool([MarketServer(4, 2)], [Owner(1, 2, 1), Owner(2, 2, 1)], 1, 1, 4000, 4000)
        first = replace(paper_job(0, 2, 1), arrival=0, epochs=2)
        wide = replace(paper_job(1, 1, 3), arrival=0, epochs=2, utility=LinearUtility(-20, 100))
        run = run_market(pool, [first, wide], MarketRules("fixed", horizon=2))
        (borrowed,) = [one for one in run.schedules if one.borrowed]
        assert borrowed.worker_count == 3
        rows = revenues(pool, [first, wide], run)
        assert rows[1].cost == borrowed.cost_micro > 0
        assert rows[1].income > 0
        assert rows[1].income + rows[2].income == rows[1].cost


class TestFixedInterval:
    def test_keeps_running_jobs_and_admits_only_at_batches(self) -> None:
        pool = MarketPool([MarketServer(2, 1)], [Owner(1, 2, 1)], 1, 1, 2000, 2000)
        jobs = [
            replace(paper_job(0, 1, 2), arrival=0.5, epochs=3),
            replace(paper_job(1, 1, 2), arrival=1),
        ]
        run = run_market(pool, jobs, MarketRules("fixed", batch=2, horizon=8))
        assert [(row.after, len(row.schedules)) for row in run.rounds] == [(2, 2)]
        first, second = run.schedules
        assert (first.start, first.end, second.start) == (3, 5, 6)

    def test_borrowing_leaves_own_quota_usable(self) -> None:
        """User 1 borrows three workers in addition to its own two."""
        pool = MarketPool([MarketServer(5, 3)], [Owner(1, 2, 1), Owner(2, 3, 2)], 1, 1, 2000, 2000)
        steep = LinearUtility(-20, 100)
        jobs = [
            replace(paper_job(0, 1, 3), arrival=0, epochs=4, utility=steep),
            replace(paper_job(1, 1, 1), arrival=1, epochs=1, utility=steep),
        ]
        run = run_market(pool, jobs, MarketRules("fixed", horizon=4))
        first, second = run.rounds
        assert [(one.job, one.worker_count, one.end) for one in first.borrowed] == [(0, 3, 4)]
        assert [(one.job, one.start) for one in second.own] == [(1, 2)]

    def test_drops_jobs_without_remaining_value(self) -> None:
        pool = MarketPool([MarketServer(1, 1)], [Owner(1, 1, 1)], 1, 1, 2000, 2000)
        poor = replace(paper_job(0, 1, 2), arrival=0, utility=LinearUtility(-2, 4))
        run = run_market(pool, [poor], MarketRules("fixed", horizon=8))
        assert [job.id for job in run.left] == [0]
        assert len(run.rounds) <= 1
