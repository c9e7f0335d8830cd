"""Astraea-online's algorithms 2 to 5 as printed, in plain loops: the reference of the fast form.

Errors in print are corrected. A window ends at start + d - 1 (line 3 of algorithms 4 and 5). PSs
are limited by q_p and a_p (line 8 of 4, line 7 of 5), and servers with too few PSs for (3i) are
left out. A centralised schedule costs the sum over its window (line 12 of 5).

The paper does not describe a pool without PSs. Here, a centralised job is on one server, and a
distributed job on at least two. Servers with the fewest free workers are filled first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.units import CREDIT_MICRO
from evenshare_research.market.model import MarketJob, MarketPool

Counts = dict[int, int]


@dataclass(frozen=True, slots=True)
class LiteralSchedule:
    """A schedule: `workers` (y) and `ps` (z) by server, and the cost at prices before the job."""

    job: int
    start: int
    end: int
    workers: dict[int, int]
    ps: dict[int, int]
    cost_micro: int
    utility_micro: int


class LiteralRound:
    """A round: allocations `h` by server and slot, prices by (8), and each user's own quota use."""

    def __init__(self, pool: MarketPool, after: int, slots: int) -> None:
        self.pool, self.after, self.until = pool, after, after + slots
        self.window = range(after + 1, after + slots + 1)
        self.servers = range(len(pool.servers))
        self.h_w = [dict.fromkeys(self.window, 0) for _ in self.servers]
        self.h_p = [dict.fromkeys(self.window, 0) for _ in self.servers]
        self.total_w = dict.fromkeys(self.window, 0)
        self.total_p = dict.fromkeys(self.window, 0)
        self.own_w = {row.tenant: dict.fromkeys(self.window, 0) for row in pool.owners}
        self.own_p = {row.tenant: dict.fromkeys(self.window, 0) for row in pool.owners}
        self.a_w = dict.fromkeys(self.window, 0)
        self.a_p = dict.fromkeys(self.window, 0)
        thetas = ((pool.workers, pool.worker_theta_milli), (pool.ps, pool.ps_theta_milli))
        self.tables = [
            [posted_price_micro(CREDIT_MICRO, theta, used, total) for used in range(total + 1)]
            for total, theta in thetas
        ]

    def run(
        self, jobs: Sequence[MarketJob], reference: float | None
    ) -> tuple[list[LiteralSchedule], list[LiteralSchedule]]:
        """Run a round of algorithm 2: users' own quotas first, then unused resources."""
        own = self.max_irev(jobs, reference, is_own=True)
        total_w, total_p = self.pool.workers, self.pool.ps
        for t in self.window:
            self.a_w[t] = total_w - sum(use[t] for use in self.own_w.values())
            self.a_p[t] = total_p - sum(use[t] for use in self.own_p.values())
        placed = {schedule.job for schedule in own}
        rest = [job for job in jobs if job.id not in placed]
        return own, self.max_irev(rest, reference, is_own=False)

    def max_irev(
        self, jobs: Sequence[MarketJob], reference: float | None, *, is_own: bool
    ) -> list[LiteralSchedule]:
        """Run algorithm 3."""
        schedules = []
        for job in sorted(jobs, key=lambda one: (one.arrival, one.id)):
            best = self.best(job, reference)
            if best is not None:
                schedules.append(best)
                self.commit(job, best, is_own=is_own)
        return schedules

    def best(self, job: MarketJob, reference: float | None) -> LiteralSchedule | None:
        """Run lines 3 to 13 of algorithm 3: find the schedule with the largest f - cost above 0."""
        best, most = None, 0
        for start in self.window:
            if start - 1 < job.arrival:
                continue
            for workers in range(1, job.chunks + 1):
                distributed = self.min_cost_d(job, start, workers, reference)
                centralised = self.min_cost_c(job, start, workers, reference)
                chosen = distributed
                if centralised is not None and (
                    distributed is None or _value(centralised) >= _value(distributed)
                ):
                    chosen = centralised
                if chosen is not None and _value(chosen) > most:
                    best, most = chosen, _value(chosen)
        return best

    def commit(self, job: MarketJob, schedule: LiteralSchedule, *, is_own: bool) -> None:
        """Add the schedule to `h`, which also changes the prices."""
        for t in range(schedule.start, schedule.end + 1):
            for s, count in schedule.workers.items():
                self.h_w[s][t] += count
                self.total_w[t] += count
            for s, count in schedule.ps.items():
                self.h_p[s][t] += count
                self.total_p[t] += count
            if is_own:
                self.own_w[job.tenant][t] += sum(schedule.workers.values())
                self.own_p[job.tenant][t] += sum(schedule.ps.values())

    def duration(self, job: MarketJob, workers: int, *, zeta: int) -> int:
        """Return d = ceil(E D M / (n D_w)) by equation (1) and line 3."""
        per_batch = job.batch_time + job.update_time
        if zeta == 0:
            per_batch += 2 * job.transfer_time
        return max(1, ceil(job.epochs * job.chunks * job.batches * per_batch / workers))

    def shares(self, job: MarketJob, start: int, end: int) -> tuple[int, int]:
        """Return the minimum of max(q - own use, a) over the window, for workers and for PSs."""
        quota = next(row for row in self.pool.owners if row.tenant == job.tenant)
        own_w, own_p = self.own_w[job.tenant], self.own_p[job.tenant]
        slots = range(start, end + 1)
        return (
            min(max(quota.workers - own_w[t], self.a_w[t]) for t in slots),
            min(max(quota.ps - own_p[t], self.a_p[t]) for t in slots),
        )

    def free(self, start: int, end: int) -> tuple[list[int], list[int]]:
        """Return the minimum of C - h over the window for each server, for workers and for PSs."""
        slots = range(start, end + 1)
        rows = self.pool.servers
        return (
            [min(rows[s].workers - self.h_w[s][t] for t in slots) for s in self.servers],
            [min(rows[s].ps - self.h_p[s][t] for t in slots) for s in self.servers],
        )

    def min_cost_d(
        self, job: MarketJob, start: int, workers: int, reference: float | None
    ) -> LiteralSchedule | None:
        """Run algorithm 4."""
        end = start + self.duration(job, workers, zeta=0) - 1
        if end > self.until:
            return None
        share_w, share_p = self.shares(job, start, end)
        if share_w < workers:
            return None
        free_w, free_p = self.free(start, end)
        y: dict[int, int] = {}
        z: dict[int, int] = {}
        first = None
        left = workers
        if self.pool.ps:
            fitting = []
            for s in self.servers:
                d_sw = min(workers - 1, free_w[s])
                elsewhere = workers - d_sw
                b_w, b_p = self.pool.worker_bandwidth, self.pool.ps_bandwidth
                need = max(1, (elsewhere * b_w + b_p - 1) // b_p)
                if need <= free_p[s] and need <= share_p:
                    fitting.append((need, s))
            if not fitting:
                return None
            need, first = min(fitting)
            z[first] = need
            y[first] = min(workers - 1, free_w[first])
            left -= y[first]
        for s in sorted((s for s in self.servers if s != first), key=lambda s: (free_w[s], s)):
            y[s] = min(free_w[s], left) if first is not None else min(free_w[s], left, workers - 1)
            left -= y[s]
        if left > 0:
            return None
        return self.schedule(job, (start, end), y, z, reference)

    def min_cost_c(
        self, job: MarketJob, start: int, workers: int, reference: float | None
    ) -> LiteralSchedule | None:
        """Run algorithm 5."""
        end = start + self.duration(job, workers, zeta=1) - 1
        if end > self.until:
            return None
        share_w, share_p = self.shares(job, start, end)
        needed = 1 if self.pool.ps else 0
        if share_w < workers or share_p < needed:
            return None
        free_w, free_p = self.free(start, end)
        for s in self.servers:
            if free_w[s] >= workers and free_p[s] >= needed:
                ps = {s: 1} if needed else {}
                return self.schedule(job, (start, end), {s: workers}, ps, reference)
        return None

    def schedule(
        self, job: MarketJob, window: tuple[int, int], y: Counts, z: Counts, since: float | None
    ) -> LiteralSchedule:
        """Return the schedule with its cost over the window by (8), and its value f."""
        start, end = window
        cost = 0
        for t in range(start, end + 1):
            cost += self.tables[0][self.total_w[t]] * sum(y.values())
            cost += self.tables[1][self.total_p[t]] * sum(z.values())
        origin = job.arrival if since is None else since
        workers = {s: count for s, count in y.items() if count}
        utility: Any = round(job.utility.at(end - origin) * CREDIT_MICRO)
        return LiteralSchedule(job.id, start, end, workers, z, cost, utility)


def _value(schedule: LiteralSchedule) -> int:
    return schedule.utility_micro - schedule.cost_micro
