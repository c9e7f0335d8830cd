"""Compare the value and price at which the market refuses a job with a search of all starts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.policies.market.job_values import JobOnType
from evenshare_core.policies.market.search import Search
from evenshare_core.policies.market.slots import Hold, SlotUse, Store
from evenshare_core.policies.market.thetas import price_curve
from evenshare_core.units import CREDIT_MICRO, HOUR_US
from tests.unit.core.snapshots import job

SEEDS = st.integers(0, 2**32)


def random_utility(rng: random.Random) -> Utility:
    kind = rng.choice(tuple(UtilityKind))
    if kind is UtilityKind.BID:
        return Utility(1, kind, rng.choice((0, rng.randrange(CREDIT_MICRO))))
    if kind is UtilityKind.LINEAR:
        return Utility(1, kind, rng.randrange(1, 20 * CREDIT_MICRO), -rng.randrange(4 * 10**6))
    return Utility(1, kind, rng.randrange(1, 4 * CREDIT_MICRO), rng.randrange(1, 2 * 10**6))


def random_case(seed: int) -> tuple[Search, SlotUse]:
    """Return a job of random value, and random leases of whole hours in a pool of 8 GPUs."""
    rng = random.Random(seed)  # noqa: S311 - a case, not a secret
    curve = price_curve(CREDIT_MICRO, rng.choice((1000, 2000, 9000)), 8)
    holds, room = [], 8
    while room > 1 and rng.random() < 0.8:
        gpus = rng.randrange(1, room)
        room -= gpus
        holds.append(Hold(2, rng.choice((0, gpus)), gpus, rng.randrange(1, 24), 1))
    use = SlotUse(8, 24, curve, rng.choice((0, *map(int, curve))), holds)
    left_us = rng.randrange(1, 6 * HOUR_US)
    one = JobOnType(
        job(1, rng.randrange(1, 5)), "v100", left_us, rng.randrange(HOUR_US), random_utility(rng)
    )
    for _ in range(rng.randrange(4)):  # leases that are planned for other jobs
        length = rng.randrange(1, 6)
        use.take(Hold(3, 0, 1, length, length), rng.randrange(1, 18))
    quota, first, by_lease = rng.choice((0, 0, 1)), rng.choice((0, 1)), rng.random() < 0.7
    return Search(one, quota, HOUR_US, first, counts_itself=by_lease), use


class TestRefusal:
    @given(SEEDS)
    def test_lowest_price_exceeds_needed_value(self, seed: int) -> None:
        search, use = random_case(seed)
        if search.is_hopeless(use) or search.best(use) is None:
            refusal = search.refusal(use)
            assert refusal is None or 0 <= refusal.needed_micro < refusal.lowest_micro

    @given(SEEDS)
    def test_uses_start_with_smallest_loss(self, seed: int) -> None:
        """The expected start comes from all starts, with plain sums.

        A loss of a micro-credit is rounding.
        """
        search, use = random_case(seed)
        refusal = None if search.is_hopeless(use) else search.refusal(use)
        if refusal is None or search.best(use) is not None:
            return
        one, slots = search.one, search.slots_on(use)
        losses = []
        for start in range(search.first, use.slots - slots + 1):
            window = range(start, start + slots)
            if any(use.held[slot] + one.job.gpus > 8 for slot in window):
                continue
            price = plain_price(search, use, start)
            if price > 0:
                worth = one.unbounded_hourly_micro(start * HOUR_US)
                losses.append((price - worth, min(max(0, worth), price - 1), price))
        assert refusal == min(losses, key=lambda row: row[0])

    def test_needs_less_if_price_equals_worth(self) -> None:
        use = SlotUse(8, 1, price_curve(CREDIT_MICRO, 2000, 8), 0, [Hold(2, 4, 4, 1, 1)])
        price = int(use.curve[6])
        one = JobOnType(job(1, 2), "v100", HOUR_US, 0, Utility(1, UtilityKind.BID, price))
        search = Search(one, 0, HOUR_US, 0, counts_itself=True)
        use.posted_micro = price
        assert search.best(use) is None
        refusal = search.refusal(use)
        assert refusal is not None
        assert (refusal.needed_micro, refusal.lowest_micro) == (price - 1, price)


class TestCachedSlotUse:
    """Values derived from the planned use of GPUs, which are cached for other jobs and rounds."""

    @given(st.lists(st.integers(0, 40), min_size=2, max_size=8))
    def test_returns_same_starts_and_refusals(self, seeds: list[int]) -> None:
        store: Store = {}
        for seed in [*seeds, *seeds]:
            search, use = random_case(seed)
            _, again = random_case(seed)
            again.keep_in(store)
            other = Search(
                search.one, search.quota, HOUR_US, search.first, counts_itself=search.counts_itself
            )
            assert other.best(again) == search.best(use)
            assert other.refusal(again) == search.refusal(use)
            gang = (2, 4, 1, search.slots_on(use), 0)
            assert again.own_start(*gang) == use.own_start(*gang)

    def test_is_invalidated_by_planned_hold(self) -> None:
        use = SlotUse(8, 4, price_curve(CREDIT_MICRO, 2000, 8), 0, [])
        use.keep_in({})
        assert use.own_start(1, 8, 8, 2, 0) == 0
        use.take(Hold(1, 8, 8, 2, 2), 0)
        assert use.own_start(1, 8, 8, 2, 0) == 2


def plain_price(search: Search, use: SlotUse, start: int) -> int:
    """Return the hourly price from this start on: the larger of the first price and the mean."""
    gpus, slots = search.one.job.gpus, search.slots_on(use)
    total = 0
    for slot in range(start, start + slots):
        before = use.posted_micro if slot == 0 else int(use.curve[use.held[slot]])
        with_itself = int(use.curve[min(8, use.held[slot] + gpus)])
        idle = max(0, search.quota - int(use.own_of(search.one.job.tenant)[slot]))
        borrowed = max(0, gpus - idle)
        pays = before if slot == start or not search.counts_itself else with_itself
        total += pays * borrowed
        if slot == start:
            needed = max(before, with_itself) if search.counts_itself else before
    return max(needed, -(-total // (slots * gpus)))


def test_worthless_job_is_refused_with_zero_needed_value() -> None:
    """A linear utility below 0 does not accept any price above 0."""
    use = SlotUse(8, 24, price_curve(CREDIT_MICRO, 2000, 8), 5, [])
    worthless = Utility(1, UtilityKind.LINEAR, 1, -CREDIT_MICRO)
    one = JobOnType(job(1, 2), "v100", HOUR_US, HOUR_US, worthless)
    refusal = Search(one, 0, HOUR_US, 0, counts_itself=True).refusal(use)
    assert refusal is not None
    assert refusal.needed_micro == 0
    assert refusal.lowest_micro == int(use.curve[2])
