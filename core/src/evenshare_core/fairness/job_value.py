"""Check of individual rationality, ex post: no job borrows above its value.

It checks each term that the round starts, a grant or a renewal, at the price posted for the round.
A GPU-hour of the term must cost no more than the value of a GPU-hour of the job's remaining work.
The value is computed here from the job's utility, estimate, profile and GPU-time, as fractions and
powers, without code of the policies. If a job states no value, the policy's rule gives it
(`ValueRule`).

| paper | here | unit |
|---|---|---|
| f(t) | `_value_micro`, t from the submission to the end of the remaining work | micro-credits |
| cost of a schedule | price x GPUs x time: both sides per GPU-hour | micro-credits |

Source: Astraea-online (TC 2022), (6), (7); a term's price is the one posted for its round.
"""

from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import MOST_MICRO, Utility, UtilityKind
from evenshare_core.money.fixed_point import CONTEXT
from evenshare_core.units import CREDIT_MICRO, HOUR_US, ONE_MILLI

# Values are whole micro-credits, so smaller differences of a job's total value are rounding.
ROUNDING_MICRO = 1
# microseconds per millionth of an hour, the unit of convex utilities
_MICRO_HOUR_US = HOUR_US // CREDIT_MICRO


class ValueRule(NamedTuple):
    """A policy's rule for jobs that do not state everything.

    `default_bid_milli` is the value of a GPU-hour to a job without a utility or a maximum price, in
    thousandths of the GPU type's base rate. `least_percent` is the part of its estimate that a job
    is assumed to still need once it has exceeded the estimate. A job without an estimate is assumed
    to need a lease length.
    """

    default_bid_milli: int
    least_percent: int


class ValueCheck(NamedTuple):
    """The result of the check.

    `checked` counts terms with borrowed GPUs, `gpus` their borrowed GPUs. `broken` has the tenants
    that pay above a job's value, sorted. `least_micro` is the smallest difference of value and
    price of a GPU-hour, in micro-credits, and `tenant` the tenant of that term. Both are None if no
    term started.
    """

    checked: int
    gpus: int
    broken: tuple[int, ...]
    least_micro: Fraction | None
    tenant: int | None


def check_value(snapshot: Snapshot, decision: Decision, rule: ValueRule) -> ValueCheck:
    """Return the terms of a round that cost more than their jobs' value.

    `decision.service` has the GPU-time up to the round. A price of 0 is never too high.
    """
    jobs = _JobValues(snapshot, decision, rule)
    posted = {row.gpu_type: row.price_micro for row in snapshot.prices}
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    borrowing = [term for term in terms if term.borrowed > 0]
    broken: set[int] = set()
    margins: list[tuple[Fraction, int]] = []
    for term in borrowing:
        price_micro = max(term.price_micro, posted.get(term.gpu_type, 0))
        hourly, tolerance = jobs.hourly(term.job, term.gpu_type)
        if price_micro > 0 and price_micro > hourly + tolerance:
            broken.add(term.tenant)
        margins.append((min(hourly, Fraction(MOST_MICRO)) - price_micro, term.tenant))
    check = ValueCheck(
        len(borrowing), sum(term.borrowed for term in borrowing), tuple(sorted(broken)), None, None
    )
    if not margins:
        return check
    least, tenant = min(margins)
    return check._replace(least_micro=least, tenant=tenant)


class _JobValues:
    """The value of a GPU-hour of a job's work, at the round."""

    def __init__(self, snapshot: Snapshot, decision: Decision, rule: ValueRule) -> None:
        self._snapshot, self._rule = snapshot, rule
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._bases = {row.gpu_type: row.base_micro for row in snapshot.prices}
        self._utilities = {row.id: row for row in snapshot.utilities}
        self._speeds = {row.id: dict(row.speedups) for row in snapshot.profiles}
        self._received = {
            row.job: row.alloc_gpu_us + row.held * (snapshot.at_us - row.held_since_us)
            for row in decision.service.jobs
        }

    def hourly(self, job_id: int, gpu_type: str) -> tuple[Fraction, Fraction]:
        """Return the value in micro-credits per GPU-hour, and its rounding tolerance.

        The value is 0 if the job cannot run on the type or is not in the snapshot.
        """
        nothing = Fraction(0), Fraction(0)
        job = self._jobs.get(job_id)
        if job is None:
            return nothing
        speed_milli = self._speeds.get(job.profile, {gpu_type: ONE_MILLI}).get(gpu_type, 0)
        if not speed_milli:
            return nothing
        utility = self._utilities.get(job_id)
        if utility is None or utility.kind is UtilityKind.BID:
            return Fraction(self._bid(job, gpu_type, utility)), Fraction(0)
        left_us = self._left_us(job, speed_milli)
        after_us = max(0, self._snapshot.at_us - job.submitted_us) + left_us
        gpu_hours = Fraction(job.gpus * left_us, HOUR_US)
        return _value_micro(utility, after_us) / gpu_hours, ROUNDING_MICRO / gpu_hours

    def _bid(self, job: Job, gpu_type: str, utility: Utility | None) -> int:
        if utility is not None:
            return utility.scale_micro
        if job.max_price_micro is not None:
            return job.max_price_micro
        return self._bases.get(gpu_type, 0) * self._rule.default_bid_milli // ONE_MILLI

    def _left_us(self, job: Job, speed_milli: int) -> int:
        """Return the remaining run time on a type of this speed, in whole us."""
        if job.estimate_us is None:
            return self._snapshot.lease_us
        whole_us = max(1, job.estimate_us)
        ran_us = self._received.get(job.id, 0) // job.gpus
        least_us = max(1, whole_us * self._rule.least_percent // 100)
        work_us = max(least_us, whole_us - ran_us)
        return -(-work_us * ONE_MILLI // speed_milli)


def _value_micro(utility: Utility, after_us: int) -> Fraction:
    """Return f at the end of the job, in micro-credits, exact up to the last of 40 digits."""
    if utility.kind is UtilityKind.LINEAR:
        return utility.scale_micro + Fraction(utility.rate_micro * after_us, HOUR_US)
    e_us = Decimal(utility.scale_micro * _MICRO_HOUR_US)
    ratio = CONTEXT.divide(e_us, Decimal(max(1, after_us)))
    power = CONTEXT.divide(Decimal(utility.rate_micro), Decimal(CREDIT_MICRO))
    return Fraction(CONTEXT.power(ratio, power)) * CREDIT_MICRO
