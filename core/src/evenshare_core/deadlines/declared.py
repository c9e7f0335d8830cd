"""Steps of a soft deadline, as users declare them.

A step is a pair of strings or numbers: (percent of the time from submission to the deadline,
points). For example, ("110", "80") gives 80 points if the job ends within 110 % of that time.
Percentages must rise from 100. Points must fall, and are at most 100.

Source: W. Gao et al., "UniSched", IEEE TC 2024, section III-C2; docs/deadlines.md.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import NamedTuple

from evenshare_core.deadlines.rewards import POINTS, soft_deadlines
from evenshare_core.domain.deadlines import MOST_REWARD_MICRO, DeadlineClass, DeadlineStep
from evenshare_core.domain.reason_texts import STEP_PERCENT, STEP_POINTS, STEPS_COUNT
from evenshare_core.units import REWARD_MICRO, SECOND_US

STEPS_MAX = 16
# Enough decimals to restore the time of a step, years after submission, to the microsecond.
PERCENT_PLACES = 12
PERCENT_DIGITS = 6
PERCENT_BELOW = 10**PERCENT_DIGITS
_FINEST = Decimal(1).scaleb(-PERCENT_PLACES)
_PERCENT = re.compile(rf"[0-9]{{1,{PERCENT_DIGITS}}}(?:\.[0-9]{{1,{PERCENT_PLACES}}})?", re.ASCII)
_POINTS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?", re.ASCII)


class DeclaredStep(NamedTuple):
    """A percentage of the time from submission to deadline, and the reward for an end by then."""

    percent: Decimal
    reward_micro: int

    @property
    def points(self) -> Decimal:
        return Decimal(self.reward_micro) / REWARD_MICRO


class StepError(ValueError):
    """Declared steps are invalid.

    `place` is the first wrong step, or None if there are too many or too few.
    """

    def __init__(self, reason: str, place: int | None = None) -> None:
        super().__init__(reason)
        self.place = place


def read_steps(pairs: Iterable[Sequence[object]]) -> tuple[DeclaredStep, ...]:
    """Validate and return declared steps.

    Raises:
        StepError: a pair is invalid, or a step is not after the previous one with fewer points.
    """
    rows = list(pairs)
    if not 1 <= len(rows) <= STEPS_MAX:
        raise StepError(STEPS_COUNT.format(most=STEPS_MAX))
    steps = [_step(place, pair) for place, pair in enumerate(rows)]
    if steps[0].percent != POINTS:
        raise StepError("must be at 100 percent: the deadline itself", 0)
    for place, (one, then) in enumerate(pairwise(steps), start=1):
        if then.percent <= one.percent:
            raise StepError("is not later than the previous step", place)
        if then.reward_micro >= one.reward_micro:
            raise StepError("does not have fewer points than the previous step", place)
    return tuple(steps)


def _step(place: int, pair: Sequence[object]) -> DeclaredStep:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise StepError("must be percent and points", place)
    percent, points = (_text(value) for value in pair)
    if not _PERCENT.fullmatch(percent):
        raise StepError(STEP_PERCENT.format(places=PERCENT_PLACES), place)
    if not _POINTS.fullmatch(points):
        raise StepError("has no points with at most 6 decimals", place)
    reward_micro = int(Decimal(points) * REWARD_MICRO)
    if not 0 < reward_micro <= MOST_REWARD_MICRO[DeadlineClass.SOFT]:
        raise StepError(STEP_POINTS.format(most=POINTS), place)
    return DeclaredStep(Decimal(percent), reward_micro)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    # Reject large exponents: their digits would fill the memory.
    if isinstance(value, Decimal) and (not value.is_finite() or abs(value.adjusted()) > 15):
        return ""
    return format(value, "f" if isinstance(value, Decimal) else "d") if is_number else ""


def step_texts(steps: Iterable[DeclaredStep]) -> list[list[str]]:
    """Return steps for storage: each number as its shortest decimal string."""
    return [[_shortest(step.percent), _shortest(step.points)] for step in steps]


def _shortest(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def dated_steps(
    submitted_us: int,
    deadline_us: int,
    kind: DeadlineClass,
    declared: Sequence[DeclaredStep] = (),
) -> tuple[DeadlineStep, ...]:
    """Return the steps of a deadline with their times.

    If none are declared, the class's steps are used.

    Raises:
        ValueError: the deadline is not after the submission, or `kind` has no deadline.
    """
    length_us = deadline_us - submitted_us
    if length_us <= 0:
        raise ValueError("the deadline is not after the submission")
    if not kind.has_deadline:
        raise ValueError(f"a job of the class {kind} has no deadline")
    if kind is DeadlineClass.STRICT:
        return (DeadlineStep(deadline_us, MOST_REWARD_MICRO[kind]),)
    if not declared:
        return tuple(DeadlineStep(*row) for row in soft_deadlines(submitted_us, deadline_us))
    return tuple(
        DeadlineStep(submitted_us + _part(length_us, step.percent), step.reward_micro)
        for step in declared
    )


def _part(length_us: int, percent: Decimal) -> int:
    return int((length_us * percent / 100).to_integral_value(ROUND_HALF_UP))


def steps_of_values(rows: Iterable[tuple[int, int]]) -> tuple[tuple[int, DeclaredStep], ...]:
    """Convert a trace's deadlines and values to (microseconds after the submission, step).

    Values are scaled so that the first has 100 points. Of several steps with equal values, only the
    last is kept. Values below a millionth of a point are left out, and so are deadlines 10,000
    times as late as the first.
    """
    values = list(rows)
    if not values:
        return ()
    most = MOST_REWARD_MICRO[DeadlineClass.SOFT]
    # No job ends within a second, so an earlier deadline can be treated as one second.
    rewards = {value * most // values[0][1]: max(after_us, SECOND_US) for after_us, value in values}
    first_us = next(iter(rewards.values()))
    kept: dict[int, DeclaredStep] = {}
    for reward, after_us in rewards.items():
        percent = (Decimal(after_us * 100) / first_us).quantize(_FINEST)
        if reward > 0 and percent < PERCENT_BELOW:
            kept.setdefault(after_us, DeclaredStep(percent, reward))
    return tuple(kept.items())
