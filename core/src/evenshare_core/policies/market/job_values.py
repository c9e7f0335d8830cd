"""What the jobs of a round are worth, on each GPU type: whole micro-credits, no float."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.domain.utilities import MOST_MICRO, Utility, UtilityKind
from evenshare_core.fairness.claims import accepted_types
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.shared.estimates import remaining_us
from evenshare_core.units import HOUR_US, ONE_MILLI


class JobOnType(NamedTuple):
    """A job on one GPU type: what is left of it there, and what that is worth.

    `left_us`: how long it still runs there (one lease length where nobody knows); `since_us`: how
    long ago it was submitted.
    """

    job: Job
    gpu_type: str
    left_us: int
    since_us: int
    utility: Utility

    @property
    def gpu_us(self) -> int:
        """The work that is left on all its GPUs."""
        return self.job.gpus * self.left_us

    @property
    def has_decay(self) -> bool:
        """Whether it is worth less the later it ends."""
        return self.utility.kind is not UtilityKind.BID

    def value_micro(self, delay_us: int) -> int:
        """What it is worth to start after `delay_us` and run to its end."""
        return self.utility.value_micro(self.since_us + delay_us + self.left_us, self.gpu_us)

    def hourly_micro(self, delay_us: int = 0) -> int:
        """The same per GPU-hour: the highest price that it would pay, and no more than its or its
        tenant's maximum price; 0 to `MOST_MICRO`."""
        return max(0, min(MOST_MICRO, self.unbounded_hourly_micro(delay_us)))

    def unbounded_hourly_micro(self, delay_us: int) -> int:
        """The same, not bounded below: under 0 where a linear utility has lost more than it had."""
        micro = self.utility.scale_micro
        if self.has_decay:
            micro = self.value_micro(delay_us) * HOUR_US // self.gpu_us
        most = self.job.max_price_micro
        return micro if most is None else min(micro, most)


class JobValues:
    """What the jobs of a snapshot are worth, by their utility, highest price or the option."""

    def __init__(
        self, snapshot: Snapshot, options: MarketOptions, types: Mapping[str, int]
    ) -> None:
        """`types`: the pool's GPU types, with their capacity."""
        self._at_us, self._lease_us = snapshot.at_us, snapshot.lease_us
        self._types = types
        self._options = options
        self._bases = {row.gpu_type: row.base_micro for row in snapshot.prices}
        self._utilities = {row.id: row for row in snapshot.utilities}
        self._profiles = {row.id: row for row in snapshot.profiles}
        self._sums: dict[int, JobService] = {row.job: row for row in snapshot.service.jobs}

    def of(self, job: Job, gpu_type: str, *, is_whole: bool = False) -> JobOnType | None:
        """The job on a GPU type; None where it cannot run there.

        `is_whole`: as it came, nothing of it done and its wait forgotten.
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
        """The job on each type that it accepts and the pool has, the one on which it ends first."""
        rows = [self.of(job, name) for name in accepted_types(job, self._types)]
        able = [row for row in rows if row is not None]
        return able if len(able) < 2 else sorted(able, key=_by_end)

    def _utility(self, job: Job, gpu_type: str) -> Utility:
        given = self._utilities.get(job.id)
        if given is not None:
            return given
        return bid_of(job, self._bases.get(gpu_type, 0), self._options)


def bid_of(job: Job, base_micro: int, options: MarketOptions) -> Utility:
    """What a job bids that says no utility: its highest price, else `default_bid` base rates."""
    bid = job.max_price_micro
    if bid is None:
        bid = base_micro * options.default_bid_milli // ONE_MILLI
    return Utility(job.id, UtilityKind.BID, bid)


def _by_end(one: JobOnType) -> tuple[int, str]:
    return (one.left_us, one.gpu_type)
