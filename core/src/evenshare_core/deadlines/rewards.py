"""Rewards for completion by a given time, by deadline class, and their maxima.

Source: W. Gao et al., "UniSched", IEEE TC 2024, section III-C2.
"""

from collections.abc import Iterable
from typing import NamedTuple

from evenshare_core.deadlines.model import BEST_EFFORT_LEASE_US
from evenshare_core.domain.deadlines import MOST_REWARD_MICRO, DeadlineClass
from evenshare_core.units import ONE_MILLI, REWARD_MICRO

POINTS = 100
# (thousandths of the time from submission to the deadline, points).
SOFT_STEPS = ((1000, 100), (1100, 80), (1200, 50), (1500, 20))


class DatedReward(NamedTuple):
    """A reward for completion by a given time, and the work until then, including interruptions."""

    by_us: int
    reward_micro: int
    work_us: int


def soft_deadlines(submitted_us: int, deadline_us: int) -> tuple[tuple[int, int], ...]:
    """Return (time, reward_micro) of a soft deadline D: for an end by D, 1.1 D, 1.2 D and 1.5 D."""
    length = deadline_us - submitted_us
    return tuple(
        (submitted_us + length * factor // ONE_MILLI, points * REWARD_MICRO)
        for factor, points in SOFT_STEPS
    )


def capped(
    kind: DeadlineClass, rewards: Iterable[DatedReward], budget_micro: int | None = None
) -> tuple[DatedReward, ...]:
    """Return the rewards, limited to the maximum of the class and to the budget.

    Raises:
        ValueError: a reward or the budget is negative.
    """
    most = MOST_REWARD_MICRO[kind]
    if budget_micro is not None:
        if budget_micro < 0:
            raise ValueError("budget_micro: must be at least 0")
        most = min(most, budget_micro)
    rows = tuple(rewards)
    if any(row.reward_micro < 0 for row in rows):
        raise ValueError("reward_micro: must be at least 0")
    return tuple(row._replace(reward_micro=min(row.reward_micro, most)) for row in rows)


def best_effort_micro(
    phi_milli: int, remaining_us: int, slot_us: int = BEST_EFFORT_LEASE_US
) -> int:
    """Return phi / (1 + remaining / slot), above 0 and below 1 point; the paper's slot is 300 s."""
    share = phi_milli * REWARD_MICRO * slot_us
    reward = share // (ONE_MILLI * (slot_us + remaining_us))
    return max(1, min(reward, MOST_REWARD_MICRO[DeadlineClass.BEST_EFFORT]))
