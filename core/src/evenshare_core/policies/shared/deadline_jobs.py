"""Jobs with deadlines for policies that order them: the remaining deadlines, and laxity.

This module is not a policy. A job whose last deadline has passed is a best-effort job.
"""

from collections.abc import Iterable

from evenshare_core.domain.deadlines import Deadline, DeadlineStep

Steps = tuple[DeadlineStep, ...]


def steps_left(deadlines: Iterable[Deadline], at_us: int) -> dict[int, Steps]:
    """Return, by job, the deadlines after `at_us`. Best-effort jobs are left out."""
    left = {
        row.id: tuple(step for step in row.steps if step.by_us > at_us)
        for row in deadlines
        if row.kind.has_deadline
    }
    return {job: steps for job, steps in left.items() if steps}


def laxity_us(steps: Steps, at_us: int, remaining_us: int) -> int:
    """Return deadline - now - remaining work, in us.

    The result is negative if no deadline can be met.

    If there are several deadlines, the first that can be met is used, or else the last.
    """
    end_us = at_us + remaining_us
    by_us = next((step.by_us for step in steps if step.by_us >= end_us), steps[-1].by_us)
    return by_us - end_us
