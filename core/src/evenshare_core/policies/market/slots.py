"""GPUs of each type in use over the slots ahead, and where a gang fits in them.

A slot is one lease length, the first begins now. Planning counts GPUs of a type, not nodes: where
on nodes a gang goes is decided when it starts. Windows are tested by prefix sums over all slots at
once; nothing loops over slots and servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenshare_core.policies.market.thetas import Prices

SLOTS_MAX = 1024

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Hold(NamedTuple):
    """GPUs in use from now on: for `slots` in all, `sure` of them certainly.

    A borrowed lease is sure for its term alone: after that its owner may have the GPUs.
    """

    tenant: int
    own: int
    gpus: int
    slots: int
    sure: int


class SlotUse:
    """The use of one GPU type. `held`: by all jobs to their expected ends; `firm`: what owners
    cannot have before; `own`: within each tenant's quota."""

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
        # Of the beginning: what is planned later only adds to it.
        self.least_held = int(self.held.min()) if slots else 0

    def own_of(self, tenant: int) -> Counts:
        """GPUs of a tenant within its quota, by slot."""
        return self.own.get(tenant, self._nothing)

    def lowest_micro(self, gpus: int) -> int:
        """No gang of this size finds a lower price in any slot, itself counted."""
        return int(self.curve[min(self.least_held + gpus, self.capacity)])

    def price_now_micro(self, gpus: int) -> int:
        """What an hour must be worth to a gang that starts now, itself counted."""
        return max(self.posted_micro, self.price_micro(0, gpus))

    def price_micro(self, slot: int, gpus: int) -> int:
        """What would be posted in a slot with so many GPUs more in use."""
        return int(self.curve[min(int(self.held[slot]) + gpus, self.capacity)])

    def own_start(self, tenant: int, quota: int, gpus: int, slots: int, first: int) -> int | None:
        """The first slot from `first` on in which a gang fits its tenant's quota to its end."""
        if gpus > quota:
            return None
        fits = self.own_of(tenant) <= quota - gpus
        fits &= self.firm <= self.capacity - gpus
        starts = window_starts(fits, slots)
        starts = starts[starts >= first]
        return int(starts[0]) if starts.size else None

    def take(self, hold: Hold, start: int) -> None:
        """Count a job that starts in slot `start`."""
        self.held[start : start + hold.slots] += hold.gpus
        self.firm[start : start + hold.sure] += hold.gpus
        if hold.own:
            rows = self.own.get(hold.tenant)
            if rows is None:
                rows = self.own[hold.tenant] = np.zeros(self.slots, np.int64)
            rows[start : start + hold.sure] += hold.own


def window_starts(fits: Flags, slots: int) -> Counts:
    """Return the starts, in order, from which so many slots in a row fit."""
    if slots > fits.size:
        return np.empty(0, np.int64)
    if slots == 1:
        return np.flatnonzero(fits)
    misses = np.concatenate((_ZERO, np.cumsum(~fits)))
    return np.flatnonzero(misses[slots:] == misses[:-slots])


_ZERO = np.zeros(1, np.int64)
