"""Search for the best start of a job on borrowed GPUs: A_maxIrev, the largest f - cost.

Source: Astraea-online, algorithm 3 with (6) and (7), for pools without parameter servers, where
GPUs of a type are interchangeable. The search is exact. f is lower for later starts, so only a
start that is cheaper than all earlier ones can be best. Ranges of these starts are skipped if their
best possible gain is below a known gain.

A job pays the posted price for its first term. For later terms it pays the price that would be
posted with its own GPUs counted. It may start only if a GPU-hour is worth that price from the first
term on. If a GPU-hour were worth less, the price that the job itself causes would end its lease
(ADR 0174).
"""

from collections.abc import Callable
from typing import NamedTuple

from evenshare_core.policies.market.job_values import JobOnType, bounded_micro
from evenshare_core.policies.market.slots import SlotUse
from evenshare_core.policies.market.windows import INT64_MAX, PaidGang, Windows, windows_of
from evenshare_core.units import HOUR_US


class PlannedStart(NamedTuple):
    """A start with a gain, with its price per GPU-hour and the borrowed GPUs of its first slot."""

    slot: int
    slots: int
    borrowed: int
    cost_micro: int
    value_micro: int
    price_micro: int

    @property
    def gain_micro(self) -> int:
        return self.value_micro - self.cost_micro


class PriceRefusal(NamedTuple):
    """The prices per GPU-hour that keep a job from borrowing, in the slot with the least loss.

    `needed_micro`: the highest price at which the job would have gained. `lowest_micro`: the price
    in that slot; it is always higher. `loss_micro`: price minus value; it may be negative.
    """

    loss_micro: int
    needed_micro: int
    lowest_micro: int


class Search:
    """A search for a job on a GPU type, given its tenant's quota and the borrowing rule.

    `first`, `counts_itself`: as in `PaidGang`. Cached results are valid until another job is
    planned.
    """

    __slots__ = (
        "_gpus_counted", "_is_hopeless", "_windows", "counts_itself", "first", "one", "quota",
        "slot_us",
    )  # fmt: skip # a table

    def __init__(
        self, one: JobOnType, quota: int, slot_us: int, first: int, *, counts_itself: bool
    ) -> None:
        self.one, self.quota, self.slot_us = one, quota, slot_us
        self.first, self.counts_itself = first, counts_itself
        self._gpus_counted = one.job.gpus if counts_itself else 0
        self._is_hopeless: bool | None = None
        self._windows: Windows | None = None

    def slots_on(self, use: SlotUse) -> int:
        """Return the number of slots that the job needs within the horizon."""
        return min(use.slots, -(-self.one.left_us // self.slot_us))

    def is_hopeless(self, use: SlotUse) -> bool:
        """Return whether a GPU-hour is worth less to the job than the lowest price of all slots."""
        if self._is_hopeless is None:
            hourly_micro = self.one.hourly_micro()
            self._is_hopeless = hourly_micro < use.lowest_micro(self._gpus_counted)
        return self._is_hopeless

    def refusal(self, use: SlotUse) -> PriceRefusal | None:
        """Return why `best` found no start: the prices at the start with the least loss.

        Return None if no start has room.

        The value of a job may fall, so its value now must not be compared with a later price.
        """
        if self.is_hopeless(use):
            # For speed, only the current slot and the slot with the least use are checked.
            slots = use.cheapest_micro(self._gpus_counted)
            return min(self._refused(slot, price) for slot, price in slots)
        windows = self._windows_in(use)
        if not windows.starts.size:
            return None
        starts, prices = windows.losing()
        if not starts:
            return None
        one, slot_us = self.one, self.slot_us

        def most(low: int, high: int) -> int:
            return one.unbounded_hourly_micro(starts[low] * slot_us) - prices[high]

        # A bid has the same value at all starts, so the last, cheapest start loses least.
        place = _largest_of(len(starts), most) if one.has_decay else -1
        return self._refused(starts[place], prices[place])

    def _refused(self, slot: int, price_micro: int) -> PriceRefusal:
        """Return the refusal. A price equal to the job's value gives no gain, so less is needed."""
        value_micro = self.one.unbounded_hourly_micro(slot * self.slot_us)
        needed = min(bounded_micro(value_micro), price_micro - 1)
        return PriceRefusal(price_micro - value_micro, needed, price_micro)

    def best(self, use: SlotUse) -> PlannedStart | None:
        """Return the start with the largest gain, the earliest on a tie; None without a gain.

        The value of a bid does not depend on the end, so a bid gets its earliest start with a gain.
        """
        one = self.one
        if one.job.gpus > use.capacity or not use.slots:
            return None
        windows = self._windows_in(use)
        if not windows.starts.size:
            return None
        # The value never rises with a later start, so this check excludes no possible start.
        hourly = min(one.hourly_micro(int(windows.starts[0]) * self.slot_us), INT64_MAX)
        if hourly < windows.least:
            return None
        search = self._largest if one.has_decay else self._earliest
        return search(windows, hourly)

    def _windows_in(self, use: SlotUse) -> Windows:
        if self._windows is None:
            job, slots = self.one.job, self.slots_on(use)
            gang = PaidGang(job.tenant, self.quota, job.gpus, slots, self.first, self.counts_itself)
            self._windows = windows_of(use, gang)
        return self._windows

    def _earliest(self, windows: Windows, hourly: int) -> PlannedStart | None:
        value, slots = self.one.value_micro(0), windows.gang.slots
        # cost < value, both scaled by the same factors to stay in integers; a cost of 0 always
        # passes
        below = (value * slots * HOUR_US - 1) // self.one.left_us
        gains = windows.costs <= max(0, min(below, INT64_MAX))
        if hourly < windows.most:
            gains &= windows.asked <= hourly
        place = int(gains.argmax())
        return self._start(windows, place) if gains[place] else None

    def _largest(self, windows: Windows, hourly: int) -> PlannedStart | None:
        records = windows.records(hourly)
        if records.size == 1:
            place = int(records[0])
        else:
            starts, costs = windows.starts[records].tolist(), windows.costs[records].tolist()

            def most(low: int, high: int) -> int:
                value = self.one.value_micro(starts[low] * self.slot_us)
                return value - self._cost_micro(costs[high], windows)

            place = int(records[_largest_of(len(starts), most)])
        best = self._start(windows, place)
        return None if best.gain_micro <= 0 and best.cost_micro else best

    def _cost_micro(self, cost: int, windows: Windows) -> int:
        """Return a window's cost, rounded up. Of the last slot, only the used part counts."""
        return -(-cost * self.one.left_us // (windows.gang.slots * HOUR_US))

    def _start(self, windows: Windows, place: int) -> PlannedStart:
        one, slot = self.one, int(windows.starts[place])
        cost = self._cost_micro(int(windows.costs[place]), windows)
        most = int(windows.borrowed[place])
        price = cost * HOUR_US // (one.left_us * most) if most else 0
        value = one.value_micro(slot * self.slot_us)
        return PlannedStart(slot, windows.gang.slots, most, cost, value, price)


def _largest_of(count: int, most: Callable[[int, int], int]) -> int:
    """Return the first of `count` places with the largest gain, `most(place, place)`.

    Value and cost both decrease from place to place. So no place from `low` to `high` gains more
    than `most(low, high)`, the first place's value minus the last place's cost. A range is skipped
    if this bound does not exceed the best gain so far.
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
