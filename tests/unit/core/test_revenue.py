"""Test parts and integrals of idle quota against a model by slots, and exact splits of amounts."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.money.revenue.idle import (
    OPERATOR,
    ChargeShare,
    IdleSums,
    Mark,
    split_amount,
    split_charge,
    weights_between,
)

# The lenders are 0 (the operator), 1, 2, ... in this order.
WEIGHTS = st.lists(st.integers(0, 10**14), max_size=6).map(lambda row: dict(enumerate(row)))

# Each row is (time since the last step, tenant, change of own GPUs) or (time, new quotas, new
# capacity).
USES = st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(-3, 3))
QUOTAS = st.tuples(
    st.integers(0, 20),
    st.dictionaries(
        st.integers(1, 3),
        st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6)),
        max_size=3,
    ),
    st.integers(0, 12),
)


class Slots:
    """A slow computation of the same sums, with one addition per microsecond."""

    def __init__(self) -> None:
        self.capacity = 0
        self.quotas: dict[int, tuple[int, int | None]] = {}
        self.own: dict[int, int] = {}
        self.sums: dict[int, int] = {}
        self.parts: dict[int, Fraction] = {}

    def pass_(self, microseconds: int) -> None:
        for _ in range(microseconds):
            idle = self.idle()
            for lender, gpus in idle.items():
                self.sums[lender] = self.sums.get(lender, 0) + gpus
            total = sum(idle.values())
            for lender, gpus in idle.items() if total else [(OPERATOR, 1)]:
                part = Fraction(gpus, total or 1)
                self.parts[lender] = self.parts.get(lender, Fraction(0)) + part

    def idle(self) -> dict[int, int]:
        rows = {OPERATOR: max(self.capacity - sum(gpus for gpus, _ in self.quotas.values()), 0)}
        for tenant, (gpus, lendable) in self.quotas.items():
            idle = max(gpus - self.own.get(tenant, 0), 0)
            rows[tenant] = idle if lendable is None else min(idle, lendable)
        return rows


def lowest(mark: Mark) -> dict[int, Fraction]:
    return {lender: Fraction(total, mark.scale) for lender, total in mark.sums.items()}


class TestIdleSums:
    @given(st.lists(USES | QUOTAS, max_size=12))
    def test_match_slot_by_slot_model(self, changes: list[tuple[int, object, int]]) -> None:
        fast, slow, now, marks = IdleSums(has_history=True), Slots(), 0, {0: Mark(1, {})}
        for gap, what, number in changes:
            slow.pass_(gap)
            now += gap
            if isinstance(what, dict):
                fast.entitle(now, number, what)
                slow.quotas, slow.capacity = what, number
            elif isinstance(what, int):
                fast.use(now, what, number)
                slow.own[what] = slow.own.get(what, 0) + number
            # At any time, the state can be stored as JSON and restored.
            state = fast.to_state(0, has_integrals=True)
            fast = IdleSums.from_state(json.loads(json.dumps(state)))
            marks[now] = fast.mark(now)
        slow.pass_(5)
        expected = {lender: total for lender, total in slow.sums.items() if total}
        assert fast.integrals(now + 5) == Mark(1, expected)
        scale, sums = fast.mark(now + 5)
        parts = {lender: Fraction(total, scale) for lender, total in sums.items()}
        assert parts == {lender: part for lender, part in slow.parts.items() if part}
        assert sum(parts.values()) == now + 5
        for instant, mark in marks.items():
            again = fast.mark_at(instant)
            assert lowest(again) == lowest(mark)
        assert fast.rates() == {lender: gpus for lender, gpus in slow.idle().items() if gpus}

    def test_weights_are_difference_of_two_marks(self) -> None:
        sums = IdleSums()
        sums.entitle(0, 8, {1: (4, None), 2: (2, 1)})
        before = sums.mark(10)
        sums.use(15, 1, 4)
        after = sums.mark(20)
        # In the first half the lenders have 4, 1 and 2 of 7 idle GPUs, then 0, 1 and 2 of 3.
        parts = {key: Fraction(sum_, after.scale)
                 for key, sum_ in weights_between(before, after).items()}  # fmt: skip
        assert parts == {
            1: 5 * Fraction(4, 7),
            2: 5 * Fraction(1, 7) + 5 * Fraction(1, 3),
            OPERATOR: 5 * Fraction(2, 7) + 5 * Fraction(2, 3),
        }

    def test_earlier_use_counts_from_start_of_quota(self) -> None:
        sums = IdleSums()
        sums.entitle(10, 4, {1: (4, None)})
        sums.use(5, 1, 4)
        # Quotas start at 10, and a use reported for 5 counts from 10 on. So no quota is ever idle,
        # and all time belongs to the operator.
        assert sums.mark(20) == Mark(1, {OPERATOR: 20})


class TestSplit:
    def test_is_exact_and_fair_for_10000_seeded_cases(self) -> None:
        random = Random(5)  # noqa: S311 - examples, not secrets
        for _ in range(10_000):
            lenders = random.sample(range(12), random.randint(0, 8))
            weights = {key: random.choice((0, 1, random.randint(0, 10**14))) for key in lenders}
            self.check(random.randint(0, 10**13), random.randint(0, 10**15), weights)

    @given(st.integers(0, 10**13), st.integers(0, 10**15), WEIGHTS)
    def test_is_exact_and_fair_for_generated_cases(
        self, amount: int, gpu_us: int, weights: dict[int, int]
    ) -> None:
        self.check(amount, gpu_us, weights)

    def check(self, amount: int, gpu_us: int, weights: dict[int, int]) -> None:
        shares = split_charge(amount, gpu_us, weights)
        assert sum(share.amount_micro for share in shares) == amount
        assert sum(share.lent_gpu_us for share in shares) == gpu_us
        assert split_amount(amount, weights) == [(row.lender, row.amount_micro) for row in shares]
        total = sum(weights.values())
        for share in shares:
            assert share.weight == weights.get(share.lender, 0)
            # The amount differs by less than one unit from the exact share.
            distance = share.amount_micro * total - amount * share.weight
            assert not total or abs(distance) < total

    @given(st.integers(0, 10**9), WEIGHTS, st.randoms())
    def test_is_independent_of_order_of_lenders(
        self, amount: int, weights: dict[int, int], random: object
    ) -> None:
        turned = dict(reversed(weights.items()))
        assert split_charge(amount, 0, weights) == split_charge(amount, 0, turned)

    def test_breaks_ties_by_tenant_id_with_operator_last(self) -> None:
        shares = split_charge(2, 0, {OPERATOR: 1, 9: 1, 3: 1})
        assert [(share.lender, share.amount_micro) for share in shares] == [
            (3, 1),
            (9, 1),
            (OPERATOR, 0),
        ]

    def test_operator_earns_all_without_idle_quota(self) -> None:
        assert split_charge(7, 3, {4: 0}) == (ChargeShare(OPERATOR, 0, 7, 3),)
