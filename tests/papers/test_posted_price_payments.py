"""Astraea-online, golden case B: pricing and payment on the given schedule (4.2 to 4.4).

Four servers have 2 workers and 1 PS each; users 1 and 2 own 4 workers and 2 PSs each.

- On s1, j11 (user 1) runs in slots (8, 10] and j21 (user 2) in (10, 12], with 2 workers and 1 PS
  each.
- Job j12 of user 1 borrows 3 workers and 1 PS on s3 and s4 in (8, 12].
- Prices have theta = 16 and base rate 1.

A slot is an hour here: prices are per worker-hour. Amounts are micro-credits.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from evenshare_core.money.fixed_point import charge_micro
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.money.revenue.idle import IdleSums, split_charge, weights_between
from evenshare_core.units import CREDIT_MICRO, HOUR_US

USER_1, USER_2 = 1, 2
THETA_MILLI = 16_000
# resource: (capacity, quota of each user, used on s1, borrowed by j12)
RESOURCES = {"workers": (8, 4, 2, 3), "ps": (4, 2, 1, 1)}


def hour(slot: int) -> int:
    return slot * HOUR_US


def sums_of(resource: str) -> IdleSums:
    """Return both users' idle quota over the slots, before j12 borrows its part (eq. 2)."""
    capacity, quota, used, _ = RESOURCES[resource]
    sums = IdleSums()
    sums.entitle(hour(8), capacity, {USER_1: (quota, None), USER_2: (quota, None)})
    sums.use(hour(8), USER_1, used)
    return sums


def paid(start: int, end: int) -> dict[int, int]:
    """Return the payments to users 1 and 2 for j12 in slots (start, end], by resource."""
    earned = {USER_1: 0, USER_2: 0}
    for resource, (*_, used, borrowed) in RESOURCES.items():
        sums = sums_of(resource)
        marks = {}
        for slot in range(8, 13):
            if slot == 10:
                sums.use(hour(10), USER_1, -used)
                sums.use(hour(10), USER_2, used)
            marks[slot] = sums.mark(hour(slot))
        charge = charge_micro(borrowed, CREDIT_MICRO, hour(end) - hour(start))
        for share in split_charge(charge, 0, weights_between(marks[start], marks[end])):
            earned[share.lender] += share.amount_micro
    return earned


class TestPrices:
    @pytest.mark.parametrize(
        ("used", "capacity", "expected"),
        [(2, 8, 1), (1, 4, 1), (0, 8, 0), (4, 8, 3), (8, 8, 15)],
    )
    def test_follow_theta_formula(self, used: int, capacity: int, expected: int) -> None:
        assert (
            posted_price_micro(CREDIT_MICRO, THETA_MILLI, used, capacity) == expected * CREDIT_MICRO
        )


class TestJ12:
    def test_pays_12_for_workers_and_4_for_ps(self) -> None:
        workers = charge_micro(3, posted_price_micro(CREDIT_MICRO, THETA_MILLI, 2, 8), hour(4))
        servers = charge_micro(1, posted_price_micro(CREDIT_MICRO, THETA_MILLI, 1, 4), hour(4))
        assert (workers, servers) == (12 * CREDIT_MICRO, 4 * CREDIT_MICRO)

    def test_finds_6_idle_workers_and_3_idle_ps(self) -> None:
        assert sum(sums_of("workers").rates().values()) == 6
        assert sum(sums_of("ps").rates().values()) == 3


class TestPayments:
    """Cases of slots, user 2's income as the paper computes it, and user 1's income."""

    @pytest.mark.parametrize(
        ("start", "end", "user_2"),
        [
            # user 2 lends 4 of 6 workers and 2 of 3 PSs: 4/6 x 3 x 2 + 2/3 x 1 x 2
            (8, 10, Fraction(4, 6) * 3 * 2 + Fraction(2, 3) * 2),
            # user 2 lends 2 of 6 workers and 1 of 3 PSs
            (10, 12, Fraction(2, 6) * 3 * 2 + Fraction(1, 3) * 2),
        ],
    )
    def test_are_exact_for_each_half(self, start: int, end: int, user_2: Fraction) -> None:
        earned = paid(start, end)
        assert earned[USER_2] == round(user_2 * CREDIT_MICRO)
        assert earned[USER_1] == 8 * CREDIT_MICRO - earned[USER_2]

    def test_pay_user_2_16_thirds_in_first_half(self) -> None:
        assert paid(8, 10) == {USER_1: 2_666_667, USER_2: 5_333_333}

    def test_pay_both_users_8_over_whole_term(self) -> None:
        # User 1 pays itself 8; "gains 6" in section 4.2 is a misprint.
        assert paid(8, 12) == {USER_1: 8 * CREDIT_MICRO, USER_2: 8 * CREDIT_MICRO}
