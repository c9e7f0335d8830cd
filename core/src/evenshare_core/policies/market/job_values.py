"""Values of the jobs of a round on each GPU type, in whole micro-credits without floats."""

from collections.abc import Collection

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.utilities import MOST_MICRO, Utility, UtilityKind
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.pool import PricedPool
from evenshare_core.policies.shared.estimates import remaining_us
from evenshare_core.units import HOUR_US, ONE_MILLI


class JobOnType:
    """A job on one GPU type, with its remaining time and its value there.

    `left_us`: the remaining time (one lease length if unknown). `since_us`: the time since
    submission. `has_decay`: whether the value is lower if the job ends later.
    """

    __slots__ = ("_now_micro", "gpu_type", "has_decay", "job", "left_us", "since_us", "utility")

    def __init__(
        self, job: Job, gpu_type: str, left_us: int, since_us: int, utility: Utility
    ) -> None:
        self.job, self.gpu_type = job, gpu_type
        self.left_us, self.since_us, self.utility = left_us, since_us, utility
        self.has_decay = utility.kind is not UtilityKind.BID
        self._now_micro: int | None = None  # cached value of a GPU-hour if the job starts now

    def value_micro(self, delay_us: int) -> int:
        """Return the job's value if it starts after `delay_us` and runs to its end."""
        gpu_us = self.job.gpus * self.left_us
        return self.utility.value_micro(self.since_us + delay_us + self.left_us, gpu_us)

    def hourly_micro(self, delay_us: int = 0) -> int:
        """Return the highest price per GPU-hour that the job would pay, from 0 to `MOST_MICRO`.

        This is its value per GPU-hour, or its maximum price if that is lower.
        """
        return bounded_micro(self.unbounded_hourly_micro(delay_us))

    def unbounded_hourly_micro(self, delay_us: int) -> int:
        """Return `hourly_micro` without bounds.

        The result is negative if a linear utility is below 0.
        """
        if delay_us and self.has_decay:
            return self._hourly_micro(delay_us)
        if self._now_micro is None:
            self._now_micro = self._hourly_micro(0)
        return self._now_micro

    def _hourly_micro(self, delay_us: int) -> int:
        micro = self.utility.scale_micro
        if self.has_decay:
            micro = self.value_micro(delay_us) * HOUR_US // (self.job.gpus * self.left_us)
        most = self.job.max_price_micro
        return micro if most is None else min(micro, most)


def bounded_micro(hourly_micro: int) -> int:
    """Return a value per GPU-hour, limited to 0 to `MOST_MICRO`."""
    return max(0, min(MOST_MICRO, hourly_micro))


class JobValues:
    """Values of the jobs of a round, from their utility, their maximum price, or `default_bid`."""

    def __init__(self, pool: PricedPool, options: MarketOptions, types: Collection[str]) -> None:
        self._at_us, self._lease_us = pool.at_us, pool.lease_us
        self._types, self._options = types, options
        self._bases = {row.gpu_type: row.base_micro for row in pool.prices}
        self._said, self._profiles, self._sums = pool.utility, pool.profiles, pool.sums

    def of(self, job: Job, gpu_type: str, *, is_whole: bool = False) -> JobOnType | None:
        """Return the job on a GPU type, or None if it cannot run there.

        `is_whole`: value the job as at its submission, ignoring its progress and its wait.
        """
        profile = self._profiles.get(job.profile)
        speed_milli = ONE_MILLI if profile is None else profile.speed_milli(gpu_type)
        if not speed_milli:
            return None
        left_us = self._lease_us
        if job.estimate_us is not None:
            work_us = max(1, job.estimate_us)
            sums = self._sums.get(job.id)
            if not is_whole and sums is not None:
                work_us = remaining_us(job, sums, self._at_us, work_us)
            left_us = -(-work_us * ONE_MILLI // speed_milli)
        since_us = 0 if is_whole else max(0, self._at_us - job.submitted_us)
        return JobOnType(job, gpu_type, left_us, since_us, self._utility(job, gpu_type))

    def on_types(self, job: Job) -> list[JobOnType]:
        """Return the job on each accepted type of the pool, sorted by its end on the type."""
        rows = [self.of(job, name) for name in accepted_types(job, self._types)]
        able = [row for row in rows if row is not None]
        return able if len(able) < 2 else sorted(able, key=_by_end)

    def _utility(self, job: Job, gpu_type: str) -> Utility:
        given = self._said(job.id)
        if given is not None:
            return given
        return bid_of(job, self._bases.get(gpu_type, 0), self._options)


def bid_of(job: Job, base_micro: int, options: MarketOptions) -> Utility:
    """Return the bid of a job without utility: its maximum price, or `default_bid` x base rate."""
    bid = job.max_price_micro
    if bid is None:
        bid = base_micro * options.default_bid_milli // ONE_MILLI
    return Utility(job.id, UtilityKind.BID, bid)


def _by_end(one: JobOnType) -> tuple[int, str]:
    return (one.left_us, one.gpu_type)
