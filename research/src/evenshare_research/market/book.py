"""Free resources and costs in a window of slots, stored for fast queries.

Rows are slots, and columns are servers. Window minima come from one table per power of two: the
minimum of a window is that of two overlapping windows of this length. A schedule changes only the
columns of its servers. Costs come from prefix sums of prices. All values are integers, so results
are exact.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from evenshare_research.market.model import OPERATOR, MarketPool, MarketSchedule
from evenshare_research.market.prices import price_table

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]


class WindowMinima:
    """The minima of a count table over windows of rows."""

    def __init__(self, table: Counts) -> None:
        """`table` has the shape (slots, columns). It is copied."""
        self.levels = [table.copy()]
        while 2 << (len(self.levels) - 1) <= len(table):
            half = 1 << (len(self.levels) - 1)
            below = self.levels[-1]
            self.levels.append(np.minimum(below[:-half], below[half:]))

    def over(self, starts: npt.NDArray[np.intp] | int, length: int) -> Counts:
        """Return the minima over `length` rows from each start. The result has a row per start."""
        level = length.bit_length() - 1
        table = self.levels[level]
        least: Counts = np.minimum(table[starts], table[starts + (length - (1 << level))])
        return least

    def take(self, start: int, end: int, columns: list[int], counts: list[int]) -> None:
        """Subtract from some columns' rows from `start` to before `end`, and update the minima."""
        self.levels[0][start:end, columns] -= np.array(counts, dtype=np.int32)
        for level in range(1, len(self.levels)):
            half = 1 << (level - 1)
            below, table = self.levels[level - 1], self.levels[level]
            first, last = max(0, start - 2 * half + 1), min(end, len(table))
            if first < last:
                table[first:last, columns] = np.minimum(
                    below[first:last, columns], below[first + half : last + half, columns]
                )


class MarketBook:
    """The allocations in the slots after `after`. Index i is slot after + 1 + i."""

    def __init__(
        self, pool: MarketPool, after: int, slots: int, running: Iterable[MarketSchedule] = ()
    ) -> None:
        """Start with `running`, earlier schedules that hold their resources until they end.

        Raises:
            ValueError: there is no slot, or sums of costs would overflow.
        """
        self.pool, self.after, self.slots = pool, after, slots
        self._tables = (
            np.array(price_table(pool.worker_theta_milli, pool.workers), dtype=object),
            np.array(price_table(pool.ps_theta_milli, pool.ps), dtype=object),
        )
        most = sum(table[-1] * (len(table) - 1) for table in self._tables)
        if slots < 1 or most * slots >= 1 << 62:
            raise ValueError("slots, theta: the window must have a slot and smaller prices")
        self._tables = (self._tables[0].astype(np.int64), self._tables[1].astype(np.int64))
        workers = np.array([row.workers for row in pool.servers], dtype=np.int32)
        ps = np.array([row.ps for row in pool.servers], dtype=np.int32)
        self.free_workers = WindowMinima(np.tile(workers, (slots, 1)))
        self.free_ps = WindowMinima(np.tile(ps, (slots, 1)))
        self.used_workers = np.zeros(slots, dtype=np.int64)
        self.used_ps = np.zeros(slots, dtype=np.int64)
        # The use in the own-quota phase, by tenant: (workers, PSs).
        self._own: dict[int, tuple[Ints, Ints]] = {}
        self._quota = {row.tenant: (row.workers, row.ps) for row in pool.owners}
        for schedule in running:
            self._hold(schedule)
        self._reprice()

    def commit(self, schedule: MarketSchedule) -> None:
        """Allocate a schedule's resources, and post the new prices."""
        self._hold(schedule)
        self._reprice()

    def own_left(self, tenant: int) -> tuple[Ints, Ints]:
        """Return a tenant's unused quotas in each slot: workers, PSs."""
        workers, ps = self._quota.get(tenant, (0, 0))
        if tenant not in self._own:
            return np.full(self.slots, workers), np.full(self.slots, ps)
        return workers - self._own[tenant][0], ps - self._own[tenant][1]

    def idle(self) -> tuple[dict[int, Ints], dict[int, Ints]]:
        """Return each owner's idle workers and PSs in each slot, the operator's last.

        Quota that its owner does not use is idle, lent or not. a(t) is the sum over owners.
        """
        rows = {tenant: self.own_left(tenant) for tenant in sorted(self._quota)}
        unowned = (
            self.pool.workers - sum(workers for workers, _ in self._quota.values()),
            self.pool.ps - sum(ps for _, ps in self._quota.values()),
        )
        rows[OPERATOR] = (np.full(self.slots, unowned[0]), np.full(self.slots, unowned[1]))
        return (
            {owner: row[0] for owner, row in rows.items()},
            {owner: row[1] for owner, row in rows.items()},
        )

    def _hold(self, schedule: MarketSchedule) -> None:
        start = max(0, schedule.start - self.after - 1)
        end = min(self.slots, schedule.end - self.after)
        if start >= end:
            return
        servers = [server for server, _ in schedule.workers]
        self.free_workers.take(start, end, servers, [count for _, count in schedule.workers])
        self.used_workers[start:end] += schedule.worker_count
        if schedule.ps is not None:
            self.free_ps.take(start, end, [schedule.ps[0]], [schedule.ps[1]])
            self.used_ps[start:end] += schedule.ps[1]
        if not schedule.borrowed:
            if schedule.tenant not in self._own:
                zeros = np.zeros(self.slots, dtype=np.int64)
                self._own[schedule.tenant] = (zeros, zeros.copy())
            own_workers, own_ps = self._own[schedule.tenant]
            own_workers[start:end] += schedule.worker_count
            own_ps[start:end] += schedule.ps_count

    def _reprice(self) -> None:
        self.worker_prices: Ints = self._tables[0][self.used_workers]
        self.ps_prices: Ints = self._tables[1][self.used_ps]
        self.worker_sums = np.concatenate(([0], np.cumsum(self.worker_prices)))
        self.ps_sums = np.concatenate(([0], np.cumsum(self.ps_prices)))
