"""A job's requests to the Selector: leases of work, attainable steps, and allocation options.

Work and slack are rounded together. Work is rounded up to whole leases, and the time between work
and deadline is rounded down. A job without slack can therefore have all leases until its deadline,
including part of the last one. The paper rounds both to the job's disadvantage. If a job holds
GPUs, its leases start at the end of its current lease.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from evenshare_core.deadlines.model import RewardStep, SelectorJob
from evenshare_core.deadlines.options import (
    NODE_GPUS,
    CellOption,
    all_options,
    held_option,
    two_speeds,
    useful_options,
)
from evenshare_core.deadlines.rewards import DatedReward, capped
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.estimation.durations import expected_interruptions
from evenshare_core.policies.unisched.options import UniSchedOptions
from evenshare_core.units import COUNT_MAX, ONE_MILLI, REWARD_MICRO

LEAST_POINTS = 20  # the minimum points that a job uses of its tenant's budget
MOST_STEPS = 4  # maximum number of steps per job in a program, as in the paper.
# Percent of a step's points if no margin is left before it. The loss exceeds the reward of any
# best-effort job, and is less than the loss of another deadline.
WITHOUT_MARGIN_PERCENT = 90
# The maximum excess of an estimate over the time to a step, in standard errors.
MOST_DEVIATIONS = 2
# Percent of a step's points if the estimate equals the time to the step, and at the maximum excess.
JUST_PERCENT, LEAST_PERCENT = 50, 5


class Remaining(NamedTuple):
    """The time that a job needs on one node: in total, from now, and after its current lease.

    `until_us`: the end of its current lease, or the time of the round if it has none. `is_late`:
    whether it ran longer than its estimate. `deviation_us`: the standard error of the remaining
    time.
    """

    whole_us: int
    left_us: int
    later_us: int
    until_us: int
    is_late: bool = False
    deviation_us: int = 0


class DatedStep(NamedTuple):
    """A step of a deadline for the Selector, with the work until the job's end, including restarts.

    `reward_micro`: the reward if the job ends by `by_us`. `deadline`: the number of leases until
    `by_us`. `step`: the step in the program, with a margin before it or with less reward.
    `short_us`: the time by which the estimate exceeds the time until the step.
    """

    by_us: int
    work_us: int
    reward_micro: int
    deadline: int
    step: RewardStep
    short_us: int = 0


class DeadlineDemand(NamedTuple):
    """A job with remaining deadlines. `dated`: the steps that it could meet on an empty pool."""

    job: Job
    gpu_type: str
    remaining: Remaining
    dated: tuple[DatedStep, ...]
    selector_job: SelectorJob | None
    reward_micro: int = 0


def whole_leases(us: int, lease_us: int) -> int:
    """Return the number of leases that a time takes, rounded up."""
    return -(-us // lease_us)


def rewards_left(
    deadlines: Iterable[Deadline],
    jobs: Mapping[int, Job],
    entitlements: Iterable[Entitlement],
    options: UniSchedOptions,
) -> dict[int, int]:
    """Return the maximum reward of each job, by id, in millionths of a point.

    The jobs of a tenant share `reward_points_per_gpu` per GPU of its quota, by arrival. Each job
    uses at least `LEAST_POINTS`, so that a tenant cannot evade the limit with many jobs of small
    reward.
    """
    left: dict[int, int] = {}
    for quota in entitlements:
        points = max(0, quota.gpus) * options.reward_points_per_gpu * REWARD_MICRO
        left[quota.tenant] = left.get(quota.tenant, 0) + points
    given: dict[int, int] = {}
    rows = [(jobs[row.id], row) for row in deadlines if row.id in jobs]
    for job, row in sorted(rows, key=lambda pair: arrival_order(pair[0])):
        most = max(step.reward_micro for step in row.steps)
        given[job.id] = min(most, left.get(job.tenant, 0))
        counted = max(given[job.id], LEAST_POINTS * REWARD_MICRO)
        left[job.tenant] = max(0, left.get(job.tenant, 0) - counted)
    return given


def job_options(
    job: Job, spread_milli: int, largest_node: int, options: UniSchedOptions
) -> tuple[CellOption, ...]:
    """Return the possible allocations of a job on nodes of at most `largest_node` GPUs.

    With `select = consolidated`, return only the rounded-up cells, as in Chronus.
    """
    rows = all_options(job.gpus, two_speeds(job.gpus, min(spread_milli, ONE_MILLI)))
    small = largest_node < NODE_GPUS
    if options.select == "consolidated" and not small:
        return rows[:1]
    if small and job.gpus > largest_node:
        # No node of this type has a block of 8 GPUs, so any GPUs are allowed.
        phi = ONE_MILLI if job.gpus > NODE_GPUS else max(1, min(spread_milli, ONE_MILLI))
        rows = (*rows, CellOption((job.gpus, 0, 0, 0), job.gpus, False, phi))
    return useful_options(rows)


def with_held(
    rows: tuple[CellOption, ...], lease: Lease, spread_milli: int, options: UniSchedOptions
) -> tuple[CellOption, ...]:
    """Return the options, preceded by the option of the job's current GPUs if its lease ends."""
    if options.select == "consolidated" and len(lease.placement) > 1:
        return rows
    return (held_option(dict(lease.placement), phi_of(lease, spread_milli)), *rows)


def phi_of(lease: Lease, spread_milli: int) -> int:
    """Return the job's speed on a lease's GPUs relative to one node, in thousandths."""
    if len(lease.placement) == 1 or lease.gpus > NODE_GPUS:
        return ONE_MILLI
    return max(1, min(spread_milli, ONE_MILLI))


def restarts_us(work_us: int, until_us: int, overhead_us: int, lease_us: int) -> int:
    """Return the expected time lost in interruptions, by (3), rounded up."""
    if not overhead_us:
        return 0
    leases = whole_leases(work_us, lease_us)
    count = expected_interruptions(leases, max(0, until_us) // lease_us)
    return -(-count.numerator * overhead_us // count.denominator)


def dated_steps(
    row: Deadline,
    remaining: Remaining,
    estimate: JobEstimate | None,
    most_micro: int,
    *,
    at_us: int,
    lease_us: int,
    options: UniSchedOptions,
    phase_us: int,
) -> tuple[DatedStep, ...]:
    """Return the steps that a job can meet if it runs all the time.

    `phase_us`: for a planned job, the time since the start of its plan's current lease. Slack is
    counted from this start, so that a round in the middle of a lease does not lose the plan. If the
    first step has slack, it is returned twice: with a margin of `margin_percent` before it, and
    without a margin for less reward. If a job has more than `MOST_STEPS` steps, only the first, the
    last and some between them are used.
    """
    ready = whole_leases(max(0, remaining.until_us - at_us), lease_us)
    overhead_us = estimate.overhead_us if estimate and options.count_restarts else 0
    steps = row.steps if options.objective == "rewards" else row.steps[-1:]
    rows: list[DatedStep] = []
    most_short_us = MOST_DEVIATIONS * remaining.deviation_us
    if estimate is not None and estimate.error_milli >= ONE_MILLI:
        most_short_us = 0  # the error is unknown, so the estimate is treated as exact
    soonest_us = remaining.until_us + max(0, remaining.later_us - most_short_us)
    for step in _thinned([one for one in steps if one.by_us >= soonest_us]):
        room_us = step.by_us - remaining.until_us
        work_us = remaining.later_us
        work_us += restarts_us(work_us, room_us, overhead_us, lease_us)
        if work_us > room_us:
            work_us = remaining.later_us  # a job without slack is never interrupted
        short_us = max(0, work_us - room_us)
        work_us -= short_us
        slack_us = room_us - work_us
        if work_us <= 0:
            continue
        leases = whole_leases(work_us, lease_us)
        slack = (slack_us + phase_us) // lease_us
        if leases > COUNT_MAX:
            continue
        reward = 100 * REWARD_MICRO if options.objective == "alike" else step.reward_micro
        (dated,) = capped(row.kind, [DatedReward(step.by_us, reward, work_us)], most_micro)
        if not dated.reward_micro:
            continue
        margin = 0 if rows else _margin(slack, leases, remaining, options)
        until = ready + leases + slack
        counted = dated.reward_micro
        if short_us:
            counted = _by_luck(counted, short_us, most_short_us)
        made = RewardStep(counted, until - margin, leases)
        rows.append(DatedStep(step.by_us, work_us, dated.reward_micro, until, made, short_us))
        if margin:
            least = RewardStep(_without_margin(dated.reward_micro), until, leases)
            rows.append(DatedStep(step.by_us, work_us, dated.reward_micro, until, least))
    return tuple(rows)


def _margin(slack: int, leases: int, remaining: Remaining, options: UniSchedOptions) -> int:
    """Return how many leases to leave free before a step. A late job gets all slack as margin."""
    if remaining.is_late and remaining.deviation_us and options.margin_percent:
        return slack
    return min(slack, -(-leases * options.margin_percent // 100))


def _by_luck(reward_micro: int, short_us: int, most_short_us: int) -> int:
    """Return the reward of a step that is met only if the job's estimate is too long; above 0."""
    lost = (JUST_PERCENT - LEAST_PERCENT) * short_us // most_short_us
    return max(1, reward_micro * (JUST_PERCENT - lost) // 100)


def _thinned(steps: Sequence[DeadlineStep]) -> Sequence[DeadlineStep]:
    """Return at most `MOST_STEPS` of the steps, including the first and the last."""
    last = len(steps) - 1
    if last < MOST_STEPS:
        return steps
    return [steps[place * last // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]


def _without_margin(reward_micro: int) -> int:
    """Return the reward, above 0, of a step without a margin before it."""
    return max(1, reward_micro * WITHOUT_MARGIN_PERCENT // 100)


def selector_job(
    job: Job,
    kind: DeadlineClass,
    options: tuple[CellOption, ...],
    dated: tuple[DatedStep, ...],
    ready: int,
) -> SelectorJob | None:
    """Return a job with deadlines as a job of the Selector, or None if it can meet no step."""
    if not dated or not options:
        return None
    return SelectorJob(job.id, kind, options, tuple(row.step for row in dated), 0, ready)
