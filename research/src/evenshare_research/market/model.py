"""The market of Astraea-online: a pool of servers, its tenants, and jobs with utilities.

Source: N. Wang et al., "Online Scheduling of Distributed Machine Learning Jobs for Incentivizing
Sharing in Multi-Tenant Systems", IEEE TC 2022, section 3. Departures: docs/market-paper.md.

| paper | here | unit |
|---|---|---|
| C_sw, C_sp | `MarketServer.workers`, `MarketServer.ps` | workers, parameter servers (PSs) |
| q_w^u, q_p^u | `Owner.workers`, `Owner.ps` | the same |
| b_w, b_p | `MarketPool.worker_bandwidth`, `ps_bandwidth` | one unit for both |
| theta_w, theta_p | `worker_theta_milli`, `ps_theta_milli` | thousandths, at least 1000 |
| E, D, M | `MarketJob.epochs`, `chunks`, `batches` | counts |
| m, G | `batch_time`, `update_time` | slots a mini-batch |
| eps / b_w | `transfer_time` | slots to send the gradients once |
| r | `arrival` | slots; usually fractional |
| f | `utility` | credits by slots until completion |

Slot t is the time (t - 1, t]: a schedule from slot 9 to slot 10 runs in (8, 10]. A pool without PSs
trains by all-reduce, without (3g), (3i) and the prices of PSs.

Values are compared in whole micro-credits, so that ties and sums are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from evenshare_core.units import CREDIT_MICRO, ONE_MILLI

OPERATOR = 0  # the owner of all other capacity; tenant ids start at 1


@dataclass(frozen=True, slots=True)
class MarketServer:
    workers: int
    ps: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """A tenant with its quotas."""

    tenant: int
    workers: int
    ps: int = 0


@dataclass(frozen=True, slots=True)
class MarketPool:
    """Servers of one worker type, their owners, and the parameters of prices."""

    servers: Sequence[MarketServer]
    owners: Sequence[Owner]
    worker_bandwidth: int = 1
    ps_bandwidth: int = 1
    worker_theta_milli: int = 2 * ONE_MILLI
    ps_theta_milli: int = 2 * ONE_MILLI

    def __post_init__(self) -> None:
        """Validate the pool.

        Raises:
            ValueError: no server, a negative number, a tenant twice or below 1, more quota than
                capacity, a bandwidth of 0, or theta below 1.
        """
        counts = [count for row in self.servers for count in (row.workers, row.ps)]
        quotas = [quota for row in self.owners for quota in (row.workers, row.ps)]
        if not self.servers:
            raise ValueError("servers: a pool needs at least one")
        if min([*counts, *quotas]) < 0:
            raise ValueError("servers, owners: no count may be negative")
        tenants = [row.tenant for row in self.owners]
        if len(set(tenants)) < len(tenants) or min(tenants, default=1) <= OPERATOR:
            raise ValueError("owners: give each tenant once, with an id of at least 1")
        if sum(row.workers for row in self.owners) > self.workers:
            raise ValueError("owners: their quotas of workers are more than the servers have")
        if sum(row.ps for row in self.owners) > self.ps:
            raise ValueError("owners: their quotas of PSs are more than the servers have")
        if self.worker_bandwidth < 1 or self.ps_bandwidth < 1:
            raise ValueError("worker_bandwidth, ps_bandwidth: must be at least 1")
        if min(self.worker_theta_milli, self.ps_theta_milli) < ONE_MILLI:
            raise ValueError("worker_theta_milli, ps_theta_milli: must be at least 1000")

    @property
    def workers(self) -> int:
        """Return the sum of C_sw."""
        return sum(row.workers for row in self.servers)

    @property
    def ps(self) -> int:
        """Return the sum of C_sp; 0: jobs train by all-reduce."""
        return sum(row.ps for row in self.servers)

    def ps_needed(self, workers_elsewhere: int) -> int:
        """Return the fewest PSs that can serve the workers on other servers (3i), at least 1."""
        return max(1, -(-workers_elsewhere * self.worker_bandwidth // self.ps_bandwidth))


@dataclass(frozen=True, slots=True)
class LinearUtility:
    """f(t) = k t + g; `slope` k is at most 0."""

    slope: float
    start: float

    def __post_init__(self) -> None:
        """Validate the utility.

        Raises:
            ValueError: it grows with time, or is not finite.
        """
        if not (isfinite(self.slope) and isfinite(self.start) and self.slope <= 0):
            raise ValueError("slope, start: must be finite, and the slope at most 0")

    def at(self, slots: float) -> float:
        """Return f. `slots`: the slots until completion."""
        return self.slope * slots + self.start


@dataclass(frozen=True, slots=True)
class ConvexUtility:
    """f(t) = (e / t)^kappa."""

    scale: float
    power: float

    def __post_init__(self) -> None:
        """Validate the utility.

        Raises:
            ValueError: a parameter is not positive and finite.
        """
        if not (isfinite(self.scale) and isfinite(self.power) and min(self.scale, self.power) > 0):
            raise ValueError("scale, power: must be positive")

    def at(self, slots: float) -> float:
        """Return f. `slots`: the slots until completion, above 0."""
        power: float = (self.scale / slots) ** self.power
        return power


@dataclass(frozen=True, slots=True)
class BidUtility:
    """A bid per worker slot of the job's work on one server, independent of its completion time."""

    bid: float
    worker_slots: float

    def __post_init__(self) -> None:
        """Validate the utility.

        Raises:
            ValueError: a parameter is negative or not finite.
        """
        if not (isfinite(self.bid) and isfinite(self.worker_slots)):
            raise ValueError("bid, worker_slots: must be finite")
        if min(self.bid, self.worker_slots) < 0:
            raise ValueError("bid, worker_slots: must be at least 0")

    def at(self, slots: float) -> float:
        """Return f, which is constant."""
        del slots
        return self.bid * self.worker_slots


Utility = LinearUtility | ConvexUtility | BidUtility


@dataclass(frozen=True, slots=True)
class MarketJob:
    """A training job. The table in the module's docstring explains the fields."""

    id: int
    tenant: int
    arrival: float
    epochs: int
    chunks: int
    batches: int
    batch_time: float
    update_time: float
    transfer_time: float
    utility: Utility

    def __post_init__(self) -> None:
        """Validate the job.

        Raises:
            ValueError: a count below 1, a negative time, or a mini-batch without any time.
        """
        if min(self.epochs, self.chunks, self.batches) < 1:
            raise ValueError(f"job {self.id}: epochs, chunks and batches must be at least 1")
        times = (self.batch_time, self.update_time, self.transfer_time)
        if not all(isfinite(time) and time >= 0 for time in (*times, self.arrival)):
            raise ValueError(f"job {self.id}: times must be finite and at least 0")
        if self.batch_time + self.update_time == 0:
            raise ValueError(f"job {self.id}: a mini-batch must take some time")

    def work(self, *, centralised: bool) -> Fraction:
        """Return the job's work in worker slots, E D M / n with n of (1), exactly."""
        time = Fraction(self.batch_time) + Fraction(self.update_time)
        if not centralised:
            time += 2 * Fraction(self.transfer_time)
        return self.epochs * self.chunks * self.batches * time

    def duration(self, workers: int, *, centralised: bool) -> int:
        """Return the job's duration on `workers` workers in slots, at least 1."""
        work = self.work(centralised=centralised)
        return max(1, -(-work.numerator // (work.denominator * workers)))

    def utility_micro(self, slots: float) -> int:
        """Return f in whole micro-credits, with halves rounded to even.

        `slots`: the slots until completion.
        """
        return round(self.utility.at(slots) * CREDIT_MICRO)


def by_arrival(job: MarketJob) -> tuple[float, int]:
    """Return the key of the scheduling order: (arrival, id)."""
    return (job.arrival, job.id)


@dataclass(frozen=True, slots=True)
class MarketSchedule:
    """A job's workers and PSs, constant from its first slot to its last.

    `workers`: (server, workers) in the order of servers. `ps`: (server, PSs); None with all-reduce.
    `worker_prices`, `ps_prices`: micro-credits per slot, before the job was added. `ideal_micro`: f
    at admission. `borrowed`: whether the job was placed in the shared phase, and so pays.
    """

    job: int
    tenant: int
    start: int
    end: int
    centralised: bool
    workers: tuple[tuple[int, int], ...]
    ps: tuple[int, int] | None
    worker_prices: tuple[int, ...]
    ps_prices: tuple[int, ...]
    ideal_micro: int
    borrowed: bool

    @property
    def worker_count(self) -> int:
        """Return D_w."""
        return sum(count for _, count in self.workers)

    @property
    def ps_count(self) -> int:
        """Return the number of PSs; 0 with all-reduce."""
        return self.ps[1] if self.ps else 0

    @property
    def cost_micro(self) -> int:
        """Return the cost at the posted prices, whether or not it is paid."""
        workers = sum(self.worker_prices) * self.worker_count
        return workers + sum(self.ps_prices) * self.ps_count

    @property
    def value_micro(self) -> int:
        """Return f - cost. It is above 0 for every schedule, by (7)."""
        return self.ideal_micro - self.cost_micro
