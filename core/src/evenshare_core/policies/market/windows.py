"""The cost of a gang in each window of slots that has room for the gang.

Many jobs of a batch have the same inputs. So windows are cached with the slot use until another job
is planned on it (`slots.SlotUse.kept`).
"""

from typing import NamedTuple

import numpy as np

from evenshare_core.policies.market.slots import Counts, Flags, SlotUse, window_starts

INT64_MAX = 2**63 - 1


class PaidGang(NamedTuple):
    """Jobs of one tenant that pay the same: the tenant's quota, and each job's GPUs and slots.

    `first`: the first slot in which a job may start. `counts_itself`: whether the price that it
    must be worth counts its own GPUs as used, as renewals do.
    """

    tenant: int
    quota: int
    gpus: int
    slots: int
    first: int
    counts_itself: bool


class Windows:
    """The starts from which a gang has room until its end, with their costs.

    `costs`: GPU-slots x price of the whole window. Three arrays describe the first slot. `needed`:
    the price that a GPU-hour must be worth. `borrowed`: the number of borrowed GPUs. `asked`:
    `needed`, but 0 if no GPU is borrowed. `least`, `most`: bounds of `asked`, 0 if no start has
    room.
    """

    __slots__ = (
        "_losing", "_records", "asked", "borrowed", "costs", "gang", "least", "most", "needed",
        "starts",
    )  # fmt: skip # a table

    def __init__(self, use: SlotUse, gang: PaidGang) -> None:
        self.gang = gang
        starts = window_starts(use.held <= use.capacity - gang.gpus, gang.slots)
        self.starts = starts[starts >= gang.first] if gang.first else starts
        self._records: Counts | None = None
        self._losing: tuple[list[int], list[int]] | None = None
        self.least = self.most = 0
        if self.starts.size:
            self._price(use)

    def _price(self, use: SlotUse) -> None:
        gang, starts, curve = self.gang, self.starts, use.curve
        gpus, slots = gang.gpus, gang.slots
        # "clip": if use exceeds capacity, the price is that of a full pool
        with_itself = curve.take(use.held + gpus, mode="clip")
        before = curve.take(use.held, mode="clip")
        before[0] = use.posted_micro
        idle = np.maximum(gang.quota - use.own_of(gang.tenant), 0)
        borrowed = np.maximum(gpus - idle, 0)
        price = with_itself if gang.counts_itself else before
        first, shown = before, borrowed
        if int(price.max()) * gpus * use.slots > INT64_MAX:
            price, borrowed = price.astype(object), borrowed.astype(object)
        spent = price * borrowed
        sums = np.zeros(use.slots + 1, spent.dtype)
        spent.cumsum(out=sums[1:])
        windows = sums[starts + slots] - sums[starts]
        # The first slot costs the posted price, or the price without the job's GPUs.
        self.costs = windows + ((first - price) * borrowed)[starts]
        self.needed = self._first_hour(before[starts], with_itself[starts])
        self.borrowed = shown[starts]
        self.asked = np.where(self.borrowed == 0, 0, self.needed)
        self.least, self.most = int(self.asked.min()), int(self.asked.max())

    def _first_hour(self, before: Counts, with_itself: Counts) -> Counts:
        if not self.gang.counts_itself:
            return before
        return np.asarray(np.maximum(before, with_itself), np.int64)

    def records(self, hourly_micro: int) -> Counts:
        """Return the indices of affordable starts that cost less than all earlier affordable ones.

        The value of a job falls with time, so no other start can be best.
        """
        if hourly_micro < self.most:
            places = (self.asked <= hourly_micro).nonzero()[0]
            return np.asarray(places[_are_lower(self.costs[places])])
        if self._records is None:
            self._records = _are_lower(self.costs).nonzero()[0]
        return self._records

    def losing(self) -> tuple[list[int], list[int]]:
        """Return the starts with a lower hourly price than all earlier starts, and these prices.

        An hourly price is the price of the first hour, or the mean price if that is higher. Prices
        of 0 are left out, because they keep no job waiting.
        """
        if self._losing is None:
            gang = self.gang
            means = -(-self.costs // (gang.slots * gang.gpus))
            prices = np.maximum(self.needed, means)
            paid = (prices > 0).nonzero()[0]
            kept = paid[_are_lower(prices[paid])] if paid.size else paid
            self._losing = (self.starts[kept].tolist(), prices[kept].tolist())
        return self._losing


def windows_of(use: SlotUse, gang: PaidGang) -> Windows:
    """Return the windows of a gang for the current use."""
    windows = use.kept.get(gang)
    if windows is None:
        windows = use.kept[gang] = Windows(use, gang)
    return windows


def _are_lower(prices: Counts) -> Flags:
    """Return, for each price, whether it is lower than all earlier ones."""
    if prices.size == 1:
        return _ONE
    is_lower = np.ones(prices.size, np.bool_)
    least = np.minimum.accumulate(prices)
    is_lower[1:] = least[1:] < least[:-1]
    return is_lower


_ONE = np.ones(1, np.bool_)
