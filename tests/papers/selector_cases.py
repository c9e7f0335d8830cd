"""Problems of UniSched's Selector: small ones with a known optimum, random ones for properties."""

from __future__ import annotations

from random import Random

from evenshare_core.deadlines.model import RewardStep, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import CellOption, Cells, all_options, two_speeds
from evenshare_core.domain.deadlines import DeadlineClass
from evenshare_core.units import REWARD_MICRO, SECOND_US

SOFT = ((100, 1.0), (80, 1.1), (50, 1.2), (20, 1.5))


def options(gpus: int, spread_milli: int = 800) -> tuple[CellOption, ...]:
    """Return all options, with the two speeds of equation (2)."""
    return all_options(gpus, two_speeds(gpus, spread_milli))


def strict(
    number: int, gpus: int, leases: int, deadline: int, spread_milli: int = 800
) -> SelectorJob:
    """Return a strict job of 100 points."""
    step = RewardStep(100 * REWARD_MICRO, deadline, leases)
    return SelectorJob(number, DeadlineClass.STRICT, options(gpus, spread_milli), (step,))


def best_effort(number: int, gpus: int, remaining_s: int, spread_milli: int = 800) -> SelectorJob:
    kind, remaining_us = DeadlineClass.BEST_EFFORT, remaining_s * SECOND_US
    return SelectorJob(number, kind, options(gpus, spread_milli), (), remaining_us)


def nodes(count: int) -> tuple[Cells, ...]:
    """Return `count` nodes of 8 GPUs, which are free in all slots."""
    return ((0, 0, 0, count),)


def small_case(seed: int) -> SelectorProblem:
    """Draw eight to fourteen jobs of all classes on two to four nodes; 15 % have unusual sizes."""
    draw = Random(seed)  # noqa: S311 - drawn once, the same for ever
    free = nodes(draw.randint(2, 4))
    jobs = [_job(draw, number) for number in range(draw.randint(8, 14))]
    return SelectorProblem(jobs, free, is_slo_cycle=seed % 3 != 2)


def _job(draw: Random, number: int) -> SelectorJob:
    gpus = draw.choice((3, 5, 6, 7) if draw.random() < 0.15 else (1, 2, 4, 8))
    rows = options(gpus, draw.randint(500, 950))
    leases = draw.randint(1, 4)
    deadline = min(8, int(leases * draw.uniform(1.1, 2)) + 1)
    kind = draw.random()
    if kind < 0.4:
        step = RewardStep(100 * REWARD_MICRO, deadline, leases)
        return SelectorJob(number, DeadlineClass.STRICT, rows, (step,))
    if kind < 0.7:
        steps = tuple(
            RewardStep(points * REWARD_MICRO, min(8, int(deadline * factor)), leases)
            for points, factor in SOFT
        )
        return SelectorJob(number, DeadlineClass.SOFT, rows, steps)
    if kind < 0.9:
        remaining_us = int(draw.lognormvariate(8, 1)) * SECOND_US
        return SelectorJob(number, DeadlineClass.BEST_EFFORT, rows, (), remaining_us)
    return SelectorJob(number, DeadlineClass.PROFILER, options(2)[:1])
