"""Test the surcharge for GPUs queued for borrowing, from the formula to consecutive rounds."""

from __future__ import annotations

import json
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import (
    SCHEMA_VERSION,
    PoolPrice,
    Service,
    Snapshot,
    Surcharge,
    schema_of,
)
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.money.pricing import (
    next_surcharge_micro,
    posted_price_micro,
    surcharge_target_micro,
)
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.registry import POLICIES
from evenshare_core.policies.shared.prices import next_surcharges, queued_for_borrowing
from evenshare_core.units import CREDIT_MICRO, HOUR_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

FIVE_PERCENT, THRICE = 50, 3000
ON = Surcharge("v100", FIVE_PERCENT, THRICE)


class TestTarget:
    @pytest.mark.parametrize(
        ("theta_milli", "used", "queued", "capacity", "expected"),
        [
            (2000, 8, 0, 8, 0),  # no job waits
            (2000, 8, 8, 8, 2_000_000),  # 2^2 - 2^1
            (2000, 0, 8, 8, 1_000_000),  # a gang that does not fit: 2^1 - 2^0
            (2000, 4, 4, 8, 585_786),  # 2 - sqrt 2
            (2000, 480, 400, 480, 1_563_595),  # 2^(880/480) - 2
            (2000, 8, 800, 8, 3_000_000),  # limited by the cap
            (999_000, 8, 10**9, 8, 3_000_000),  # a power with too many digits is not computed
            (1000, 8, 8, 8, 0),  # with theta 1, all GPUs are free of charge
            (2000, 9, 8, 8, 2_000_000),  # nodes were lost, so the pool counts as full
            (2000, 0, 8, 0, 0),  # no GPUs
        ],
    )
    def test_matches_worked_examples(
        self, theta_milli: int, used: int, queued: int, capacity: int, expected: int
    ) -> None:
        target = surcharge_target_micro(
            CREDIT_MICRO, theta_milli, used, capacity, queued=queued, cap_milli=THRICE
        )
        assert target == expected

    def test_price_plus_target_follows_formula_beyond_full_pool(self) -> None:
        """Price plus target is eq. (8) for the total demand."""
        price = posted_price_micro(CREDIT_MICRO, 2000, 480, 480)
        price += surcharge_target_micro(CREDIT_MICRO, 2000, 480, 480, queued=400, cap_milli=THRICE)
        assert log2(price / CREDIT_MICRO + 1) == pytest.approx(880 / 480)

    @given(
        st.tuples(st.integers(0, 10**12), st.integers(1000, 999_999), st.integers(0, 600),
                  st.integers(0, 500)),
        st.integers(0, 10**6),
        st.integers(0, 999_999),
    )  # fmt: skip
    def test_grows_with_queued_gpus_up_to_cap(
        self, price: tuple[int, int, int, int], queued: int, cap: int
    ) -> None:
        target = surcharge_target_micro(*price, queued=queued, cap_milli=cap)
        more = surcharge_target_micro(*price, queued=queued + 1, cap_milli=cap)
        assert 0 <= target <= more <= price[0] * cap // 1000

    @pytest.mark.parametrize(
        ("price", "queued", "cap"),
        [((-1, 2000, 0, 8), 0, 0), ((1, 999, 0, 8), 0, 0), ((1, 2000, 0, 8), -1, 0),
         ((1, 2000, 0, 8), 0, -1)],
    )  # fmt: skip
    def test_rejects_invalid_parameters(
        self, price: tuple[int, int, int, int], queued: int, cap: int
    ) -> None:
        with pytest.raises(ValueError, match="must be"):
            surcharge_target_micro(*price, queued=queued, cap_milli=cap)


class TestStep:
    @given(
        st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**8), st.integers(0, 10**9)
    )
    def test_moves_towards_target_by_at_most_one_step(
        self, before: int, target: int, step: int, cap: int
    ) -> None:
        target = min(target, cap)
        after = next_surcharge_micro(before, target, step_micro=step, cap_micro=cap)
        assert 0 <= after <= cap
        if before <= cap:
            assert abs(after - before) <= max(1, step)
            assert abs(target - after) == max(0, abs(target - before) - max(1, step))

    def test_falls_to_lowered_cap_immediately(self) -> None:
        assert next_surcharge_micro(900, 900, step_micro=1, cap_micro=100) == 100


def moved(*, elapsed_us: int = 60, round_us: int = 60, **fields: int) -> Surcharge:
    row = replace(ON, **fields)
    price = PoolPrice("v100", 0, 8, 8, CREDIT_MICRO, 2000)
    (row,) = next_surcharges(
        [row], [price], used={"v100": 8}, queued={"v100": 8}, capacity={"v100": 8},
        elapsed_us=elapsed_us, round_us=round_us,
    )  # fmt: skip
    return row


class TestNextSurcharge:
    def test_moves_by_fraction_of_base_per_round(self) -> None:
        assert moved() == replace(ON, queued=8, surcharge_micro=50_000)
        assert moved(surcharge_micro=1_990_000).surcharge_micro == 2_000_000
        assert moved(surcharge_micro=2_400_000).surcharge_micro == 2_350_000

    def test_scales_step_by_elapsed_time(self) -> None:
        assert moved(elapsed_us=6).surcharge_micro == 5_000
        assert moved(elapsed_us=600).surcharge_micro == 50_000
        assert moved(elapsed_us=0).surcharge_micro == 1

    def test_moves_by_full_step_without_round_length(self) -> None:
        assert moved(elapsed_us=1, round_us=0).surcharge_micro == 50_000


def wanted(
    *jobs: Job,
    quota: int = 0,
    mode: Mode = Mode.LEND_AND_BORROW,
    limit: int | None = None,
    own: int = 0,
    borrowed: int = 0,
    credit: int | None = None,
    price_micro: int = CREDIT_MICRO,
) -> int:
    return queued_for_borrowing(
        [(row, "v100") for row in jobs],
        entitlements={(1, "v100"): Entitlement(1, "v100", quota, mode, limit)},
        use=lambda _tenant, _type: (own, borrowed),
        spendable=lambda _tenant: credit,
        prices={"v100": price_micro},
        capacity={"v100": 16},
        lease_us=HOUR_US,
    ).get("v100", 0)


class TestGpusQueuedForBorrowing:
    def test_counts_gpus_beyond_remaining_quota(self) -> None:
        assert wanted(job(1, 4), job(2, 4)) == 8
        assert wanted(job(1, 4), job(2, 4), quota=6) == 2
        assert wanted(job(1, 4), job(2, 4), quota=6, own=5) == 7
        assert wanted(job(1, 4), job(2, 4), quota=8) == 0
        assert wanted(job(1, 4), quota=2, own=3) == 4  # the quota was reduced below its use

    def test_ignores_jobs_with_maximum_price_below_price(self) -> None:
        dear, cheap = job(1, 4, max_price_micro=CREDIT_MICRO), job(2, 2, max_price_micro=999_999)
        assert wanted(dear, cheap) == 4
        assert wanted(dear, cheap, price_micro=CREDIT_MICRO + 1) == 0

    def test_ignores_gang_larger_than_gpu_type(self) -> None:
        assert wanted(job(1, 17), job(2, 16)) == 16

    def test_is_limited_by_borrow_limit(self) -> None:
        assert wanted(job(1, 8), limit=6, borrowed=1) == 5
        assert wanted(job(1, 8), limit=2, borrowed=3) == 0
        assert wanted(job(1, 8), mode=Mode.LEND) == 0

    def test_is_limited_by_credit_for_one_lease(self) -> None:
        assert wanted(job(1, 8), credit=3 * CREDIT_MICRO + 1) == 3
        assert wanted(job(1, 8), credit=-1) == 0
        assert wanted(job(1, 8), credit=0, price_micro=0) == 8

    @given(st.permutations([(1, 4, None), (2, 8, 5), (3, 1, None), (4, 2, CREDIT_MICRO)]))
    def test_is_independent_of_job_order(self, rows: list[tuple[int, int, int | None]]) -> None:
        jobs = [job(id_, gpus, max_price_micro=most) for id_, gpus, most in rows]
        assert wanted(*jobs, quota=3) == 4


def asked(price_micro: int = 0, surcharges: tuple[Surcharge, ...] = (ON,), **rest: Any) -> Snapshot:
    """Return a round: tenant 1 holds two nodes of 4 GPUs, and tenants 1 and 2 each wait for 8.

    The previous round was one round interval ago.
    """
    fields: dict[str, Any] = {
        "nodes": {1: 4, 2: 4},
        "quotas": (Entitlement(1, "v100", 8), Entitlement(2, "v100", 0)),
        "price_micro": price_micro,
        "surcharges": surcharges,
        "schema": schema_of((), surcharges=surcharges),
        "service": Service(at_us=0),
    }
    jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 4, tenant=2), job(4, 8)]
    held = lease(1, 1, (1, 4), (2, 4), expires_us=AT_US + HOUR_US)
    return snapshot(jobs, [held], **{**fields, **rest})


class TestRound:
    def test_posts_one_step_for_queued_gpus(self) -> None:
        decision = decide_round(asked())
        assert decision.prices == (PoolPrice("v100", 1_050_000, 8, 8, CREDIT_MICRO, 2000),)
        # 16 GPUs beyond quota, because tenant 1 would also borrow for its second job.
        assert decision.surcharges == (replace(ON, queued=16, surcharge_micro=50_000),)

    def test_continues_from_posted_value_and_falls_without_queue(self) -> None:
        before = replace(ON, queued=16, surcharge_micro=80_000)
        up = decide_round(asked(1_080_000, (before,)))
        assert up.surcharges[0].surcharge_micro == 130_000
        only = asked(1_080_000, (before,))
        alone = replace(only, jobs=only.jobs[:1], changes=tuple(
            row for row in only.changes if row.job in {0, 1}
        ))  # fmt: skip
        down = decide_round(alone)
        assert down.surcharges == (replace(ON, queued=0, surcharge_micro=30_000),)
        assert down.prices[0].price_micro == 1_030_000

    def test_keeps_old_encoding_without_setting(self) -> None:
        without = asked(surcharges=())
        decision = decide_round(without)
        assert decision.surcharges == ()
        assert decision.prices[0].price_micro == CREDIT_MICRO
        for value in (without, decision):
            data = canonical_bytes(value)
            assert decode(data, type(value)) == value
            assert len(json.loads(data)) == len(value.__struct_fields__) - len(value.newest)
        assert without.schema == 2

    def test_uses_schema_version_7_with_or_without_utilities(self) -> None:
        """A reader of version 6, which has utilities, must reject the snapshot."""
        worth = (Utility(1, UtilityKind.BID, CREDIT_MICRO),)
        assert schema_of((), utilities=worth) == 6
        assert schema_of((), surcharges=(ON,)) == 7
        assert schema_of((), utilities=worth, surcharges=(ON,)) == 7 < SCHEMA_VERSION

    def test_policy_with_clearing_prices_adds_no_surcharge(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(POLICIES["ltgf"]), "traits", Traits(clears_prices=True))
        decision = decide_round(asked())
        assert decision.surcharges == ()
        assert decision.prices[0].price_micro == CREDIT_MICRO

    def test_subtracts_credit_used_by_its_own_terms(self) -> None:
        """Tenant 2 borrows 4 GPUs in this round, and its credit allows one more."""
        jobs = (job(2, 4, tenant=2), job(3, 4, tenant=2), job(4, 4, tenant=2))
        round_ = snapshot(
            jobs, nodes={1: 4}, quotas=(Entitlement(2, "v100", 0),), price_micro=CREDIT_MICRO,
            credit={2: 5 * CREDIT_MICRO}, surcharges=(ON,),
        )  # fmt: skip
        decision = decide_round(round_)
        assert [grant.borrowed for grant in decision.grants] == [4]
        assert decision.surcharges[0].queued == 1


class TestConsecutiveRounds:
    def test_price_settles_within_one_step_of_maximum_price(self) -> None:
        """A job leaves the queue while the price exceeds its maximum, and returns afterwards.

        So the surcharge moves by one step around the price up to which the job would queue.
        """
        most = 1_420_000
        prices, before, price = [], ON, CREDIT_MICRO
        for _ in range(60):
            round_ = asked(price, (before,))
            jobs = tuple(
                replace(row, max_price_micro=most) if row.id > 1 else row for row in round_.jobs
            )
            decision = decide_round(replace(round_, jobs=jobs))
            (before,), price = decision.surcharges, decision.prices[0].price_micro
            prices.append(price)
        assert prices[:8] == [CREDIT_MICRO + 50_000 * step for step in range(1, 9)]
        assert set(prices[10:]) == {1_400_000, 1_450_000}
