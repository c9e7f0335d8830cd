"""The GPUs of a type that are in use in future slots, and the slots in which a gang fits.

A slot is one lease length, and the first slot starts now. Plans count GPUs of a type, not nodes: a
gang gets nodes only when it starts. Prefix sums test all windows at once, without loops over slots.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenshare_core.policies.market.thetas import Prices

SLOTS_MAX = 1024
STORED_MOST = 256  # the maximum number of uses whose results are cached

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# By use: its price curve, and the results computed from it.
Store = dict[Any, tuple[Prices, dict[Any, Any]]]


class Hold(NamedTuple):
    """GPUs in use for the next `slots` slots, of which the first `sure` slots are certain.

    A borrowed lease is certain only for its term. After that, the owner may take the GPUs.
    """

    tenant: int
    own: int
    gpus: int
    slots: int
    sure: int


class SlotUse:
    """The use of one GPU type by slot, in GPUs.

    `held`: the use of all jobs until their expected ends. `firm`: the part of it that owners cannot
    get earlier. `own`: each tenant's use within its quota.
    """

    def __init__(
        self, capacity: int, slots: int, curve: Prices, posted_micro: int, holds: Iterable[Hold]
    ) -> None:
        self.capacity, self.slots = capacity, slots
        self.curve, self.posted_micro = curve, posted_micro
        held, firm = np.zeros(slots + 1, np.int64), np.zeros(slots + 1, np.int64)
        own: dict[int, Counts] = {}
        for hold in holds:
            all_slots, sure = min(slots, hold.slots), min(slots, hold.sure)
            held[0] += hold.gpus
            held[all_slots] -= hold.gpus
            firm[0] += hold.gpus
            firm[sure] -= hold.gpus
            if hold.own:
                rows = own.setdefault(hold.tenant, np.zeros(slots + 1, np.int64))
                rows[0] += hold.own
                rows[sure] -= hold.own
        self.held, self.firm = held.cumsum()[:slots], firm.cumsum()[:slots]
        self.own = {tenant: rows.cumsum()[:slots] for tenant, rows in own.items()}
        self._nothing = np.zeros(slots, np.int64)
        self._store: Store = {}
        self._kept: dict[Any, Any] | None = None
        self._lowest: dict[int, int] = {}
        # This is computed once, because later plans only add to `held`.
        self.least_held = int(self.held.min()) if slots else 0

    def keep_in(self, store: Store) -> None:
        """From now on, cache results in a store that other uses share."""
        self._store, self._kept = store, None

    @property
    def kept(self) -> dict[Any, Any]:
        """Return the results cached for the current use."""
        if self._kept is None:
            own = sorted((tenant, row.tobytes()) for tenant, row in self.own.items())
            use = (self.held.tobytes(), self.firm.tobytes(), *own)
            key = (id(self.curve), self.capacity, self.posted_micro, use)
            if len(self._store) >= STORED_MOST and key not in self._store:
                self._store.clear()
            # The key contains the curve's address, so the entry must keep the curve alive.
            _, self._kept = self._store.setdefault(key, (self.curve, {}))
        return self._kept

    def own_of(self, tenant: int) -> Counts:
        """Return the GPUs that a tenant uses within its quota, by slot."""
        return self.own.get(tenant, self._nothing)

    def lowest_micro(self, gpus: int) -> int:
        """Return a lower bound on the price in any slot with `gpus` more GPUs in use."""
        lowest = self._lowest.get(gpus)
        if lowest is None:
            lowest = int(self.curve[min(self.least_held + gpus, self.capacity)])
            self._lowest[gpus] = lowest
        return lowest

    def cheapest_micro(self, gpus: int) -> list[tuple[int, int]]:
        """Return the current slot and the least used slot, with prices for `gpus` more GPUs."""
        slots = self.kept.get(gpus)
        if slots is None:
            slots = [(0, self.price_now_micro(gpus))]
            if least := int(self.held.argmin()):
                slots.append((least, self.price_micro(least, gpus)))
            self.kept[gpus] = slots
        return slots

    def price_now_micro(self, gpus: int) -> int:
        """Return the price that a GPU-hour must be worth to a gang that starts now."""
        return max(self.posted_micro, self.price_micro(0, gpus))

    def price_micro(self, slot: int, gpus: int) -> int:
        """Return the price that would be posted in a slot with `gpus` more GPUs in use."""
        return int(self.curve[min(int(self.held[slot]) + gpus, self.capacity)])

    def own_start(self, tenant: int, quota: int, gpus: int, slots: int, first: int) -> int | None:
        """Return the first slot from `first` on from which a gang fits its quota until its end."""
        if gpus > quota:
            return None
        key, kept = (tenant, quota, gpus, slots, first, "own"), self.kept
        if key not in kept:
            fits = self.own_of(tenant) <= quota - gpus
            fits &= self.firm <= self.capacity - gpus
            starts = window_starts(fits, slots)
            starts = starts[starts >= first]
            kept[key] = int(starts[0]) if starts.size else None
        slot: int | None = kept[key]
        return slot

    def take(self, hold: Hold, start: int) -> None:
        """Add a job that starts in slot `start`."""
        self._kept = None
        self.held[start : start + hold.slots] += hold.gpus
        self.firm[start : start + hold.sure] += hold.gpus
        if hold.own:
            rows = self.own.get(hold.tenant)
            if rows is None:
                rows = self.own[hold.tenant] = np.zeros(self.slots, np.int64)
            rows[start : start + hold.sure] += hold.own


def window_starts(fits: Flags, slots: int) -> Counts:
    """Return, in order, the slots at which a run of `slots` fitting slots starts."""
    if slots >= fits.size:
        return _FIRST if slots == fits.size and fits.all() else _NONE
    if slots == 1:
        return fits.nonzero()[0]
    misses = np.zeros(fits.size + 1, np.int64)
    np.logical_not(fits).cumsum(out=misses[1:])
    starts: Counts = (misses[slots:] == misses[:-slots]).nonzero()[0]
    return starts


_FIRST, _NONE = np.zeros(1, np.int64), np.empty(0, np.int64)
