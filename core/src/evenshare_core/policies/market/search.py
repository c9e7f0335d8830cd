"""The schedule of largest f - cost on borrowed GPUs: A_maxIrev's choice for one job.

Source: Astraea-online, algorithm 3 with (6) and (7), for pools without parameter servers, where
GPUs of a type are alike. Exact: f falls with the start, so only starts at which the cost is lower
than at every start before can be best. Of those, halves are left out whose best possible gain is
below one that is known.

A job pays the posted price for its first term, and for the others what would be posted with itself
counted. It may start only where an hour is worth that to it from the first term on: else its own
weight would push it out when its lease ends (0163).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evenshare_core.policies.market.job_values import JobOnType
from evenshare_core.policies.market.slots import Counts, Flags, SlotUse, window_starts
from evenshare_core.units import HOUR_US

_INT64_MAX = 2**63 - 1


class PlannedStart(NamedTuple):
    """A start that gains: its slot, slots in all, the borrowed GPUs there, and what it costs."""

    slot: int
    slots: int
    borrowed: int
    cost_micro: int
    value_micro: int
    price_micro: int

    @property
    def gain_micro(self) -> int:
        """Worth less cost."""
        return self.value_micro - self.cost_micro


class PriceRefusal(NamedTuple):
    """What keeps a job from borrowing, per GPU-hour, both in the slot in which it would lose least.

    `needed_micro`: the highest price at which it would have gained; `lowest_micro`: the price
    there was, always above it. `loss_micro`: price less worth, which may be less than nothing.
    """

    loss_micro: int
    needed_micro: int
    lowest_micro: int


class Search(NamedTuple):
    """A job on a GPU type, its tenant's quota there, and by which rule it borrows.

    `first`: the first slot that it may start in. `counts_itself`: whether it must be worth the
    price with itself counted, as leases are renewed (else the one before it is added).
    """

    one: JobOnType
    quota: int
    slot_us: int
    first: int
    counts_itself: bool

    def slots_on(self, use: SlotUse) -> int:
        """How many slots it takes, those within the horizon."""
        return min(use.slots, -(-self.one.left_us // self.slot_us))

    def is_hopeless(self, use: SlotUse) -> bool:
        """Whether at no time an hour is worth to it what it would have to pay at least."""
        return self.one.hourly_micro() < use.lowest_micro(self._gpus_counted)

    def refusal(self, use: SlotUse) -> PriceRefusal | None:
        """Why a job for which `best` knows no start is refused; None where nowhere was room.

        Of all starts the one at which it would lose least. What a job is worth may fall, so that
        its worth now and a price of later would tell nothing.
        """
        if self.is_hopeless(use):
            return self._hopeless_refusal(use)
        slots = self.slots_on(use)
        starts = window_starts(use.held <= use.capacity - self.one.job.gpus, slots)
        starts = starts[starts >= self.first]
        if not starts.size:
            return None
        prices = _Costs(self, use, slots).prices(starts)
        starts, prices = starts[prices > 0], prices[prices > 0]
        if not starts.size:
            return None
        kept = _records(prices)
        starts, prices = starts[kept], prices[kept]

        def most(low: int, high: int) -> int:
            return self.one.unbounded_hourly_micro(self._delay_us(int(starts[low]))) - int(
                prices[high]
            )

        place = _largest_of(starts.size, most)
        return self._refused(int(starts[place]), int(prices[place]))

    def _hopeless_refusal(self, use: SlotUse) -> PriceRefusal:
        """Of now and the slot in which least is in use; no other is looked at, to stay cheap."""
        slots = {0: use.price_now_micro(self._gpus_counted)}
        if least := int(use.held.argmin()):
            slots[least] = use.price_micro(least, self._gpus_counted)
        rows = [self._refused(slot, price) for slot, price in slots.items()]
        return min(rows)

    def _refused(self, slot: int, price_micro: int) -> PriceRefusal:
        """What costs as much as it is worth gains nothing: it would have needed less."""
        delay_us = self._delay_us(slot)
        needed = min(self.one.hourly_micro(delay_us), price_micro - 1)
        return PriceRefusal(
            price_micro - self.one.unbounded_hourly_micro(delay_us), needed, price_micro
        )

    @property
    def _gpus_counted(self) -> int:
        return self.one.job.gpus if self.counts_itself else 0

    def best(self, use: SlotUse) -> PlannedStart | None:
        """Return the start of largest gain; of equal ones the earliest.

        Of a bid, which is worth the same whenever it ends: the earliest that gains.
        """
        gpus, slots = self.one.job.gpus, self.slots_on(use)
        if gpus > use.capacity or not slots:
            return None
        starts = window_starts(use.held <= use.capacity - gpus, slots)
        starts = starts[starts >= self.first]
        if not starts.size:
            return None
        costs = _Costs(self, use, slots)
        starts = starts[costs.are_admitted(starts)]
        if not starts.size:
            return None
        search = self._largest if self.one.has_decay else self._earliest
        return search(starts, costs)

    def _delay_us(self, slot: int) -> int:
        return slot * self.slot_us

    def _earliest(self, starts: Counts, costs: _Costs) -> PlannedStart | None:
        value = self.one.value_micro(0)
        # cost < worth, both times the same factors, in whole numbers.
        below = (value * costs.slots * HOUR_US - 1) // self.one.left_us
        window = costs.windows[starts]
        gains = np.flatnonzero((window <= min(below, _INT64_MAX)) | (window == 0))
        return costs.start(int(starts[gains[0]])) if gains.size else None

    def _largest(self, starts: Counts, costs: _Costs) -> PlannedStart | None:
        records = starts[_records(costs.windows[starts])]

        def most(low: int, high: int) -> int:
            value = self.one.value_micro(self._delay_us(int(records[low])))
            return value - costs.cost_micro(int(records[high]))

        best = costs.start(int(records[_largest_of(records.size, most)]))
        return None if best.gain_micro <= 0 and best.cost_micro else best


def _records(prices: Counts) -> Flags:
    """Which are lower than all before: what a job is worth falls, so no other can be best."""
    least = np.minimum.accumulate(prices)
    is_lower = np.ones(prices.size, np.bool_)
    is_lower[1:] = least[1:] < least[:-1]
    return is_lower


def _largest_of(count: int, most: Callable[[int, int], int]) -> int:
    """Return the first place, of at least one, of largest gain: `most(place, place)`.

    Worth and cost both fall from place to place. So none from `low` to `high` gains more than
    `most(low, high)`, the worth of the first less the cost of the last, and ranges in which that
    is no more than what is known are left out.
    """
    best, best_gain = 0, most(0, 0)
    ranges = [(1, count - 1)]
    while ranges:
        low, high = ranges.pop()
        if low > high or most(low, high) <= best_gain:
            continue
        if (here := most(low, low)) > best_gain:
            best, best_gain = low, here
        middle = (low + 1 + high) // 2
        ranges.append((middle + 1, high))
        ranges.append((low + 1, middle))
    return best


class _Costs:
    """What windows of `slots` cost by their start, in GPU-slots times price."""

    def __init__(self, search: Search, use: SlotUse, slots: int) -> None:
        self._search, self._use, self.slots = search, use, slots
        one = search.one
        gpus, top = one.job.gpus, use.capacity
        self._with_itself = use.curve[np.minimum(use.held + gpus, top)]
        self._before = use.curve[np.minimum(use.held, top)]
        self._before[0] = use.posted_micro
        idle = search.quota - use.own_of(one.job.tenant)
        self._borrowed = np.clip(gpus - np.maximum(idle, 0), 0, gpus)
        price = self._with_itself if search.counts_itself else self._before
        if int(price.max(initial=0)) * gpus * use.slots > _INT64_MAX:
            price, self._borrowed = price.astype(object), self._borrowed.astype(object)
        spent = price * self._borrowed
        sums = np.concatenate((np.zeros(1, spent.dtype), np.cumsum(spent)))
        first = self._before * self._borrowed
        count = use.slots - slots + 1
        self.windows = sums[slots:] - sums[:-slots] - spent[:count] + first[:count]

    def are_admitted(self, starts: Counts) -> Flags:
        """At which of these starts the first hour is worth to the job what it costs.

        Of a job that is worth less later, no start is left out by what it is worth later.
        """
        search, one = self._search, self._search.one
        needed = self._needed(starts)
        hourly = one.hourly_micro(int(starts[0]) * search.slot_us)
        value = (needed <= min(hourly, _INT64_MAX)) | (self._borrowed[starts] == 0)
        return np.asarray(value, np.bool_)

    def prices(self, starts: Counts) -> Counts:
        """What an hour costs at each start: the first one, or the mean, whichever is more."""
        means = -(-self.windows[starts] // (self.slots * self._search.one.job.gpus))
        return np.asarray(np.maximum(self._needed(starts), means))

    def _needed(self, starts: Counts) -> Counts:
        before = np.asarray(self._before[starts], np.int64)
        if not self._search.counts_itself:
            return before
        return np.asarray(np.maximum(before, self._with_itself[starts]), np.int64)

    def cost_micro(self, slot: int) -> int:
        """What a start in this slot costs, rounded up; the last slot only as far as it is used."""
        factor = self._search.one.left_us
        return -(-int(self.windows[slot]) * factor // (self.slots * HOUR_US))

    def start(self, slot: int) -> PlannedStart:
        """The start in this slot."""
        one, cost = self._search.one, self.cost_micro(slot)
        most = int(self._borrowed[slot])
        price = cost * HOUR_US // (one.left_us * most) if most else 0
        value = one.value_micro(slot * self._search.slot_us)
        return PlannedStart(slot, self.slots, most, cost, value, price)
