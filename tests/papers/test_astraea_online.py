"""Test Astraea-online (TC 2022): the worked example, corrected errors, and the printed algorithms.

The tests cover golden cases A and B of sections 4.2 to 4.4, and each error of the printed
algorithms. The fast form is compared with plain loops, as printed, on seeded instances.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from evenshare_core.units import CREDIT_MICRO
from evenshare_research.market.book import MarketBook
from evenshare_research.market.gains import (
    fairness_of,
    payments,
    revenues,
    true_utility_micro,
)
from evenshare_research.market.max_revenue import best_schedule
from evenshare_research.market.model import (
    ConvexUtility,
    LinearUtility,
    MarketJob,
    MarketPool,
    MarketSchedule,
    MarketServer,
    Owner,
)
from evenshare_research.market.prices import lemma_rounds, price_table, theta_milli_of
from evenshare_research.market.rounds import (
    MarketRound,
    MarketRules,
    MarketRun,
    run_market,
    schedule_round,
)
from tests.papers.literal_market import LiteralRound, LiteralSchedule

from .market_pools import PAPER_F, PAPER_POOL, exact_income, paper_job, seeded_case

GEOMETRIC = MarketRules("geometric", rounds=2, intervals=2)
# Workers and PSs are on separate servers, so no job fits on one server.
APART = replace(PAPER_POOL, servers=[MarketServer(2, 0), MarketServer(0, 2)] * 4)
# jobs as (tenant, chunks), in the order of the case
J11, J12, J21, J22 = (1, 2), (1, 3), (2, 2), (2, 30)
Row = tuple[int, int, tuple[int, ...], int]  # first slot, last slot, servers, f - cost


def placed(*order: tuple[int, int]) -> dict[tuple[int, int], Row]:
    """Return the schedules of the geometric mode for jobs in this order, in credits."""
    jobs = [paper_job(number, *job) for number, job in enumerate(order)]
    run = run_market(PAPER_POOL, jobs, GEOMETRIC)
    assert not any(schedule.borrowed for schedule in run.schedules)
    return {
        order[one.job]: (
            one.start,
            one.end,
            tuple(server + 1 for server, _ in one.workers),
            one.value_micro // CREDIT_MICRO,
        )
        for one in run.schedules
    }


class TestGoldenCaseA:
    def test_schedules_order_j11_j12_j21_j22(self) -> None:
        assert placed(J11, J12, J21, J22) == {
            J11: (9, 10, (1,), 96), J12: (10, 12, (2,), 89), J21: (11, 12, (1,), 86),
        }  # fmt: skip

    def test_schedules_order_j11_j21_j12_j22(self) -> None:
        """The paper states that j12 does not fit in user 1's own share, but it does."""
        assert placed(J11, J21, J12, J22) == {
            J11: (9, 10, (1,), 96), J21: (11, 12, (1,), 92), J12: (9, 11, (2,), 85),
        }  # fmt: skip

    def test_orders_jobs_by_arrival_then_id(self) -> None:
        jobs = [paper_job(number, *job) for number, job in enumerate([J11, J12, J21, J22])]
        backwards = run_market(PAPER_POOL, jobs[::-1], GEOMETRIC)
        assert backwards.schedules == run_market(PAPER_POOL, jobs, GEOMETRIC).schedules


def case_b() -> tuple[MarketRun, list[MarketJob]]:
    """Return the schedule that the paper's text describes, which differs from the algorithm's."""
    jobs = [paper_job(0, *J11), paper_job(1, *J21), paper_job(2, *J12)]
    book = MarketBook(PAPER_POOL, 8, 4)
    own = (
        MarketSchedule(
            0, 1, 9, 10, centralised=True, workers=((0, 2),), ps=(0, 1), worker_prices=(0, 0),
            ps_prices=(0, 0), ideal_micro=96 * CREDIT_MICRO, borrowed=False,
        ),
        MarketSchedule(
            1, 2, 11, 12, centralised=True, workers=((1, 2),), ps=(1, 1), worker_prices=(0, 0),
            ps_prices=(0, 0), ideal_micro=92 * CREDIT_MICRO, borrowed=False,
        ),
    )  # fmt: skip
    for schedule in own:
        book.commit(schedule)
    idle_workers, idle_ps = book.idle()
    j12 = MarketSchedule(
        2, 1, 9, 12, centralised=False, workers=((2, 2), (3, 1)), ps=(2, 1),
        worker_prices=tuple(book.worker_prices.tolist()), ps_prices=tuple(book.ps_prices.tolist()),
        ideal_micro=92 * CREDIT_MICRO, borrowed=True,
    )  # fmt: skip
    row = MarketRound(8, 4, own, (j12,), idle_workers, idle_ps, ())
    return MarketRun((row,), ()), jobs


class TestGoldenCaseB:
    def test_worker_and_ps_prices_are_1(self) -> None:
        assert price_table(16_000, 8)[2] == price_table(16_000, 4)[1] == CREDIT_MICRO

    def test_values_j11_at_96_on_one_server_and_92_on_two(self) -> None:
        book = MarketBook(PAPER_POOL, 8, 4)
        j11 = paper_job(0, *J11)
        best = best_schedule(book, j11, shared=False, reference=8)
        assert best is not None
        assert (best.centralised, best.value_micro) == (True, 96 * CREDIT_MICRO)
        best = best_schedule(MarketBook(APART, 8, 4), j11, shared=False, reference=8)
        assert best is not None
        assert (best.centralised, best.value_micro) == (False, 92 * CREDIT_MICRO)

    @pytest.mark.parametrize(("length", "value"), [(2, 90), (3, 91), (4, 92)])
    def test_values_j21_at_92_and_earlier_starts_at_91_and_90(
        self, length: int, value: int
    ) -> None:
        """j11 runs in (8, 10], so a start at 9, 10 or 11 costs 6, 3 or nothing."""
        jobs = [paper_job(0, *J11), paper_job(1, *J21)]
        row = schedule_round(PAPER_POOL, jobs, after=8, slots=length, reference=8)
        assert row.own[1].value_micro == value * CREDIT_MICRO
        assert row.own[1].end == 8 + length

    def test_values_j12_at_76_with_6_workers_and_3_ps_idle(self) -> None:
        run, _ = case_b()
        (row,) = run.rounds
        assert [sum(column[slot] for column in row.idle_workers.values()) for slot in range(4)] == [
            6, 6, 6, 6,
        ]  # fmt: skip
        assert sum(column[0] for column in row.idle_ps.values()) == 3
        (j12,) = row.borrowed
        assert (j12.cost_micro, j12.value_micro) == (16 * CREDIT_MICRO, 76 * CREDIT_MICRO)

    def test_user_2_earns_16_thirds_then_8_thirds(self) -> None:
        run, _ = case_b()
        first = exact_income(run.rounds[0], range(9, 11))
        second = exact_income(run.rounds[0], range(11, 13))
        assert first[2] == Fraction(16, 3) * CREDIT_MICRO
        assert second[2] == Fraction(8, 3) * CREDIT_MICRO

    def test_splits_payment_of_16_equally(self) -> None:
        run, _ = case_b()
        earned = {1: 0, 2: 0}
        for payment in payments(run.rounds[0]):
            assert payment.payer == 1
            earned[payment.owner] += payment.amount_micro
        assert earned == {1: 8 * CREDIT_MICRO, 2: 8 * CREDIT_MICRO}

    def test_gains_sum_to_utilities_and_alphas_to_2(self) -> None:
        run, jobs = case_b()
        rows = revenues(PAPER_POOL, jobs, run)
        utilities = sum(
            true_utility_micro(jobs[schedule.job], schedule) for schedule in run.schedules
        )
        assert sum(row.gain for row in rows.values()) == utilities
        alphas = fairness_of(PAPER_POOL, rows)
        assert sum(alpha or 0 for alpha in alphas.values()) == 2


class TestPaperErrata:
    """Errors of the printed algorithms; each would change the asserted values."""

    def test_window_ends_before_start_plus_duration(self) -> None:
        """The paper's distributed case starts at 9 for 4 slots, in (8, 12]."""
        best = best_schedule(MarketBook(APART, 8, 4), paper_job(0, *J11), shared=False, reference=8)
        assert best is not None
        assert (best.start, best.end, best.centralised) == (9, 12, False)

    def test_skips_server_with_too_few_ps(self) -> None:
        """Line 8 of algorithm 4 would lower the need of 2 PSs to the server's single PS."""
        pool = MarketPool(
            [MarketServer(1, 1), MarketServer(1, 2), MarketServer(1, 1)],
            [Owner(1, 3, 4)],
            1,
            1,
            1000,
            1000,
        )
        # 3 workers take 8 slots; 2 workers would take 12
        job = replace(paper_job(0, 1, 3), epochs=4)
        best = best_schedule(MarketBook(pool, 8, 8), job, shared=False, reference=8)
        assert best is not None
        assert best.ps == (1, 2)

    def test_centralised_window_costs_sum_of_slots(self) -> None:
        """By line 12 of algorithm 5 (d x the first slot's price), a start at 9 would cost 0."""
        pool = replace(PAPER_POOL, owners=[Owner(1, 8, 4)])
        held = MarketSchedule(
            9, 1, 10, 10, centralised=True, workers=((0, 2),), ps=(0, 1), worker_prices=(0,),
            ps_prices=(0,), ideal_micro=0, borrowed=False,
        )  # fmt: skip
        book = MarketBook(pool, 8, 2, [held])
        best = best_schedule(book, paper_job(0, *J11), shared=False, reference=8)
        assert best is not None
        assert (best.start, best.cost_micro) == (9, 3 * CREDIT_MICRO)

    def test_ps_quota_limits_ps(self) -> None:
        """As printed (q_w and a_w), a user without PSs could use others' PSs in its own phase."""
        pool = replace(PAPER_POOL, owners=[Owner(1, 4, 0), Owner(2, 4, 4)])
        row = schedule_round(pool, [paper_job(0, *J11)], after=8, slots=4, reference=8)
        assert (len(row.own), len(row.borrowed)) == (0, 1)

    def test_second_interval_has_tau_4(self) -> None:
        """As printed (2^(l-1)), a job with r = 3 would wait for interval 3."""
        run = run_market(PAPER_POOL, [paper_job(0, *J11)], GEOMETRIC)
        assert [(row.after, row.slots) for row in run.rounds] == [(8, 4)]

    def test_ideal_value_counts_from_round_start(self) -> None:
        """As printed ((lambda + i - 1) tau_l), a job would have one value in rounds 1 and 2."""
        late = replace(paper_job(0, *J11), utility=LinearUtility(-30, 100))
        row = schedule_round(PAPER_POOL, [late], after=12, slots=4, reference=12)
        assert row.own[0].ideal_micro == 40 * CREDIT_MICRO
        assert schedule_round(PAPER_POOL, [late], after=12, slots=4).schedules == ()

    def test_theta_bound_exceeds_theta_of_example(self) -> None:
        """96 credits / 4 worker slots and 96 / 2 PS slots give 25 and 49, but the paper uses 16."""
        assert theta_milli_of([paper_job(0, *J11)], longest=4) == (25_000, 49_000)


class TestTheta:
    def test_is_at_least_2(self) -> None:
        poor = replace(paper_job(0, *J11), utility=LinearUtility(0, 0.1))
        assert theta_milli_of([poor], longest=4) == (2000, 2000)
        assert theta_milli_of([], longest=4) == (2000, 2000)

    def test_scales_with_factor(self) -> None:
        assert theta_milli_of([paper_job(0, *J11)], longest=4, factor=0.8) == (20_000, 39_200)
        with pytest.raises(ValueError, match="factor"):
            theta_milli_of([], longest=4, factor=0)

    @pytest.mark.parametrize("utility", [PAPER_F, ConvexUtility(40, 1.5), LinearUtility(-1, 900)])
    def test_full_pool_refuses_every_job(self, utility: LinearUtility | ConvexUtility) -> None:
        """Each slot costs theta - 1, so no schedule gains more than 0."""
        job = replace(paper_job(0, *J12), utility=utility)
        worker_theta, ps_theta = theta_milli_of([job], longest=12)
        for count in range(1, job.chunks + 1):
            for centralised in (True, False):
                slots = job.duration(count, centralised=centralised)
                least = min(worker_theta - 1000, ps_theta - 1000) * slots * CREDIT_MICRO // 1000
                assert slots > 12 or job.utility_micro(slots) <= least * max(1, count)


class TestLambda:
    def test_matches_lemma_1(self) -> None:
        # sigma = 2 (ln 16 + ln 16) = 11.09; ln 400 / ln(11.09 / 10.09) = 63.4
        assert lemma_rounds(400, 1, 16_000, 16_000) == 64
        assert lemma_rounds(1, 1, 16_000, 16_000) == 1

    def test_is_computed_if_not_given(self) -> None:
        jobs = [paper_job(0, *J11)]
        run = run_market(PAPER_POOL, jobs, MarketRules("geometric"))
        assert run.rounds[0].after == 4  # lambda = 1, because there is only one job

    def test_rejects_invalid_utility_or_theta(self) -> None:
        with pytest.raises(ValueError, match="least"):
            lemma_rounds(1, 0, 16_000, 16_000)
        with pytest.raises(ValueError, match="theta"):
            lemma_rounds(2, 1, 1000, 1200)


def plain(schedule: MarketSchedule | LiteralSchedule) -> tuple[object, ...]:
    """Return the fields of a schedule that both forms have, for comparison."""
    if isinstance(schedule, LiteralSchedule):
        ps = next(iter(schedule.ps.items()), None)
        workers = tuple(sorted(schedule.workers.items()))
        rest = (ps, schedule.cost_micro, schedule.utility_micro)
        return (schedule.job, schedule.start, schedule.end, workers, *rest)
    rest = (schedule.ps, schedule.cost_micro, schedule.ideal_micro)
    return (schedule.job, schedule.start, schedule.end, schedule.workers, *rest)


class TestFastImplementation:
    @pytest.mark.parametrize("hundred", range(6))
    def test_matches_printed_algorithms(self, hundred: int) -> None:
        """Compare 600 rounds of both phases, with reference times of both modes."""
        placed_at_all = 0
        for seed in range(100 * hundred, 100 * hundred + 100):
            pool, jobs, slots = seeded_case(seed)
            reference = (None, 4.0)[seed % 2]
            row = schedule_round(pool, jobs, after=4, slots=slots, reference=reference)
            own, borrowed = LiteralRound(pool, 4, slots).run(jobs, reference)
            assert list(map(plain, row.own)) == list(map(plain, own)), seed
            assert list(map(plain, row.borrowed)) == list(map(plain, borrowed)), seed
            placed_at_all += len(own) + 100 * bool(borrowed)
        assert placed_at_all > 1000  # many rounds have jobs of both phases
